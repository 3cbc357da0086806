"""The parent's end of the socket to the zygote, the process that forks warm runners (`bootstrap/runner/zygote.py` is the other)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WARM_S = 1_200.0
"""Seconds that it may import for: its trial has half of them, and a module of the user's may wait for a network for ever."""
CLOSING_S = 20.0
"""Seconds that the runners get to unwind when a pool closes; then they are killed."""
KILLED_S = 10.0
"""Seconds after which a killed process is waited for no longer: one that waits for a disk within the kernel ends with that wait."""


class ZygoteGone(Exception):
    """The process that forks runners has ended."""


@dataclass(slots=True)
class Zygote:
    """The pool's end of the socket to the zygote."""

    process: asyncio.subprocess.Process
    sock: socket.socket
    gone: bool = False
    _warm: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _spawned: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _ended: dict[int, asyncio.Future[int]] = field(default_factory=dict)
    _listening: asyncio.Task[None] | None = None

    async def warm(self, evals: list[dict[str, Any]], known: Path) -> bool:
        """Have it import; whether it can fork safely. False too where it died, or hangs: then each runner will say why.

        What it had to find out by a trial is kept in `known`, which saves the next zygote of this environment the trial.
        """
        self.sock.setblocking(False)
        self._listening = asyncio.create_task(self._listen())
        line = json.dumps({"warm": evals, "modules": _names(known)}).encode() + b"\n"
        with contextlib.suppress(OSError):  # it has ended already, which `_listen` sees
            await asyncio.get_running_loop().sock_sendall(self.sock, line)
        try:
            said = await asyncio.wait_for(asyncio.shield(self._warm), WARM_S)
        except TimeoutError:
            await self.close()
            return False
        if said.get("warm"):
            with contextlib.suppress(OSError):  # it only saves time
                part = known.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(said["warm"]))
                part.replace(known)
        return said.get("threads") == 1

    async def fork(
        self, number: int, log: Path, theirs: socket.socket
    ) -> tuple[int, Callable[[int], None], Awaitable[int]]:
        """Fork a runner that serves on `theirs`; its process id, how to signal it, its exit code. ZygoteGone."""
        loop = asyncio.get_running_loop()
        spawned = self._spawned[number] = loop.create_future()
        ended = self._ended[number] = loop.create_future()
        line = json.dumps({"spawn": number, "log": str(log)}).encode() + b"\n"
        with contextlib.suppress(OSError):
            socket.send_fds(self.sock, [line], [theirs.fileno()])
        pid = await spawned
        if not pid:
            raise ZygoteGone

        def send(wanted: int) -> None:
            with contextlib.suppress(OSError):
                self.sock.send(json.dumps({"runner": number, "signal": wanted}).encode() + b"\n")

        return pid, send, asyncio.shield(ended)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        rest = b""
        while True:
            try:
                data = await loop.sock_recv(self.sock, 2**16)
            except OSError:
                data = b""
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        self.gone = True
        if not self._warm.done():
            self._warm.set_result({})
        for future in (*self._spawned.values(), *self._ended.values()):
            if not future.done():
                future.set_result(0)

    def _hear(self, message: dict[str, Any]) -> None:
        if "warm" in message:
            self._warm.set_result(message)
        elif "spawned" in message:
            if not (spawned := self._spawned.pop(message["spawned"])).done():  # else nobody waits for it any more
                spawned.set_result(message["pid"])
        elif "ended" in message and not (future := self._ended.pop(message["ended"])).done():
            future.set_result(message["status"])

    async def close(self) -> None:
        """End it with all of its runners."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()  # it may be importing, and not listen
        try:
            await asyncio.wait_for(self.process.wait(), CLOSING_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), KILLED_S)
        if self._listening:
            self._listening.cancel()
        self.sock.close()


def _names(known: Path) -> list[str]:
    try:
        names: list[str] = json.loads(known.read_text())
    except (OSError, ValueError):
        return []
    return names
