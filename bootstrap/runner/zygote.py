"""The parent of all runners of one instance: imports once, forks, signals and reaps. One thread, no event loop."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from . import known_models
from .importing import for_good

GRACE_S = 15.0
"""Seconds that runners get to unwind when the zygote itself ends."""

TRIAL_S = 600.0
"""Seconds after which a trial is given up: a task may download its dataset in it."""


class Zygote:
    """Serves one pool, over one socket."""

    def __init__(self, sock: socket.socket, serve: Callable[[socket.socket], int]) -> None:
        self._sock = sock
        self._serve = serve
        self._runners: dict[int, int] = {}  # pid → number
        self._rest = b""
        self._ending = False
        self._trial: int | None = None
        """The trial's process; 0 while imports follow it; None when warm."""

    def run(self) -> int:
        """Serve until the socket closes or SIGTERM comes; no runner is left afterwards."""
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._asked_to_end())
        try:
            while not self._ending:
                ready: list[Any] = select.select([self._sock.fileno(), wake], [], [])[0]
                if wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self._reap()
                if self._sock.fileno() in ready and not self._hear():
                    break
        finally:
            self._end_all()
        return 0

    def _asked_to_end(self) -> None:
        """SIGTERM: at the loop's next turn; at once while it warms up, which takes seconds and has no runner yet."""
        self._ending = True
        if self._trial is not None:
            if self._trial:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._trial, signal.SIGKILL)
            os._exit(0)

    def _hear(self) -> bool:
        """Handle what came; False when the other side is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._sock, 2**20, 8)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "warm" in message:
                self._warm(message["warm"], message["modules"])
            elif "spawn" in message:
                self._spawn(message["spawn"], message["log"], socket.socket(fileno=descriptors.pop(0)))
            elif "signal" in message:
                self._signal(message["runner"], message["signal"])
        return True

    def _warm(self, evals: list[dict[str, Any]], modules: list[str]) -> None:
        """Import what runners will need, by an earlier trial's word or one of our own.

        Says whether forking is safe: it isn't beside a running thread.
        """
        self._trial = 0
        with for_good():
            importlib.import_module("inspect_ai")
        modules = modules or trial(evals, lambda pid: setattr(self, "_trial", pid))
        self._trial = 0
        with for_good():
            for name in modules:
                # One that needs more than an import is imported where it is used.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
            known_models.read()
        self._trial = None
        import threading

        self._say({"warm": modules, "threads": threading.active_count()})

    def _spawn(self, number: int, log: str, sock: socket.socket) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            own_group(pid)
            self._runners[pid] = number
            sock.close()
            self._say({"spawned": number, "pid": pid})
            return
        code = 1
        try:
            become_runner(log)
            self._sock.close()
            code = self._serve(sock)
        except BaseException:  # noqa: BLE001 - nothing may climb into the zygote's loop: this process is another one
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _signal(self, number: int, wanted: int) -> None:
        for pid, known in self._runners.items():
            if known == number:
                with contextlib.suppress(ProcessLookupError):
                    if wanted == signal.SIGKILL:
                        os.killpg(pid, wanted)
                    else:
                        os.kill(pid, wanted)

    def _reap(self) -> None:
        for pid in list(self._runners):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            # Still unreaped, so its number can't be another's: whatever it started and left goes with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            self._say({"ended": self._runners.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _end_all(self) -> None:
        for pid in self._runners:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while self._runners and time.monotonic() < until:
            self._reap()
            time.sleep(0.02)
        for pid in self._runners:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        while self._runners:
            self._reap()
            time.sleep(0.01)

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the pool is gone: the loop is about to see it
            self._sock.sendall(json.dumps(message).encode() + b"\n")


def own_group(pid: int) -> None:
    """Give a child a process group of its own, by which it is killed with all that it started.

    Parent and child both do it, so that it is done whoever comes first.
    """
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def become_runner(log: str) -> None:
    """In the forked child: a process group of its own, its output in a file, nothing left of the zygote's signal handling."""
    from .chance import scatter

    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    scatter()


def trial(evals: list[dict[str, Any]], started: Callable[[int], None]) -> list[str]:
    """Names of the modules that building these tasks and running a sample imports, in order. A failure just says less.

    `started` is told the process that does it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setpgid(0, 0)
            before = set(sys.modules)
            from .warmth import rehearse

            rehearse(evals)
            found = [name for name in list(sys.modules) if name not in before]
            with os.fdopen(writing, "w") as pipe:
                json.dump(found, pipe)
        except BaseException:  # noqa: BLE001 - another process, as above
            traceback.print_exc()
        finally:
            os._exit(0)
    own_group(pid)
    started(pid)
    os.close(writing)
    said = b""
    until = time.monotonic() + TRIAL_S
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select([reading], [], [], left)
            if not ready or not (part := os.read(reading, 2**16)):
                break
            said += part
    os.close(reading)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        names: list[str] = json.loads(said)
    except ValueError:
        return []
    return names
