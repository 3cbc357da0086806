"""The watch goes on over bad moments, and takes in a bounded number of events."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from prefect.logging import disable_run_logger

from fleet.aws.failures import AwsRefused, Denied
from fleet.aws.queues import Message
from fleet.evals.documents import WorkerEvent
from fleet.evals.progress import EvalTally, RunTally
from flows.watch import EVENTS_A_LOOK, PATIENCE_S, CancelledByPerson, Watch, watching


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Looks:
    """A watch that fails as it is told, and then sees the same thing for ever."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)

    def look(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return "progress", "step"


def refused(kind: type[AwsRefused] = AwsRefused) -> AwsRefused:
    return kind(service="sqs", operation="ReceiveMessage", code="InternalError", target="", why="")


def first_look(looks: Looks, clock: Clock, *, cancelled: bool = False) -> Any:
    with disable_run_logger():
        return next(watching(cast("Watch", looks), lambda: cancelled, clock=clock, sleep=clock.sleep))


def test_bad_moments_of_aws_and_prefect_end_no_run() -> None:
    clock = Clock()
    assert first_look(Looks(refused(), httpx.ConnectError("no"), refused()), clock) == ("progress", "step")
    assert clock.now > 0


def test_what_fails_for_minutes_comes_through() -> None:
    clock = Clock()
    with pytest.raises(AwsRefused):
        first_look(Looks(*[refused()] * 1000), clock)
    assert PATIENCE_S <= clock.now < PATIENCE_S + 10


def test_what_nobody_may_do_comes_through_at_once() -> None:
    clock = Clock()
    with pytest.raises(Denied):
        first_look(Looks(refused(Denied)), clock)
    assert clock.now == 0


def test_a_cancelled_run_is_not_looked_at_again() -> None:
    with pytest.raises(CancelledByPerson, match="results so far are kept"):
        first_look(Looks(), Clock(), cancelled=True)


class FakeSite:
    """A queue of events that never ends, and who hears of what was fetched."""

    def __init__(self, events: list[str]) -> None:
        self.waiting = events
        self.done: list[str] = []
        self.fetches: list[tuple[str, str]] = []
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


def a_watch(site: FakeSite) -> Watch:
    tally = RunTally(evals={"e": EvalTally(eval_id="e", task="t", model="m", jobs={"j": 1})})
    return Watch(
        site=cast("Any", site),
        tally=tally,
        events="events",
        workers=[],
        failures={},
        price=None,
        handout=cast("Any", site),
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
