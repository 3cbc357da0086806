"""Time and threads as arguments, so that a test's hours take no time and its order is its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

THREADS = 64
"""Blocking calls at a time: as many as the connections that one AWS client keeps."""


class InThread(Protocol):
    """Runs a blocking call without blocking the event loop. A call that has begun is waited for, cancelled or not."""

    async def __call__(self, call: Callable[..., T], *args: Any) -> T:
        """The call's answer, or its error."""
        ...


@dataclass(frozen=True, slots=True)
class Clockwork:
    """The monotonic clock, the wait and the threads of one event loop."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    in_thread: InThread


def real_clockwork() -> Clockwork:
    """The machine's own, for the event loop that runs now."""
    limiter = anyio.CapacityLimiter(THREADS)

    async def in_thread(call: Callable[..., T], *args: Any) -> T:
        return await anyio.to_thread.run_sync(call, *args, limiter=limiter)

    return Clockwork(now=time.monotonic, sleep=anyio.sleep, in_thread=in_thread)
