"""What isn't built is refused by name: by the command before anything starts, and by the flow that the UI starts."""

from __future__ import annotations

from typing import Any

import pytest

from blocks.ec2_config import Ec2Config
from blocks.unbuilt import OptionUnbuilt, refuse_unbuilt
from fleet.backends.fleet import FleetBackend
from fleet.evals.listener import Nobody
from fleet.evals.request import EvalRequest
from flows.run_eval import run_eval


def a_request(**fields: Any) -> EvalRequest:
    return EvalRequest.model_validate({"tasks": ["a/b"], "models": ["m/n"], **fields})


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"worker_setup": "setup.sh"}, ["worker_setup"]),
        ({"worker_user": "ubuntu"}, ["worker_user (other than root)"]),
        ({"worker_setup": "setup.sh", "worker_user": "ubuntu"}, ["worker_setup", "worker_user (other than root)"]),
    ],
)
def test_every_option_that_is_not_built_is_named(options: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(OptionUnbuilt) as refused:
        refuse_unbuilt(a_request(), Ec2Config.model_validate(options))
    assert refused.value.options == named
    assert refused.value.exit_code == 2


def test_the_defaults_ask_for_nothing_of_it() -> None:
    refuse_unbuilt(a_request())
    refuse_unbuilt(a_request(), Ec2Config())


def test_a_fleet_refuses_what_its_configuration_asks_for() -> None:
    with pytest.raises(OptionUnbuilt):
        FleetBackend(Ec2Config(worker_setup="setup.sh"), Nobody()).run(a_request())


def test_the_flow_refuses_before_it_asks_any_service() -> None:
    """There is no Prefect server and no AWS here: a run of the UI or of a schedule ends at its first line."""
    with pytest.raises(OptionUnbuilt):
        run_eval.fn(a_request(), Ec2Config(worker_user="ubuntu"))
