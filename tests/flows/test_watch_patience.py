"""The watch goes on over bad moments, for minutes and no longer."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest
from prefect.logging import disable_run_logger

from fleet.aws.failures import AwsRefused, CredentialsBad, Denied
from fleet.evals.listener import Nobody, listener
from flows.watch import PATIENCE_S, CancelledByPerson, LoginEnded, Watch, patiently, watching
from tests.flows.clock import Clock


class Looks:
    """A watch that fails as it is told, and then sees the same thing for ever."""

    def __init__(self, *failures: Exception, renews: bool = False) -> None:
        self.failures = list(failures)
        self.renews_credentials = renews

    def look(self) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return "progress", "step"


def refused(kind: type[AwsRefused] = AwsRefused) -> AwsRefused:
    return kind(service="sqs", operation="ReceiveMessage", code="InternalError", target="", why="")


def first_look(looks: Looks, clock: Clock, *, cancelled: bool = False) -> Any:
    with disable_run_logger():
        return next(watching(cast("Watch", looks), lambda: cancelled, clock=clock, sleep=clock.sleep))


@pytest.mark.fault("throttled", "no-answer")
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


@pytest.mark.fault("login-ends")
def test_a_login_that_has_ended_is_named_at_once_with_what_to_do() -> None:
    clock = Clock()
    with pytest.raises(LoginEnded, match=r"InternalError.*Renew the AWS credentials.*the same request goes on"):
        first_look(Looks(refused(CredentialsBad)), clock)
    assert clock.now == 0


class Terminal(Nobody):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, line: str) -> None:
        self.warnings.append(line)


@pytest.mark.fault("login-ends")
def test_a_login_that_can_be_renewed_has_minutes_to_be_good_again() -> None:
    """A person types `aws sso login`, or the role's refresh comes through. Meanwhile they know what is wrong, once."""
    clock, terminal = Clock(), Terminal()
    token = listener.set(terminal)
    try:
        looks = Looks(*[refused(CredentialsBad)] * 10, renews=True)
        assert first_look(looks, clock) == ("progress", "step")
        assert 0 < clock.now < PATIENCE_S
        (line,) = terminal.warnings
        assert "InternalError. Renew the AWS credentials" in line
        assert "Instances work on" in line
        with pytest.raises(LoginEnded, match="the same request goes on"):
            first_look(Looks(*[refused(CredentialsBad)] * 1000, renews=True), clock)
        assert clock.now >= PATIENCE_S
    finally:
        listener.reset(token)


@pytest.mark.fault("no-answer")
def test_a_subflow_is_begun_anew_while_prefect_does_not_answer() -> None:
    clock, failures = Clock(), [httpx.ConnectError("no"), httpx.ReadTimeout("late")]

    def collect() -> str:
        if failures:
            raise failures.pop()
        return "a report"

    def always(error: Exception) -> Any:
        def fail() -> None:
            raise error

        return fail

    with disable_run_logger():
        assert patiently(collect, clock=clock, sleep=clock.sleep) == "a report"
        clock.now = 0.0
        with pytest.raises(httpx.ConnectError):
            patiently(always(httpx.ConnectError("no")), clock=clock, sleep=clock.sleep)
        assert PATIENCE_S <= clock.now < PATIENCE_S + 10
        with pytest.raises(ValueError, match="ours"):
            patiently(always(ValueError("ours")), clock=clock, sleep=clock.sleep)


@pytest.mark.fault("cancelled")
def test_a_cancelled_run_is_not_looked_at_again() -> None:
    with pytest.raises(CancelledByPerson, match="results so far are kept"):
        first_look(Looks(), Clock(), cancelled=True)
