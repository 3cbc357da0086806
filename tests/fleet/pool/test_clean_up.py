"""The end of a run: the order, the patience, and what is left when something doesn't go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest

from fleet.aws.failures import AwsRefused
from fleet.evals.progress import WorkerFacts, WorkerPhase
from fleet.evals.site import Site
from fleet.pool.clean_up import SILENCE_S, Created, clean_up, is_silence


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeWorkers:
    """Workers that end by themselves at `ends`, or `dying` seconds after they were asked to."""

    clock: Clock
    ends: dict[UUID, float]
    dying: float = 1.0
    stopped: dict[UUID, float] = field(default_factory=dict)
    unrecorded: list[UUID] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    well_from: float = float("inf")
    """When what is broken works again."""

    def of_run(self, run: str) -> list[UUID]:
        self._ask("of_run")
        return [*self.ends, *self.unrecorded]

    def look_at(self, run_ids: Sequence[UUID]) -> list[WorkerFacts]:
        self._ask("look_at")
        return [self._facts(run_id) for run_id in run_ids]

    def stop(self, run_ids: Sequence[UUID], *, why: str) -> None:
        self._ask("stop")
        self.stopped.update(dict.fromkeys(run_ids, self.clock.now))

    def _ask(self, what: str) -> None:
        if what in self.broken and self.clock.now < self.well_from:
            raise httpx.ConnectError("no answer")

    def _facts(self, run_id: UUID) -> WorkerFacts:
        phase, over = WorkerPhase.WORKING, False
        if run_id in self.stopped:
            phase, over = WorkerPhase.STOPPED, self.clock.now >= self.stopped[run_id] + self.dying
        elif self.clock.now >= self.ends.get(run_id, float("inf")):
            phase, over = WorkerPhase.ENDED, True
        return WorkerFacts(run_id=str(run_id), name="w", phase=phase, instance="i-1", why="", live_seconds=0, over=over)


@dataclass
class FakeSite:
    """Queues and parameters by name; `refuses` says what AWS won't delete."""

    existing: set[str]
    refuses: set[str] = field(default_factory=set)
    unlisted: set[str] = field(default_factory=set)
    clock: Clock = field(default_factory=Clock)
    deleted_at: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    prefix: str = "p"

    @property
    def queues(self) -> FakeSite:
        return self

    @property
    def parameters(self) -> FakeSite:
        return self

    def secrets_of(self, run: str) -> str:
        return f"/path/{run}"

    def find(self, path: str) -> list[str]:
        return sorted(name for name in self.existing - self.unlisted if name.startswith(path))

    def delete(self, names: str | list[str]) -> None:
        for name in [names] if isinstance(names, str) else names:
            self.log.append(name)
            if name in self.refuses:
                raise AwsRefused(service="sqs", operation="Delete", target=name, code="Denied", why="no")
            self.existing.discard(name)
            self.deleted_at.setdefault(name, self.clock.now)


class FakeLock:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def release(self) -> None:
        self.log.append("lock")


def end_of_run(
    site: FakeSite, ends: dict[UUID, float], *, grace: float, **changes: Any
) -> tuple[list[str], FakeWorkers, Clock]:
    clock = site.clock
    workers = FakeWorkers(clock, ends, **changes)
    created = Created(
        run="r",
        workers=list(ends),
        secrets="/path/r",
        written=lambda: ["/path/r/i-1", "/path/r/i-1.env.linux"],
        intake="work",
        queues=["dead", "work", "events"],
        locks=[cast("Any", FakeLock(site.log))],
    )
    left = clean_up(
        cast("Site", site),
        created,
        workers,
        grace=grace,
        why="over",
        last_words=lambda: site.log.append(f"last words at {clock.now:g}"),
        clock=clock,
        sleep=clock.sleep,
    )
    return left, workers, clock


def everything() -> set[str]:
    return {"work", "events", "dead", "/path/r/i-1", "/path/r/i-1.env.linux", "/path/r/i-2", "/path/other/i-3"}


def test_a_finished_run_lets_its_workers_end_and_leaves_nothing() -> None:
    site = FakeSite(everything())
    left, workers, _ = end_of_run(site, {uuid4(): 3.0}, grace=20)
    assert left == []
    assert workers.stopped == {}
    assert site.existing == {"/path/other/i-3"}


@pytest.mark.fault("cancelled")
def test_the_order_is_intake_secrets_workers_queues_locks() -> None:
    site = FakeSite(everything())
    end_of_run(site, {uuid4(): 0.0}, grace=5)
    assert list(dict.fromkeys(site.log)) == [
        "work",
        "/path/r/i-1",
        "/path/r/i-1.env.linux",
        "/path/r/i-2",
        "last words at 0",
        "dead",
        "events",
        "lock",
    ]


def test_secrets_go_before_anything_is_waited_for() -> None:
    """A process pool kills a cancelled run after 30 seconds, done or not."""
    site = FakeSite(everything())
    _, _, clock = end_of_run(site, {uuid4(): 1000.0}, grace=0, dying=10_000)
    assert clock.now < 25
    assert site.deleted_at["/path/r/i-1"] == 0.0


def test_a_secret_that_no_listing_shows_yet_is_deleted_by_its_name() -> None:
    """SSM's listings lag its writes."""
    site = FakeSite(everything(), unlisted={"/path/r/i-1", "/path/r/i-1.env.linux"})
    left, _, _ = end_of_run(site, {uuid4(): 0.0}, grace=5)
    assert left == []
    assert site.existing == {"/path/other/i-3"}


@pytest.mark.parametrize("broken", ["of_run", "look_at", "stop"])
@pytest.mark.fault("no-answer-cleaning-up")
def test_a_prefect_server_that_fails_keeps_nothing_of_aws(broken: str) -> None:
    """The outage that ended the run may still be on. SSM's listings lag its writes, also then."""
    site = FakeSite(everything(), unlisted={"/path/r/i-1", "/path/r/i-1.env.linux"})
    left, _, clock = end_of_run(site, {uuid4(): 1000.0}, grace=0, broken={broken})
    [workers] = left
    assert workers.startswith("the run's workers (1 known): the Prefect server doesn't answer (no answer)")
    assert site.existing == {"/path/other/i-3"}
    assert site.log[-1] == "lock"
    assert clock.now < 2 * SILENCE_S, "it is asked for so long in all, and not for each question"


@pytest.mark.fault("no-answer-cleaning-up")
def test_a_prefect_server_that_comes_back_in_time_is_told() -> None:
    worker = uuid4()
    site = FakeSite(everything())
    left, workers, _ = end_of_run(site, {worker: 1000.0}, grace=0, broken={"of_run"}, well_from=SILENCE_S / 2)
    assert left == []
    assert worker in workers.stopped


@pytest.mark.parametrize(("status", "silent"), [(500, True), (503, True), (429, True), (404, False), (403, False)])
@pytest.mark.fault("no-answer-cleaning-up")
def test_an_answer_that_refuses_is_no_silence(status: int, silent: bool) -> None:
    request = httpx.Request("GET", "http://server")
    error = httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))
    assert is_silence(error) is silent


def test_a_cancelled_run_stops_its_workers_at_once() -> None:
    worker = uuid4()
    _, workers, clock = end_of_run(FakeSite(everything()), {worker: 1000.0}, grace=0)
    assert workers.stopped == {worker: 0.0}
    assert clock.now < 3


@pytest.mark.fault("cancelled")
def test_a_worker_that_nobody_wrote_down_is_stopped_too() -> None:
    """The starter may die between Prefect's answer and its own note."""
    stray = uuid4()
    _, workers, _ = end_of_run(FakeSite(everything()), {}, grace=0, unrecorded=[stray])
    assert list(workers.stopped) == [stray]


def test_an_instance_that_stays_is_named_and_the_rest_goes_on() -> None:
    site = FakeSite(everything())
    left, _, _ = end_of_run(site, {uuid4(): 1000.0}, grace=0, dying=10_000)
    assert len(left) == 1
    assert "instance i-1" in left[0]
    assert site.existing == {"/path/other/i-3"}


@pytest.mark.fault("cancelled")
def test_a_step_that_is_refused_does_not_keep_the_next_from_its_work() -> None:
    site = FakeSite(everything(), refuses={"/path/r/i-1", "events"})
    left, _, _ = end_of_run(site, {uuid4(): 0.0}, grace=0)
    assert len(left) == 3
    assert site.existing >= {"/path/r/i-1", "events"}
    assert "dead" not in site.existing
    assert site.log[-1] == "lock"
