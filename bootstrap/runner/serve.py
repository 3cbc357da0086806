"""The verb `serve`: a warm runner, or the zygote that forks runners. Speaks JSON lines over an inherited socket.

`serve runner FD` takes jobs: `{"what": …, "job": …, "folder": …, "rates": …}`, one at a time, each answered by `{"done": …}`
or `{"crashed": …}`, and before that by a `{"refused": SECONDS}` for each model call that was refused by rate and waits. It ends
when its socket closes, and on SIGTERM, also in the middle of a job: Inspect then unwinds as on Ctrl-C, closing sandboxes.

`serve zygote FD` imports once and forks a runner for each `{"spawn": NUMBER, "log": …}` that comes with a socket. It is the
runners' parent, so it alone signals and reaps them. What to import it learns from a trial: a child that builds the tasks,
runs a sample and says which modules that took. The zygote itself runs no code of the user but imports, and starts no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any


def main(arguments: list[str]) -> int:
    """Serve on an inherited socket until it closes."""
    sock = socket.socket(fileno=int(arguments[1]))
    if arguments[0] == "zygote":
        from .zygote import Zygote

        return Zygote(sock, serve).run()
    return serve(sock)


def serve(sock: socket.socket) -> int:
    """Be a runner on this socket."""
    from inspect_ai.util import display_type

    from . import known_models
    from .inside import draw_nothing

    known_models.read()  # a fork has it from its zygote
    display_type()  # settles it by the environment ("none"), or `eval_async` would print progress
    draw_nothing()
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_serve(sock))
    return 0


async def _serve(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ours = asyncio.current_task()
    if ours is not None:
        loop.add_signal_handler(signal.SIGTERM, ours.cancel)
    from . import inside
    from .job import Jobs, Refusals

    reader, writer = await asyncio.open_connection(sock=sock, limit=2**28)
    Refusals.tell = staticmethod(lambda seconds: _say(writer, {"refused": seconds}))
    jobs = Jobs()
    async with inside.shared_files():
        _say(writer, {"ready": os.getpid()})
        coming = asyncio.ensure_future(reader.readline())
        try:
            while line := await coming:
                coming = asyncio.ensure_future(reader.readline())
                work = asyncio.ensure_future(_answered(jobs, json.loads(line)))
                try:
                    await asyncio.wait({work, coming}, return_when=asyncio.FIRST_COMPLETED)
                    if not work.done() and not coming.result():
                        return  # who asked is gone, so nobody wants the answer
                    said = await work
                finally:
                    if not work.done():
                        work.cancel()
                        await asyncio.wait({work}, timeout=30)
                _say(writer, said)
                await writer.drain()
        finally:
            coming.cancel()


async def _answered(jobs: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """The job's answer, or what it crashed of. Anything that Inspect or the user's code raises is an answer."""
    from pathlib import Path

    from .job import bases, why

    try:
        return {"done": await jobs.run(asked["what"], asked["job"], Path(asked["folder"]), asked.get("rates"))}
    except Exception as error:  # noqa: BLE001 - the edge of the process: the parent decides what the kind means
        traceback.print_exc()
        sys.stderr.flush()
        return {"crashed": {"bases": bases(error), "why": why(error)}}


def _say(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
