"""What a runner's process does that it shouldn't, seen from the side that has jobs. What it does well: `test_runners.py`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bootstrap import job_process, runners
from bootstrap.clockwork import real_clockwork
from bootstrap.runners import RESULT_UNUSABLE, JobAnswer, JobCrashed, Runner, RunnerDied
from fleet.evals.documents import Job, JobResult
from tests.archives import zip_of
from tests.bootstrap.world import manifest_of, result_of


class Closed:
    """A socket to write to, whose other end is gone."""

    def write(self, _: bytes) -> None:
        raise ConnectionError

    def close(self) -> None:
        """It is."""


@dataclass
class Process:
    """A runner's process as its parent sees it: what it says before its socket closes, how it ends, and what it is sent."""

    folder: Path
    code: int | None = None
    """None: it doesn't end."""
    said: bytes = b""
    signals: list[int] = field(default_factory=list)
    instance = ""
    rates = None
    in_thread = staticmethod(real_clockwork().in_thread)

    def own(self, folder: Path) -> Path:
        """As its pool does, but for nobody else."""
        return folder

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


@pytest.mark.fault("hang")
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


MANIFEST = manifest_of(1)
[JOB] = MANIFEST.jobs
NAME = f"{JOB.job}.eval"


def log_of(job: Job, member: str = JobResult.MEMBER, method: int = zipfile.ZIP_STORED) -> bytes:
    return zip_of({member: result_of(job).write()}, method)


def answered(said: object, folder: Path) -> JobAnswer:
    """What comes of a runner that says this."""
    text = said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n"
    process = Process(folder, code=0, said=text)

    async def main() -> JobAnswer:
        return await process.runner().run(MANIFEST, JOB, folder)

    return asyncio.run(main())


def done(log: object = NAME, **more: object) -> dict[str, object]:
    return {"done": {"log": log, "seconds": 1.5, "rate_limited": 0, **more}}


def test_a_result_is_read_in_its_jobs_own_folder_whatever_the_runner_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in a thread: it may be large, and leases are renewed meanwhile."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / NAME).write_bytes(log_of(JOB))
    threads: list[threading.Thread] = []
    read = runners.result_in

    def told(log: Path) -> JobResult:
        threads.append(threading.current_thread())
        return read(log)

    monkeypatch.setattr(runners, "result_in", told)
    for log in (NAME, str(tmp_path / "job" / NAME), f"/etc/{NAME}", f"../../{NAME}"):
        answer = answered(done(log), tmp_path / "job")
        assert answer.log == tmp_path / "job" / NAME
        assert answer.result == result_of(JOB)
    assert threading.main_thread() not in threads


def test_what_comes_before_an_answer_is_told_if_it_makes_sense(tmp_path: Path) -> None:
    told: list[float] = []
    lines = [{"refused": 2.5}, {"refused": "long"}, {"refused": -1}, {"refused": 1e9}, {"refused": 4}, done()]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (tmp_path / NAME).write_bytes(log_of(JOB))
    process = Process(tmp_path, code=0, said=text)

    async def main() -> JobAnswer:
        runner = process.runner()
        runner._pool.refused = told.append
        return await runner.run(MANIFEST, JOB, tmp_path)

    assert asyncio.run(main()).result == result_of(JOB)
    assert told == [2.5, 4.0]


def plain(folder: Path, content: bytes) -> None:
    (folder / NAME).write_bytes(content)


def linked(folder: Path) -> None:
    (folder.parent / "other").write_bytes(log_of(JOB))
    (folder / NAME).symlink_to(folder.parent / "other")


def named_twice(folder: Path) -> None:
    (folder.parent / "other").write_bytes(log_of(JOB))
    (folder / NAME).hardlink_to(folder.parent / "other")


def larger_than_it_is(folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(log_of(JOB))) as archive:
        size = archive.getinfo(JobResult.MEMBER).file_size.to_bytes(4, "little")
    # The local header has both sizes side by side, and the directory again.
    plain(folder, log_of(JOB).replace(size + size, (2**20).to_bytes(4, "little") * 2))


ODD = [
    pytest.param(done(), lambda _: None, id="no log"),
    pytest.param(done(), linked, id="a link"),
    pytest.param(done(), named_twice, id="another file's second name"),
    pytest.param(done(), lambda folder: os.mkfifo(folder / NAME), id="a pipe"),
    pytest.param(done(), lambda folder: plain(folder, b""), id="an empty log"),
    pytest.param(done(), lambda folder: plain(folder, b"PK, but no zip"), id="no zip"),
    pytest.param(done(), lambda folder: plain(folder, log_of(JOB)[:-40]), id="a broken zip"),
    pytest.param(done(), larger_than_it_is, id="a member that ends before its size"),
    pytest.param(done(), lambda folder: plain(folder, log_of(JOB, method=zipfile.ZIP_LZMA)), id="another compression"),
    pytest.param(done(), lambda folder: plain(folder, log_of(JOB, "other.json")), id="nothing of ours in it"),
    pytest.param(done(".."), lambda folder: plain(folder, log_of(JOB)), id="a folder"),
    pytest.param(done("/"), lambda folder: plain(folder, log_of(JOB)), id="a root"),
    pytest.param(done(7), lambda folder: plain(folder, log_of(JOB)), id="a number for a log"),
    pytest.param(done(seconds="long"), lambda folder: plain(folder, log_of(JOB)), id="no seconds"),
    pytest.param({"done": {}}, lambda folder: plain(folder, log_of(JOB)), id="done, and nothing more"),
    pytest.param({"done": []}, lambda _: None, id="done in another form"),
    pytest.param({}, lambda _: None, id="neither done nor crashed"),
    pytest.param({"crashed": True}, lambda _: None, id="crashed in another form"),
    pytest.param({"crashed": {"bases": [], "why": ""}}, lambda _: None, id="crashed of nothing"),
]


@pytest.mark.fault("planted-link")
@pytest.mark.parametrize(("said", "plant"), ODD)
def test_an_answer_that_cannot_be_taken_fails_its_job_and_nothing_else(
    said: object, plant: Callable[[Path], None], tmp_path: Path
) -> None:
    """It is the user's code that speaks, in the end: whatever it says must not end the worker, nor lead root elsewhere."""
    (tmp_path / "job").mkdir()
    plant(tmp_path / "job")
    with pytest.raises(JobCrashed, match="the runner's answer can't be taken") as caught:
        answered(said, tmp_path / "job")
    assert caught.value.kind == RESULT_UNUSABLE


def test_a_crash_is_told_in_words_whatever_they_are_made_of(tmp_path: Path) -> None:
    with pytest.raises(JobCrashed) as caught:
        answered({"crashed": {"bases": [7], "why": None}}, tmp_path)
    assert (caught.value.kind, caught.value.why) == ("7", "None")


@pytest.mark.parametrize("said", [{"crashed": {"bases": ["OSError"], "why": "no"}}, b"no message\n"])
def test_no_file_of_a_runner_is_touched_in_the_event_loop(
    said: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder, and its output: leases are renewed meanwhile."""
    threads: dict[str, threading.Thread] = {}

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def note(*args: object) -> Any:
            threads[name] = threading.current_thread()
            return call(*args)

        return note

    monkeypatch.setattr(Process, "own", noted("own", Process.own))
    for name in ("size_of", "said_since"):
        monkeypatch.setattr(job_process, name, noted(name, getattr(job_process, name)))
    with pytest.raises((JobCrashed, RunnerDied)):
        answered(said, tmp_path)
    assert threads.keys() == {"own", "size_of", "said_since"}
    assert threading.main_thread() not in threads.values()


@pytest.mark.fault("hang")
def test_a_disk_that_hangs_fails_the_job_whose_log_lies_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard has seen it by then, and gives up: the worker must be able to end."""
    monkeypatch.setattr(runners, "READ_S", 0.02)
    over = threading.Event()
    monkeypatch.setattr(runners, "result_in", lambda _: over.wait(5))
    try:
        with pytest.raises(JobCrashed, match=r"reading its log took more than 0\.02 s"):
            answered(done(), tmp_path)
    finally:
        over.set()


@pytest.mark.parametrize("said", [b"not JSON\n", b"[]\n", b"null\n", b"[" * 100_000 + b"\n", b"\xff\xfe\n"])
@pytest.mark.fault("odd-answer")
def test_a_process_that_does_not_speak_as_a_runner_is_given_up(said: bytes, tmp_path: Path) -> None:
    with pytest.raises(RunnerDied, match="which is no message"):
        answered(said, tmp_path)
