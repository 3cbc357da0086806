"""Which failures of the steps `fetch-secrets` and `fetch-setting-values` Prefect tries again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prefect.client.schemas.objects import State, StateType

from bootstrap.secrets import SecretsNeverCame
from fleet.aws.failures import AwsRefused, CredentialsBad, Throttled, Unreachable
from fleet.aws.parameters import ParameterNotReady, SecretUnreadable
from flows.fleet_worker import fetch_secrets, fetch_setting_values

FACTS = {"service": "ssm", "operation": "GetParameter", "code": "SomeCode", "target": "/p", "why": "so"}


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ParameterNotReady(parameter="/p", code="ParameterNotFound", why=""), True),
        (Throttled(**FACTS), True),
        (Unreachable(**FACTS), True),
        (AwsRefused(**FACTS), False),
        (CredentialsBad(**FACTS), False),
        (SecretsNeverCame(parameter="/p", waited=900, why="so"), False),
        (ValueError("a bug"), False),
    ],
)
@pytest.mark.fault("secret-late")
def test_only_what_time_mends_is_tried_again(error: Exception, again: bool) -> None:
    state = State[Any](type=StateType.FAILED, data=error)
    condition = fetch_secrets.retry_condition_fn
    assert condition is not None
    assert condition(fetch_secrets, cast("Any", None), state) is again


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ParameterNotReady(parameter="/p", code="AccessDeniedException", why=""), True),
        (Throttled(**FACTS), True),
        (Unreachable(**FACTS), False),
        (AwsRefused(**FACTS), False),
        (SecretUnreadable(parameter="/p"), False),
        (ValueError("a bug"), False),
    ],
)
@pytest.mark.fault("secret-late")
def test_values_of_a_setting_are_asked_for_again_while_their_tag_may_lag(error: Exception, again: bool) -> None:
    state = State[Any](type=StateType.FAILED, data=error)
    condition = fetch_setting_values.retry_condition_fn
    assert condition is not None
    assert condition(fetch_setting_values, cast("Any", None), state) is again


def test_values_of_a_setting_are_tried_for_five_times_with_growing_waits() -> None:
    assert fetch_setting_values.retries == 4
    assert fetch_setting_values.retry_delay_seconds == [5, 10, 15, 20]
    assert not fetch_setting_values.retry_jitter_factor
