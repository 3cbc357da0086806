"""A job whose runner is done: what keeps its result from getting lost on the way, and the event loop from standing still."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio
import pytest

from bootstrap.delivery import LONGEST_PUT_DELAY, PUT_SECONDS
from bootstrap.runners import RESULT_UNUSABLE, JobAnswer
from bootstrap.work import POLL_SECONDS
from fleet.aws.failures import AwsRefused, Unreachable
from fleet.evals.documents import EvalManifest, Job, JobFailure
from tests.bootstrap import world as world_module
from tests.bootstrap.world import EVAL, LAYOUT, Script, VirtualTime, World

T = TypeVar("T")

AWAY = Unreachable(service="s3", operation="", code="EndpointConnectionError", target="", why="no route")
BROKEN = AwsRefused(service="s3", operation="PutObject", code="InternalError", target="", why="We encountered an error")


@pytest.mark.fault("result-not-put")
@pytest.mark.parametrize("refusal", [AWAY, BROKEN], ids=["no answer", "a fault of S3's"])
def test_a_result_that_s3_does_not_take_is_put_later_and_its_job_runs_once(refusal: AwsRefused, tmp_path: Path) -> None:
    """For twenty minutes; its lease is kept meanwhile, and other jobs go on."""
    world = World(tmp_path, 2, slots=1)
    world.objects.refuse["put_new"] = refusal
    world.at(1200, world.objects.refuse.clear)
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
    assert world.ran == world.jobs
    assert world.queues.held == []
    assert not [key for key in world.objects.held if key.startswith(LAYOUT.failures(EVAL))]
    assert 1200 <= world.time.now <= 1200 + LONGEST_PUT_DELAY + 40, "it ends as it would, soon after"
    assert 30 < len([line for line in world.said if "is put again in" in line]) < 60, "less and less often"


@pytest.mark.fault("result-not-put")
def test_a_result_that_s3_takes_in_no_time_is_given_up_and_its_job_run_again(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.objects.refuse["put_new"] = AWAY
    world.at(PUT_SECONDS + 5, world.objects.refuse.clear)
    assert world.work() == ["idle"]
    assert world.ran == world.jobs * 2
    assert world.results() == world.jobs
    [*_, started] = [event for event in world.queues.events if event.kind == "job_started"]
    assert started.detail["failures"] == 0, "it was no fault of the job"


@pytest.mark.fault("result-not-put")
def test_a_worker_that_is_told_to_stop_has_one_more_try_for_what_is_finished(tmp_path: Path) -> None:
    """S3 is back a moment before the stop, while the worker waits for its next try."""
    world = World(tmp_path, 2)
    world.objects.refuse["put_new"] = AWAY
    world.at(95, world.objects.refuse.clear)
    world.scripts[world.jobs[1]] = Script(seconds=1000)
    assert world.work(stop_at=100) == ["stopped"]
    assert world.results() == world.jobs[:1]
    assert world.waiting() == world.jobs[1:]
    assert "job_done" in world.queues.kinds()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("result-not-put")
def test_a_worker_that_is_told_to_stop_gives_back_what_s3_does_not_take(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.objects.refuse["put_new"] = AWAY
    assert world.work(stop_at=100) == ["stopped"]
    assert world.waiting() == world.jobs
    assert world.time.now <= 100 + POLL_SECONDS


@pytest.mark.fault("result-not-put")
def test_a_worker_that_is_told_to_stop_while_s3_takes_a_result_tells_it_once(tmp_path: Path) -> None:
    """And doesn't take what it has just put for another's."""
    world = World(tmp_path, 1)
    put = world.objects.put_new

    def put_new(key: str, data: bytes | BinaryIO) -> bool:
        world.workers[0].stop.set()
        return put(key, data)

    world.objects.put_new = put_new  # type: ignore[method-assign]
    assert world.work() == ["stopped"]
    assert world.results() == world.jobs
    assert world.queues.held == []
    assert world.queues.kinds().count("job_done") == 1
    assert not [line for line in world.said if "has a result already" in line]


class Swapping(World):
    """A world whose job puts a link in the place of its log once its runner has answered."""

    secret: Path

    async def run_job(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        answer = await super().run_job(manifest, job, folder)
        if job.job == self.jobs[0]:
            answer.log.unlink()
            answer.log.symlink_to(self.secret)
        return answer


@pytest.mark.fault("planted-link")
def test_a_link_in_a_results_place_is_no_result_and_ends_nobody(tmp_path: Path) -> None:
    world = Swapping(tmp_path / "jobs", 2)
    world.secret = tmp_path / "secret"
    world.secret.write_text("root's own")
    assert world.work() == ["idle"]
    assert world.results() == world.jobs[1:]
    assert b"root's own" not in world.objects.held.values()
    record = JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], 3)])
    assert (record.kind, record.final) == (RESULT_UNUSABLE, True)


class Threads(VirtualTime):
    """Knows whether what runs is in a thread."""

    inside = 0

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        def within(*args: Any) -> T:
            with self.off_the_loop():
                return call(*args)

        return await super().in_thread(within, *args)

    @contextmanager
    def off_the_loop(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


class Writing(World):
    """A world whose jobs' own writes don't count: they are another process's."""

    async def run_job(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        assert isinstance(self.time, Threads)
        with self.time.off_the_loop():
            (folder / "log").mkdir()
            (folder / "log" / "a.eval").write_bytes(b"PK begun")
            (folder / f"{job.job}.eval").touch()
        await self.time.sleep(1000 if job.job == self.jobs[1] else 1)
        with self.time.off_the_loop():
            return await super().run_job(manifest, job, folder)


class Hanging(VirtualTime):
    """A disk that hangs in one of the calls that wait for it."""

    hangs = ""

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        if self.hangs and call.__name__ == self.hangs:
            assert anyio.current_effective_deadline() < math.inf, "its thread is waited for without end"
            await anyio.sleep_forever()
        return await super().in_thread(call, *args)


@pytest.mark.fault("hang")
def test_a_disk_that_hangs_under_a_finished_log_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hang for good; the other jobs of this worker, and its end, must not wait for that."""
    monkeypatch.setattr(world_module, "VirtualTime", Hanging)
    monkeypatch.setattr("bootstrap.delivery.ONE_PUT_SECONDS", 0.01)
    world = World(tmp_path, 1)
    assert isinstance(world.time, Hanging)
    world.time.hangs = "_put_log"
    assert world.work() == ["idle"]
    record = JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], 1)])
    assert (record.kind, record.final) == (RESULT_UNUSABLE, False)
    assert "putting it took more than 0.01 s" in record.why


@pytest.mark.fault("hang")
def test_a_disk_that_hangs_before_a_job_began_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "VirtualTime", Hanging)
    monkeypatch.setattr("bootstrap.delivery.FOLDER_SECONDS", 0.0)
    world = World(tmp_path, 1)
    assert isinstance(world.time, Hanging)
    world.time.hangs = "_new_folder"
    assert world.work(stop_at=5) == ["stopped"]
    assert world.waiting() == world.jobs
    assert (world.ran, world.workers[0].held) == ([], True)


FILES = {"open", "os.listdir", "os.mkdir", "os.scandir", "shutil.rmtree", "tempfile.mkdtemp"}
"""What Python tells its audit hooks of."""


def test_no_file_of_a_job_is_touched_in_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is slow, or a folder of a million files, must not keep the leases of other jobs from being renewed."""
    monkeypatch.setattr(world_module, "VirtualTime", Threads)
    world = Writing(tmp_path / "jobs", 2)
    time = world.time
    assert isinstance(time, Threads)
    blocking: list[tuple[str, str]] = []
    listens = True

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if listens and event in FILES and not time.inside:
            path = str(args[0])
            if path.startswith(str(tmp_path)) or not path.startswith("/"):
                blocking.append((event, path))

    sys.addaudithook(hear)  # there is no taking it back
    try:
        world.work(stop_at=5)
    finally:
        listens = False
    assert world.results() == world.jobs[:1]
    assert [key for key in world.objects.held if "/partial/" in key], "the other one was kept in part"
    assert blocking == []
