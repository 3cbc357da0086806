"""Which failures of the step `fetch-secrets` Prefect tries again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prefect.client.schemas.objects import State, StateType

from bootstrap.secrets import SecretsNeverCame
from fleet.aws.failures import AwsRefused, CredentialsBad, Throttled, Unreachable
from fleet.aws.parameters import ParameterNotReady
from flows.fleet_worker import fetch_secrets

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
def test_only_what_time_mends_is_tried_again(error: Exception, again: bool) -> None:
    state = State[Any](type=StateType.FAILED, data=error)
    condition = fetch_secrets.retry_condition_fn
    assert condition is not None
    assert condition(fetch_secrets, cast("Any", None), state) is again
