"""The parent's end of the socket to the zygote. What the two do together: `test_runners.py`."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from bootstrap.zygote import Zygote


def test_one_that_ended_before_it_was_asked_anything_is_gone_and_no_error(tmp_path: Path) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true", start_new_session=True)
        ours, theirs = socket.socketpair()
        theirs.close()
        zygote = Zygote(process, ours)
        assert not await zygote.warm([], tmp_path / "known.json")
        assert zygote.gone
        await zygote.close()

    asyncio.run(main())


class Stuck:
    """A process that waits within the kernel: told to end, and killed, it isn't gone."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid

    def terminate(self) -> None:
        pass

    async def wait(self) -> None:
        await asyncio.get_running_loop().create_future()


@pytest.mark.fault("hang")
def test_one_that_cannot_be_killed_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bootstrap.zygote.CLOSING_S", 0.01)
    monkeypatch.setattr("bootstrap.zygote.KILLED_S", 0.01)

    async def main() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
        ours, theirs = socket.socketpair()
        with theirs:
            await asyncio.wait_for(Zygote(Stuck(process), ours).close(), 60)  # type: ignore[arg-type]
        return await process.wait()

    assert asyncio.run(main()) == -9
