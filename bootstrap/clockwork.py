"""Time and threads as arguments, so that a test's hours take no time and its order is its own."""

from __future__ import annotations

import asyncio
import errno
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

T = TypeVar("T")

THREADS = 64
"""Blocking calls at a time: as many as the connections that one AWS client keeps."""


class InThread(Protocol):
    """Runs a blocking call without blocking the event loop. A call that has begun is waited for, cancelled or not.

    Within a scope that has a deadline it is waited for no longer than that: its thread is left behind then (`abandonable`).
    """

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
    last_words = anyio.CapacityLimiter(THREADS)  # their own: what has a deadline is behind no call that hangs

    async def in_thread(call: Callable[..., T], *args: Any) -> T:
        if anyio.current_effective_deadline() < math.inf:
            return await abandonable(last_words, call, *args)
        return await anyio.to_thread.run_sync(call, *args, limiter=limiter)

    return Clockwork(now=time.monotonic, sleep=anyio.sleep, in_thread=in_thread)


@contextmanager
def in_time(seconds: float, what: str, *, shield: bool = False) -> Iterator[None]:
    """A bound for calls that wait for a disk: TimeoutError (ETIMEDOUT) where they take longer. `shield`: nothing else ends them."""
    with anyio.move_on_after(seconds, shield=shield) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutError(errno.ETIMEDOUT, f"{what} took more than {seconds:g} s")


async def abandonable(limiter: anyio.CapacityLimiter, call: Callable[..., T], *args: Any) -> T:
    """Run a blocking call in a thread that is left behind when the wait for it is cancelled, and when the process ends.

    No thread can be ended, and Python waits for anyio's before it exits: a call that hangs would keep the machine running. The
    `limiter` counts those that are left behind too, until they end: no more threads than it has places.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    place = object()
    await limiter.acquire_on_behalf_of(place)

    def settle(give: Callable[[], None]) -> None:
        limiter.release_on_behalf_of(place)
        if not answer.done():
            give()

    def work() -> None:
        try:
            give = partial(answer.set_result, call(*args))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for whoever waits
            give = partial(answer.set_exception, error)
        with suppress(RuntimeError):  # the event loop has ended by now
            loop.call_soon_threadsafe(settle, give)

    try:
        Thread(target=copy_context().run, args=(work,), daemon=True).start()
    except RuntimeError:  # the system has no more of them
        limiter.release_on_behalf_of(place)
        raise
    return await answer
