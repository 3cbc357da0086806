"""What one job's delivery leaves behind, whatever happens on its way.

The failure rules of the loop around it: `test_work_failures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import anyio
import pytest
from pydantic import JsonValue

from bootstrap.reports import Reports, tally
from bootstrap.runners import JobCrashed
from fleet.evals.attempts import POISON, POISON_DEATHS
from fleet.evals.documents import EventKind, JobMessage
from tests.bootstrap import world as world_module
from tests.bootstrap.wide_world import BUSY, Wide, record_of, taken
from tests.bootstrap.world import EVAL, LAYOUT, WORK, Script, VirtualTime, manifest_of, result_of

T = TypeVar("T")


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
