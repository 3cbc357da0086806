"""The watch takes in a bounded number of events, and decides by what it has seen."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.logging import disable_run_logger

from fleet.aws.objects import StoredObject
from fleet.aws.queues import Message
from fleet.evals.documents import WorkerEvent
from fleet.evals.layout import Layout
from fleet.evals.progress import EvalTally, RunTally, WorkerFacts, WorkerPhase
from fleet.evals.steps import LAUNCH_S, Finished, GoOn, Limits, Step, Stop, TopUp
from flows import watch as watch_module
from flows.watch import EVENTS_A_LOOK, LIST_S, LISTING_KEYS, Watch
from tests.flows.clock import Clock


class FakeSite:
    """A queue of events that never ends, and who hears of what was fetched."""

    def __init__(self, events: list[str]) -> None:
        self.waiting = events
        self.done: list[str] = []
        self.fetches: list[tuple[str, str]] = []
        self.finished: list[str] = []
        self.queues = self

    def receive(self, url: str, *, wait: int) -> list[Message]:
        batch, self.waiting = self.waiting[:10], self.waiting[10:]
        return [
            Message(body=body, receipt=f"r{len(self.waiting)}-{place}", receives=1) for place, body in enumerate(batch)
        ]

    def done_all(self, url: str, receipts: list[str]) -> None:
        self.done += receipts

    def fetched(self, instance: str, parameter: str) -> None:
        self.fetches.append((instance, parameter))

    def working(self, instance: str) -> None:
        self.fetches.append((instance, "all"))

    @property
    def objects(self) -> FakeSite:
        return self

    @property
    def layout(self) -> Layout:
        return Layout("p")

    def list(self, prefix: str) -> list[StoredObject]:
        return [StoredObject(key=f"{prefix}{job}.eval", size=1, etag="") for job in self.finished]


def a_watch(site: FakeSite, *jobs: str, **more: Any) -> Watch:
    tally = RunTally(evals={"e": EvalTally(eval_id="e", task="t", model="m", jobs=dict.fromkeys(jobs or ("j",), 1))})
    return Watch(
        site=cast("Any", site),
        tally=tally,
        events="events",
        workers=[],
        failures={},
        prices=(),
        handout=cast("Any", site),
        **more,
    )


def an_event(kind: str = "beat", instance: str = "i-1", **detail: str) -> str:
    event = {"kind": kind, "worker": "w", "instance": instance, "at": 0.0, "detail": detail}
    return WorkerEvent.model_validate(event).write()


def test_a_busy_fleet_does_not_keep_its_controller() -> None:
    site = FakeSite([an_event()] * 3 * EVENTS_A_LOOK)
    a_watch(site).hear()
    assert len(site.done) == EVENTS_A_LOOK


def test_an_event_of_another_release_is_passed_over() -> None:
    site = FakeSite(["{}", '{"version": 9}', an_event("secrets_fetched", parameter="/path/i-1")])
    a_watch(site).hear()
    assert len(site.done) == 3
    assert site.fetches == [("i-1", "/path/i-1")]


def test_what_was_fetched_is_told_by_instance_and_parameter() -> None:
    site = FakeSite([an_event("secrets_fetched", "i-2", parameter="/path/i-2.env.linux"), an_event("beat", "i-3")])
    a_watch(site).hear()
    assert site.fetches == [("i-2", "/path/i-2.env.linux")]


def test_an_instance_that_takes_jobs_has_fetched_all() -> None:
    site = FakeSite([an_event("job_started", "i-2"), an_event("job_started", "i-2")])
    a_watch(site).hear()
    assert site.fetches == [("i-2", "all")] * 2


class Spoiled:
    """Looks at results: each is no good the first time."""

    behind = False

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.rounds = 0

    def taken_back(self, _: str, results: dict[str, StoredObject]) -> dict[str, str]:
        fresh = results.keys() - self.seen
        self.seen |= fresh
        self.rounds += bool(fresh)
        return dict.fromkeys(fresh, "it is empty")


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[WorkerPhase]:
    """What Prefect says of the workers; a test changes it as it goes."""
    said: list[WorkerPhase] = []

    class Workers:
        @staticmethod
        def look_at(_: object) -> list[WorkerFacts]:
            return [
                WorkerFacts(run_id=f"w{n}", name="w", phase=phase, instance="i-1", why="gone", live_seconds=0)
                for n, phase in enumerate(said)
            ]

    monkeypatch.setattr(watch_module, "workers_of", Workers)
    return said


@pytest.mark.fault("stall")
def test_a_stall_is_counted_from_the_first_ready_worker_and_from_each_finished_job(phases: list[WorkerPhase]) -> None:
    clock, site = Clock(), FakeSite([])
    watch = a_watch(site, "j1", "j2", limits=Limits(stall_hours=4), clock=clock)
    phases.append(WorkerPhase.BOOTING)

    def after(hours: float) -> Step:
        clock.sleep(hours * 3600)
        return watch.look()[1]

    assert after(9) == GoOn(), "nobody could have finished anything"
    phases[0] = WorkerPhase.WORKING
    assert after(9) == GoOn()
    assert after(3) == GoOn()
    site.finished.append("j1")
    assert after(3) == GoOn()
    assert after(3) == GoOn()
    step = after(1)
    assert isinstance(step, Stop)
    assert step.why.startswith("no job was finished for 4 hours")


@pytest.mark.fault("limit-reached")
def test_a_result_that_came_a_moment_before_a_stop_counts(phases: list[WorkerPhase]) -> None:
    """Listings are made now and then; a decision to end the run is not made by an old one."""
    clock, site = Clock(), FakeSite([])
    watch = a_watch(site, "j1", "j2", limits=Limits(stall_hours=4), clock=clock)
    phases.append(WorkerPhase.WORKING)
    watch.look()
    clock.sleep(4 * 3600)
    watch._listed = clock.now
    site.finished.append("j1")
    assert watch.look()[1] == GoOn()


@pytest.mark.fault("no-workers")
def test_the_last_word_of_a_worker_is_heard_before_the_run_is_given_up(phases: list[WorkerPhase]) -> None:
    """It may come between the look at the events and the look at the workers."""

    class Late(FakeSite):
        def receive(self, url: str, *, wait: int) -> list[Message]:
            heard = super().receive(url, wait=wait)
            if len(phases) == 1 and not self.done:
                self.waiting = [ended]
                phases[0] = WorkerPhase.ENDED
            return heard

    ended = WorkerEvent(kind="ended", worker="w0", instance="i-1", at=0.0, detail={"reason": "interrupted"}).write()
    watch = a_watch(Late([]), clock=Clock())
    phases.append(WorkerPhase.WORKING)
    assert watch.look()[1] == TopUp(1)


@pytest.mark.fault("dead-letter")
def test_a_job_that_sqs_put_aside_ends_the_run_instead_of_keeping_it_open(
    phases: list[WorkerPhase], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead: list[str] = ["SQS put aside the message of job j"]

    class Records:
        def final(self, _: object) -> dict[str, str]:
            return {} if dead else {"j": "DeadLetter: so it is"}

    def take_in(_site: object, queue: str, _evals: object) -> list[str]:
        assert queue == "dead"
        return [dead.pop()] if dead else []

    monkeypatch.setattr(watch_module, "take_in", take_in)
    phases.append(WorkerPhase.WORKING)
    watch = a_watch(FakeSite([]), clock=Clock(), dead="dead")
    watch.failures = {"e": cast("Any", Records())}
    with disable_run_logger():
        assert watch.look()[1] == Finished()
    assert watch.tally.evals["e"].failed == {"j": "DeadLetter: so it is"}


@pytest.mark.fault("no-workers")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("the work pool ec2 is paused", "the work pool ec2 is paused. Results are kept"),
        ("", "is a worker of the pool running, and not paused? Results are kept"),
        (httpx.ConnectError("no"), "is a worker of the pool running, and not paused? Results are kept"),
    ],
    ids=["Prefect knows why", "it shows nothing", "it doesn't answer"],
)
def test_where_nobody_launches_prefect_is_asked_why(
    answer: str | Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, clock = uuid4(), Clock()
    waiting = WorkerFacts(
        str(run), "w", WorkerPhase.LAUNCHING, instance=None, why="", live_seconds=0, age_seconds=LAUNCH_S + 1
    )

    def hold_up(asked: UUID) -> str:
        assert asked == run
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(watch_module, "hold_up", hold_up)
    monkeypatch.setattr("fleet.pool.runs.look_at", lambda _: [waiting])
    step = a_watch(FakeSite([]), clock=clock).look()[1]
    assert isinstance(step, Stop)
    assert step.why.startswith(f"no instance was launched within 15 minutes: {said}")


@pytest.mark.fault("result-damaged")
def test_a_run_is_not_over_while_a_result_is_no_good(phases: list[WorkerPhase]) -> None:
    """Its job runs again, on an instance in place of those that ended meanwhile if it must."""
    clock, site = Clock(), FakeSite([])
    watch = a_watch(site, "j1", "j2", clock=clock, checks=Spoiled())
    phases.append(WorkerPhase.ENDED)
    site.finished += ["j1", "j2"]
    with disable_run_logger():
        assert watch.look()[1] == TopUp(1)
        watch.replaced = 1
        phases.append(WorkerPhase.WORKING)
        site.finished.remove("j2")
        clock.sleep(LIST_S)
        assert watch.look()[1] == GoOn()
        assert watch.tally.evals["e"].open_jobs == ["j2"]
        site.finished.append("j2")
        clock.sleep(LIST_S)
        assert watch.look()[1] == Finished()


@pytest.mark.fault("result-damaged")
def test_a_run_is_not_over_while_a_result_is_yet_to_be_looked_at(phases: list[WorkerPhase]) -> None:
    """And the next look doesn't wait for the time of a listing."""

    class OneALook(Spoiled):
        def taken_back(self, _: str, results: dict[str, StoredObject]) -> dict[str, str]:
            fresh = sorted(results.keys() - self.seen)
            self.seen |= set(fresh[:1])
            self.behind = len(fresh) > 1
            return {}

    site = FakeSite([])
    site.finished += [f"j{number}" for number in range(4)]
    watch = a_watch(site, *site.finished, clock=Clock(), checks=OneALook())
    with disable_run_logger():
        assert [watch.look()[1], watch.look()[1]] == [GoOn(), Finished()]


def test_the_results_of_a_large_eval_are_left_to_the_merge(phases: list[WorkerPhase]) -> None:
    """A look at each of a hundred thousand would take longer than it is worth."""
    jobs = [f"j{number}" for number in range(LISTING_KEYS + 1)]
    site = FakeSite([])
    site.finished += jobs
    assert a_watch(site, *jobs, clock=Clock(), checks=Spoiled()).look()[1] == Finished()
