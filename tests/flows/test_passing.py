"""Which failures of a step are begun again, and for how long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.logging import disable_run_logger
from prefect.states import Failed

from fleet.aws.failures import AwsRefused, Denied, Throttled, Unreachable
from fleet.errors import FleetError
from fleet.evals.listener import Nobody, listener
from fleet.evals.lock import LockHeld
from fleet.pool import runs
from flows import passing, run
from flows.check_ami import look
from flows.collect_results import merge_eval, store_log
from flows.launch_fleet import upload_code
from flows.prepare import prepare, send_owed
from flows.run_eval import identify, make_estimate
from flows.run_on_hawk import collect_logs
from flows.watch import PATIENCE_S


def an_error(kind: type[AwsRefused], code: str) -> AwsRefused:
    return kind(service="s3", operation="PutObject", code=code, target="b", why="")


class Follower(Nobody):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def told() -> Any:
    follower = Follower()
    token = listener.set(follower)
    yield follower.lines
    listener.reset(token)


class Step:
    """One task run that fails again and again, at moments of a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.may_pass = passing.MayPass(clock=lambda: self.now)
        self.run: Any = SimpleNamespace(id=uuid4())

    def fails(self, error: FleetError, *, after: float = 0.0) -> bool:
        """Whether it is begun again after this failure, so many seconds after the last one."""
        self.now += after
        with disable_run_logger():
            return self.may_pass(SimpleNamespace(name="prepare"), self.run, Failed(data=error))


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    monkeypatch.setattr(passing, "asked_to_end", lambda: False)
    return Step()


BUSY = an_error(Throttled, "SlowDown")


@pytest.mark.fault("no-answer")
@pytest.mark.parametrize(
    "error",
    [
        BUSY,
        an_error(Unreachable, "EndpointConnectionError"),
        an_error(AwsRefused, "InternalError"),
        an_error(AwsRefused, "503"),
        an_error(AwsRefused, "504"),
        an_error(AwsRefused, "RequestTimeout"),
    ],
    ids=lambda error: error.code,
)
def test_what_time_mends_is_begun_again_for_five_minutes_and_told_once(
    error: AwsRefused, step: Step, told: list[str]
) -> None:
    assert step.fails(error)
    assert step.fails(error, after=PATIENCE_S - 1)
    assert not step.fails(error, after=1)
    assert told == [f"prepare: {error}. It is tried again, for 5 minutes at most"]


@pytest.mark.fault("no-answer")
def test_the_last_call_of_a_long_step_has_its_five_minutes_too(step: Step, told: list[str]) -> None:
    """Patience counts from the trouble: a merge of an hour that S3 refuses at its end is not lost at once."""
    assert step.fails(BUSY, after=3600)
    assert step.fails(BUSY, after=3600), "what it met then was another trouble"
    assert len(told) == 2


@pytest.mark.parametrize(
    "error",
    [
        an_error(Denied, "AccessDenied"),
        an_error(AwsRefused, "NoSuchBucket"),
        LockHeld(eval_id="e", run="r", owner="ada", since="now", seconds=1, pid=None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_does_not_is_said_at_once(error: FleetError, step: Step, told: list[str]) -> None:
    assert not step.fails(error)
    assert told == []


def test_nor_is_anything_of_a_run_that_a_person_has_cancelled(
    step: Step, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "asked_to_end", lambda: True)
    assert not step.fails(BUSY)
    assert told == []


@pytest.mark.fault("cancelled")
def test_the_run_that_is_asked_about_in_a_subflow_is_the_one_that_people_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prefect names the subflow there, which goes on."""
    monkeypatch.setattr(runs, "is_being_cancelled", lambda run: run == "run-eval's")
    monkeypatch.setattr(run, "runtime", SimpleNamespace(flow_run=SimpleNamespace(id="the subflow's")))
    assert not run.asked_to_end()
    token = run.controlled.set("run-eval's")
    try:
        assert run.asked_to_end()
    finally:
        run.controlled.reset(token)


def test_the_count_of_retries_ends_none_of_them() -> None:
    *most, last = passing.DELAYS
    assert sum(most) + (passing.RETRIES - len(most)) * last > PATIENCE_S


@pytest.mark.fault("no-answer")
@pytest.mark.parametrize(
    "step",
    [identify, make_estimate, look, prepare, send_owed, upload_code, merge_eval, store_log, collect_logs],
    ids=lambda step: step.name,
)
def test_each_step_that_asks_aws_or_hawk_is_begun_again(step: Any) -> None:
    """Each with troubles of its own. The watch bears them itself, and secrets are written with patience."""
    assert isinstance(step.retry_condition_fn, passing.MayPass)
    assert step.retries == passing.RETRIES
