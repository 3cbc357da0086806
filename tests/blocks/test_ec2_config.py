"""The fleet's options: names and defaults that people's commands and deployments rely on, strict."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blocks.ec2_config import Ec2Config
from fleet.evals.documents import WorkerOrder

CONTRACT = {
    "instance_type": "c7i.4xlarge",
    "instance_type_fallbacks": [],
    "region": "us-east-1",
    "max_workers": 24,
    "concurrency_per_worker": 32,
    "estimate": False,
    "auto_confirm": False,
    "new_fleet": False,
    "spot": False,
    "ami": None,
    "worker_user": "root",
    "worker_setup": None,
}


ADDED: dict[str, object] = {
    "volume_gb": 100,
    "tags": {},
    "stall_hours": 4.0,
    "max_cost": None,
    "deadline_hours": None,
    "lease_seconds": 60,
    "idle_seconds": 60,
    "boot_seconds": 900,
    "max_hours": 24.0,
}
"""Knobs that came later, with the defaults that runs rely on since."""


def test_fields_and_defaults_are_kept() -> None:
    config = Ec2Config()
    assert {name: getattr(config, name) for name in CONTRACT} == CONTRACT
    assert {name: getattr(config, name) for name in ADDED} == ADDED
    assert CONTRACT.keys() | ADDED.keys() == set(Ec2Config.model_fields)


@pytest.mark.parametrize("given", ["c7i.large, m7i.large,", ["c7i.large", "m7i.large"]])
def test_fallbacks_come_as_a_list_or_with_commas(given: object) -> None:
    assert Ec2Config.model_validate({"instance_type_fallbacks": given}).instance_type_fallbacks == [
        "c7i.large",
        "m7i.large",
    ]


@pytest.mark.parametrize("given", ["team=evals, cost-centre=4 2,", {"team": "evals", "cost-centre": "4 2"}])
def test_tags_come_as_a_mapping_or_as_pairs(given: object) -> None:
    assert Ec2Config.model_validate({"tags": given}).tags == {"team": "evals", "cost-centre": "4 2"}


@pytest.mark.parametrize(
    "given",
    [
        {"concurrency_per_worker": 0},
        {"max_workers": 0},
        {"spto": True},
        {"lease_seconds": 1},
        {"lease_seconds": 3601},
        {"worker_user": ""},
        {"tags": {"cost centre": "42"}},
        {"tags": {"aws:team": "evals"}},
        {"tags": {"inspect-fleet:run": "another"}},
        {"tags": {"LaunchedBy": "nobody"}},
        {"tags": {"team": "x" * 257}},
        {"tags": {str(number): "" for number in range(21)}},
        {"tags": "team"},
        {"volume_gb": 7},
        {"stall_hours": -1},
        {"max_cost": 0},
        {"deadline_hours": 0},
        {"volume_gb": 16385},
    ],
)
def test_what_can_not_work_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Ec2Config.model_validate(given)


def test_a_worker_takes_every_lease_that_the_options_allow() -> None:
    asked, taken = (kind.model_fields["lease_seconds"].metadata for kind in (Ec2Config, WorkerOrder))
    assert asked == taken


def test_every_default_shows_in_a_form() -> None:
    """A `default_factory` would show as an empty field in the UI."""
    properties = Ec2Config.model_json_schema()["properties"]
    assert all("default" in field and "description" in field for field in properties.values())
