"""Which failures of a step are begun again, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import Failed

from fleet.aws.failures import AwsRefused, Denied, Throttled, Unreachable
from fleet.errors import FleetError
from fleet.evals.listener import Nobody, listener
from fleet.evals.lock import LockHeld
from fleet.hawk.api import HawkFailed, HawkForbidden, HawkUnreachable
from flows import passing
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


def is_begun_again(error: FleetError, *, seconds: float = 0.0) -> bool:
    began: Any = datetime.now(UTC) - timedelta(seconds=seconds)
    run = TaskRun.model_construct(task_key="prepare", dynamic_key="0", start_time=began)
    return passing.may_pass(SimpleNamespace(name="prepare"), run, Failed(data=error))


@pytest.mark.fault("no-answer")
@pytest.mark.parametrize(
    "error",
    [
        an_error(Throttled, "SlowDown"),
        an_error(Unreachable, "EndpointConnectionError"),
        an_error(AwsRefused, "InternalError"),
        an_error(AwsRefused, "503"),
        an_error(AwsRefused, "RequestTimeout"),
        HawkUnreachable(address="https://hawk", asked="the logs", why="no answer"),
        HawkFailed(address="https://hawk", asked="the logs", why="503"),
    ],
    ids=lambda error: getattr(error, "code", type(error).__name__),
)
def test_what_time_mends_is_begun_again_for_five_minutes(error: FleetError, told: list[str]) -> None:
    assert is_begun_again(error, seconds=PATIENCE_S - 5)
    assert told == [f"prepare: {error}. It is tried again, for 5 minutes at most"]
    assert not is_begun_again(error, seconds=PATIENCE_S)
    assert len(told) == 1


@pytest.mark.parametrize(
    "error",
    [
        an_error(Denied, "AccessDenied"),
        an_error(AwsRefused, "NoSuchBucket"),
        HawkForbidden(address="https://hawk", asked="the logs", why="403"),
        LockHeld(eval_id="e", run="r", owner="ada", since="now", seconds=1, pid=None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_it_does_not_is_said_at_once(error: FleetError, told: list[str]) -> None:
    assert not is_begun_again(error)
    assert told == []


def test_nor_is_anything_of_a_run_that_a_person_has_cancelled(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "asked_to_end", lambda: True)
    assert not is_begun_again(an_error(Throttled, "SlowDown"))
    assert told == []


def test_the_count_of_retries_ends_none_of_them() -> None:
    *most, last = passing.DELAYS
    assert sum(most) + (passing.RETRIES - len(most)) * last > PATIENCE_S
