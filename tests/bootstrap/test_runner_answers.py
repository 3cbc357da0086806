"""What a runner's process does that it shouldn't, seen from the side that has jobs. What it does well: `test_runners.py`."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bootstrap.runners import Runner, RunnerDied


class Closed:
    """A socket to write to, whose other end is gone."""

    def write(self, _: bytes) -> None:
        raise ConnectionError

    def close(self) -> None:
        pass


@dataclass
class Process:
    """A runner's process as its parent sees it: what it says before its socket closes, how it ends, and what it is sent."""

    folder: Path
    code: int | None = None
    """None: it doesn't end."""
    said: bytes = b""
    signals: list[int] = field(default_factory=list)

    def runner(self) -> Runner:
        """Within an event loop."""
        reader = asyncio.StreamReader()
        reader.feed_data(self.said)
        reader.feed_eof()
        ended = asyncio.get_running_loop().create_future()
        if self.code is not None:
            ended.set_result(self.code)
        log = self.folder / "runner-001.log"
        return Runner(1, log, reader, Closed(), self.signals.append, ended, self)  # type: ignore[arg-type]


def test_a_process_that_cannot_be_killed_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a disk within the kernel; its job has to go on elsewhere."""
    monkeypatch.setattr("bootstrap.runners.CLOSING_S", 0.01)
    monkeypatch.setattr("bootstrap.runners.KILLED_S", 0.01)
    process = Process(tmp_path)

    async def main() -> None:
        await asyncio.wait_for(process.runner().hear(), 60)

    with pytest.raises(RunnerDied, match=r"killed, and not gone 0\.01 s later: it waits within the kernel"):
        asyncio.run(main())
    assert process.signals == [signal.SIGKILL]
