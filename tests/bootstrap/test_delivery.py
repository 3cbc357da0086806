"""What one job's delivery leaves behind, whatever happens on its way.

The failure rules of the loop around it: `test_work_failures.py`.
"""

from __future__ import annotations

import dataclasses
import io
import random
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio
import pytest
from pydantic import JsonValue

from bootstrap import lease as lease_module
from bootstrap.delivery import PASS_DELAY
from bootstrap.partial import MOST_BYTES
from bootstrap.reports import Reports, tally
from bootstrap.runners import JobAnswer, JobCrashed, RunnerDied
from bootstrap.work import Work
from fleet.aws.failures import Throttled
from fleet.aws.queues import LeaseLost, Message
from fleet.evals.attempts import POISON, POISON_DEATHS
from fleet.evals.documents import EvalManifest, EventKind, Job, JobFailure, JobMessage
from tests.bootstrap import world as world_module
from tests.bootstrap.world import (
    EVAL,
    EVENTS,
    LAYOUT,
    WORK,
    FakeQueues,
    Script,
    VirtualTime,
    World,
    manifest_of,
    result_of,
)

T = TypeVar("T")

BUSY = Throttled(service="sqs", operation="SendMessageBatch", code="RequestThrottled", target=WORK, why="")


class Wide(World):
    """A world whose wall clock is its own, with named workers, whose jobs write a log as they go."""

    writes = b""
    idle_seconds = 0.0
    reports = Reports

    def worker(self, stop: anyio.Event, idle_seconds: float = 30) -> Work:
        made = super().worker(stop, self.idle_seconds or idle_seconds)
        number = len(self.workers) + 1
        made.deliveries = dataclasses.replace(
            made.deliveries,
            instance=f"i-{number}",
            worker=f"worker {number}",
            wall=lambda: self.time.now,
            reports=self.reports(
                self.queues, EVENTS, worker="run", instance="i-0", clockwork=made.deliveries.clockwork, say=print
            ),
        )
        return made

    async def run_job(self, manifest: EvalManifest, job: Job, folder: Path) -> JobAnswer:
        if self.writes:
            (folder / "log").mkdir()
            (folder / "log" / "a.eval").write_bytes(self.writes)
        return await super().run_job(manifest, job, folder)

    def messages(self) -> list[JobMessage]:
        return [JobMessage.read(held.body) for held in self.queues.held]

    def partial(self) -> list[str]:
        return [key for key in self.objects.held if "/partial/" in key]


def taken(world: World, times: int, **fields: int) -> None:
    """As if workers had taken the first job's message so often, and died."""
    first = world.queues.held[0]
    first.receives = times
    first.body = JobMessage.read(first.body).model_copy(update=fields).write()


def record_of(world: World, attempt: int = 1) -> JobFailure:
    return JobFailure.read(world.objects.held[LAYOUT.failure(EVAL, world.jobs[0], attempt)])


def test_a_job_s_model_calls_have_a_cost_where_inspect_had_prices() -> None:
    result = result_of(manifest_of(1).jobs[0])
    assert "cost" not in tally(result)
    usage = {"a": {"total_tokens": 7, "total_cost": 0.5}, "b": {"total_tokens": 2, "total_cost": None}}
    counts = tally(result.model_copy(update={"model_usage": usage}))
    assert (counts["tokens"], counts["cost"]) == (9, 0.5)


@pytest.mark.fault("job-fails")
def test_a_failure_is_recorded_with_what_was_said_and_who_ran_it(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    crash = JobCrashed(kind="SampleChanged", why="boom", said="Traceback\n  key sk-very-secret\nboom")
    world.scripts[world.jobs[0]] = Script(crashes=[crash])
    world.work()
    record = record_of(world)
    assert (record.kind, record.worker, record.instance) == ("SampleChanged", "worker 1", "i-1")
    assert record.log == "Traceback\n  key <OPENAI_API_KEY>\nboom"


def test_half_a_secret_is_none_in_a_record(tmp_path: Path) -> None:
    """The runner cuts what an error says, and of its output the end is taken."""
    world = Wide(tmp_path, 1)
    crash = JobCrashed(kind="SampleChanged", why="refused: sk-very-sec", said="very-secret\nTraceback")
    world.scripts[world.jobs[0]] = Script(crashes=[crash])
    world.work()
    record = record_of(world)
    assert (record.why, record.log) == ("refused: <OPENAI_API_KEY>", "<OPENAI_API_KEY>\nTraceback")
    assert not [line for line in world.said if "sk-very" in line]


@pytest.mark.parametrize(("received", "before"), [(POISON_DEATHS, 0), (1, POISON_DEATHS - 1), (3, 2)])
@pytest.mark.fault("poison-job")
def test_a_job_that_was_in_flight_in_too_many_deaths_is_given_up_unrun(
    tmp_path: Path, received: int, before: int
) -> None:
    world = Wide(tmp_path, 2)
    taken(world, received, deaths=before)
    world.work()
    record = record_of(world)
    assert (record.kind, record.final) == (POISON, True)
    assert "5 workers died, fell silent or ran out of memory or disk" in record.why
    assert world.ran == [world.jobs[1]]
    assert world.queues.held == []
    assert [event.detail["kind"] for event in world.queues.events if event.kind == "job_failed"] == [POISON]


@pytest.mark.fault("poison-job")
def test_one_death_less_is_another_attempt(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    taken(world, POISON_DEATHS - 2, deaths=1)
    world.work()
    assert world.results() == world.jobs


def test_a_job_that_is_done_is_never_poison(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.objects.held[LAYOUT.result(EVAL, world.jobs[0])] = b"another's"
    taken(world, 99)
    world.work()
    assert world.workers[0].outcomes == {"known": 1}
    assert world.queues.held == []


@pytest.mark.fault("given-back")
def test_what_is_given_back_on_purpose_counts_no_death(tmp_path: Path) -> None:
    """However often: SQS counts each time that a message is taken, so a fresh copy goes back."""
    world = Wide(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    for _ in range(POISON_DEATHS + 2):
        assert world.work(stop_at=world.time.now + 5) == ["stopped"]
    assert [(message.deaths, message.failures) for message in world.messages()] == [(0, 0)]
    world.scripts[world.jobs[0]] = Script(seconds=1)
    world.work()
    assert world.results() == world.jobs


@pytest.mark.fault("poison-job")
def test_deaths_go_along_with_a_failed_or_given_back_job(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    taken(world, 2, deaths=1)
    world.scripts[world.jobs[0]] = Script(seconds=3, crashes=[JobCrashed(kind="ConnectError", why="no")])
    world.work(stop_at=4)
    assert [(message.deaths, message.failures) for message in world.messages()] == [(3, 1)]


@pytest.mark.fault("given-back")
def test_a_job_whose_copy_cannot_be_sent_goes_back_all_the_same(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.queues.refuse["send"] = BUSY
    world.work(stop_at=5)
    assert world.waiting() == world.jobs


def test_a_bug_of_ours_counts_as_a_death(tmp_path: Path) -> None:
    """It may be met again with this job, and must not go round for ever."""
    world = Wide(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(crashes=[ZeroDivisionError()])  # type: ignore[list-item]
    with pytest.raises(BaseExceptionGroup):
        world.work()
    assert world.queues.held[0].receives == 1


class BoundQueues(FakeQueues):
    """Hides no message for longer than `bound` seconds after it was taken, as SQS after 12 hours."""

    bound = 200.0

    def __init__(self, time: VirtualTime, journal: list[str]) -> None:
        super().__init__(time, journal)
        self.until: dict[str, float] = {}
        self._dice = random.Random(7)  # noqa: S311

    def receive(self, url: str, *, most: int = 10, wait: int = 20) -> list[Message]:
        if self._dice.random() < 0.5:  # nobody is always the first: here, all poll in step
            return []
        found = super().receive(url, most=most, wait=wait)
        for held in self.held:
            if held.receipt in {message.receipt for message in found}:
                self.until[held.receipt] = self.time.now + self.bound
        return found

    def extend(self, url: str, receipt: str, seconds: int) -> None:
        self._ask("extend")
        if self.time.now + seconds > self.until[receipt]:
            raise LeaseLost(queue=WORK, code="InvalidParameterValue")
        super().extend(url, receipt, seconds)


@pytest.fixture
def bound_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "FakeQueues", BoundQueues)
    monkeypatch.setattr(lease_module, "LONGEST_HOLD", BoundQueues.bound - 10)


@pytest.mark.usefixtures("bound_hold")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.fault("twelve-hours")
def test_a_job_longer_than_sqs_holds_any_message_runs_once(tmp_path: Path, workers: int) -> None:
    """Its worker goes on under a fresh copy; others that see the copy first leave it to that one."""
    world = Wide(tmp_path, 1, slots=2)
    world.idle_seconds = 700
    world.scripts[world.jobs[0]] = Script(seconds=600)
    world.work(workers=workers)
    assert world.ran == world.jobs
    assert world.queues.held == []
    assert sum("12 hours" in line for line in world.said) >= 3
    passed_on = sum(worker.outcomes["held already"] for worker in world.workers[1:])
    assert (passed_on > 0) == (workers > 1)


@pytest.mark.usefixtures("bound_hold")
@pytest.mark.fault("twelve-hours")
def test_a_copy_whose_holder_is_gone_is_run_by_another(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    first = world.queues.held[0]
    first.body = JobMessage.read(first.body).model_copy(update={"holder": "i-gone", "leave_until": 60.0}).write()
    world.work()
    assert world.ran == world.jobs
    assert 60 <= world.time.now <= 60 + PASS_DELAY + 3 + 1 + 30 + 3
    assert world.objects.held[LAYOUT.result(EVAL, world.jobs[0])]


@pytest.mark.fault("lease-lapses")
def test_a_message_that_comes_again_while_its_job_runs_here_starts_nothing(tmp_path: Path) -> None:
    """The lease lapsed, and this worker has free slots: it holds the job again instead of running it twice."""
    world = Wide(tmp_path, 1, slots=3)
    world.scripts[world.jobs[0]] = Script(seconds=200)
    refused = world.queues.refuse
    world.at(1, lambda: refused.update(extend=BUSY))
    world.at(100, refused.clear)
    world.work()
    assert world.ran == world.jobs
    assert world.workers[0].outcomes["held already"] >= 1
    assert world.queues.held == [], "and it is the message that came again which is deleted"


@pytest.mark.fault("lease-lapses")
def test_two_messages_of_a_job_that_come_together_run_it_once(tmp_path: Path) -> None:
    """SQS took a message twice, as after a lost answer. Both are held, so that neither comes again."""
    world = Wide(tmp_path, 1, slots=3)
    world.queues.send(WORK, [world.queues.held[0].body])
    world.scripts[world.jobs[0]] = Script(seconds=200)
    world.work()
    assert world.ran == world.jobs
    assert world.workers[0].outcomes == {"done": 1, "held already": 1}
    assert world.queues.held == []


@pytest.mark.fault("given-back")
def test_a_job_of_two_messages_that_is_given_back_was_in_no_death(tmp_path: Path) -> None:
    """However long it ran, and by one message."""
    world = Wide(tmp_path, 1, slots=3)
    world.queues.send(WORK, [world.queues.held[0].body])
    world.scripts[world.jobs[0]] = Script(seconds=5000)
    world.work(stop_at=2000)
    assert [(message.deaths, message.failures) for message in world.messages()] == [(0, 0)]


@pytest.mark.fault("given-back")
@pytest.mark.parametrize("final", [False, True])
def test_a_worker_that_is_stopped_as_a_failure_is_settled_settles_it(tmp_path: Path, final: bool) -> None:
    """Else the job went back twice, or although it had failed for good."""
    world = Wide(tmp_path, 1)
    kind = "SampleChanged" if final else "Unlucky"
    world.scripts[world.jobs[0]] = Script(crashes=[JobCrashed(kind=kind, why="no")])
    put, send = world.objects.put, world.queues.send

    def put_and_stop(key: str, data: bytes | BinaryIO) -> None:
        put(key, data)
        if final:
            world.workers[0].stop.set()

    def send_and_stop(url: str, bodies: Sequence[str], delay: int = 0) -> None:
        send(url, bodies, delay)
        if url == WORK:
            world.workers[0].stop.set()

    world.objects.put = put_and_stop  # type: ignore[method-assign]
    world.queues.send = send_and_stop  # type: ignore[method-assign]
    assert world.work() == ["stopped"]
    assert record_of(world).final is final
    assert [message.failures for message in world.messages()] == ([] if final else [1])
    assert "job_failed" in world.queues.kinds()


class NoAnswer(VirtualTime):
    """SQS takes a job, and never says so."""

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        answer = await super().in_thread(call, *args)
        if call.__name__ == "send" and args[0] == WORK:
            await anyio.sleep_forever()
        return answer


@pytest.mark.fault("hang")
def test_a_failed_job_whose_queue_does_not_answer_keeps_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may be on the queue again isn't put there a second time: its message lapses."""
    monkeypatch.setattr(world_module, "VirtualTime", NoAnswer)
    monkeypatch.setattr("bootstrap.delivery.SETTLE_SECONDS", 0.5)
    world = Wide(tmp_path, 1)
    world.scripts[world.jobs[0]] = Script(crashes=[JobCrashed(kind="Unlucky", why="no")])
    world.work(stop_at=5)
    assert sorted(message.failures for message in world.messages()) == [0, 1]
    assert any("took longer than" in line for line in world.said)


class SlowToTell(Reports):
    """Events that take longer than a failed job is kept from coming again."""

    async def send(self, kind: EventKind, job: JobMessage | None = None, /, **detail: JsonValue) -> None:
        await super().send(kind, job, **detail)
        if kind == "job_failed":
            await self._clockwork.sleep(20)


def test_a_failed_job_that_comes_again_before_its_message_is_settled_is_run_after_it(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1, slots=3)
    world.reports = SlowToTell
    world.scripts[world.jobs[0]] = Script(crashes=[JobCrashed(kind="Unlucky", why="no")])
    world.work()
    assert world.ran == world.jobs
    assert [key for key in world.objects.held if "/failures/" in key] == [LAYOUT.failure(EVAL, world.jobs[0], 1)]
    assert world.queues.held == []


def closed_log() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("header.json", "{}")
    return content.getvalue()


@pytest.mark.fault("partial-log")
def test_what_there_was_of_a_log_is_kept_after_the_job_went_back(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = closed_log()
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.work(stop_at=5)
    (key,) = world.partial()
    assert key.startswith(f"{LAYOUT.eval(EVAL)}/partial/{world.jobs[0]}/")
    assert key.endswith("-i-1.eval")
    assert world.objects.held[key] == world.writes
    assert world.journal.index("done") < world.journal.index(f"put {key}"), "nobody waits for it"
    assert (world.results(), world.waiting()) == ([], world.jobs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("partial-log")
def test_a_runner_that_is_told_to_end_has_some_seconds_to_close_its_log(tmp_path: Path) -> None:
    """Inspect writes the samples that are done as it unwinds; one that doesn't is not waited for much longer."""
    world = Wide(tmp_path, 2)
    world.writes = b"PK begun"
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)

    def close() -> None:
        (first, *_) = sorted(tmp_path.glob("*/log/a.eval"))
        first.write_bytes(closed_log())

    world.at(8, close)
    world.work(stop_at=5)
    assert {world.objects.held[key] for key in world.partial()} == {b"PK begun", closed_log()}
    assert 13 <= world.time.now <= 17


@pytest.mark.fault("partial-log")
def test_a_log_of_a_runner_that_died_is_kept_too_and_its_failure_counts(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = b"PK begun"
    death = RunnerDied(how="killed", log="/nowhere", said="the last words")
    world.scripts[world.jobs[0]] = Script(crashes=[death])
    world.work()
    assert record_of(world).log == "the last words"
    assert record_of(world).kind == "RunnerDied"
    assert len(world.partial()) == 1
    assert world.results() == world.jobs


@pytest.mark.fault("partial-log")
def test_no_more_is_kept_of_a_log_than_is_bearable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bootstrap.partial.MOST_BYTES", 4)
    assert MOST_BYTES > 4
    world = Wide(tmp_path, 1)
    world.writes = closed_log()
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.work(stop_at=5)
    assert world.partial() == []
    assert any("is not kept" in line for line in world.said)


@pytest.mark.fault("partial-log")
def test_a_partial_log_that_cannot_be_read_costs_nothing_else(tmp_path: Path) -> None:
    world = Wide(tmp_path / "jobs", 1)
    world.writes = closed_log()
    world.objects.refuse["put"] = OSError(5, "Input/output error")  # type: ignore[assignment]
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    assert world.work(stop_at=5) == ["stopped"]
    assert world.waiting() == world.jobs
    assert any("is not kept: [Errno 5]" in line for line in world.said)


@pytest.mark.fault("partial-log")
def test_a_bucket_that_refuses_a_partial_log_costs_nothing_else(tmp_path: Path) -> None:
    world = Wide(tmp_path, 1)
    world.writes = closed_log()
    world.scripts[world.jobs[0]] = Script(seconds=1000)
    world.objects.refuse["put"] = BUSY
    assert world.work(stop_at=5) == ["stopped"]
    assert world.waiting() == world.jobs
