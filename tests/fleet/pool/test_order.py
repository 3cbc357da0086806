"""Tags as AWS takes them, and pool settings and template as people set them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.instances import LAUNCH_TAG, LaunchOrder
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG, JobVariableRefused, check, common_tags, make_order, own_tags
from fleet.pool.settings import PoolSettings, SettingRefused
from fleet.pool.setup import JobVariableUnknown, base_job_template
from fleet.pool.variables import EC2JobConfiguration
from fleet.pool.worker import EC2Worker


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=400), max_size=8))
def test_tags_fit_whatever_people_name_their_things(given_tags: dict[str, str]) -> None:
    """Keys stand in addresses of the metadata service, and what finds an instance again can't be overridden."""
    given_tags |= {FLOW_RUN_TAG: "no", POOL_TAG: "no", LAUNCH_TAG: "no", "prefect.io/deployment-id": "d"}
    tags = common_tags(given_tags, pool_id="pool", launched_by="me")
    assert tags[POOL_TAG] == "pool"
    assert not {FLOW_RUN_TAG, LAUNCH_TAG} & tags.keys()
    assert tags["prefect.io:deployment-id"] == "d"
    assert all(re.fullmatch(r"[0-9A-Za-z\-_+=,.@:]{1,128}", key) and len(value) <= 256 for key, value in tags.items())


def test_a_run_s_own_word_on_who_started_it_outweighs_the_pool_workers() -> None:
    def launched_by(**given_tags: str) -> str:
        return common_tags(given_tags, pool_id="pool", launched_by="pool-worker")["LaunchedBy"]

    assert launched_by(LaunchedBy="alice") == "alice"
    assert launched_by() == "pool-worker"


def order_of(run: str, **more: Any) -> LaunchOrder:
    configuration = EC2JobConfiguration(**{"name": f"worker of {run}", "command": "true", **more})
    configuration.labels = {
        "prefect.io/flow-run-id": run,
        "prefect.io/flow-run-name": f"worker of {run}",
        "prefect.io/deployment-id": "d",
    }
    return make_order(
        configuration,
        attempt="",
        flow_run_id=run,
        pool_id="pool",
        image="ami-1",
        root_device="/dev/xvda",
        launched_by="me",
        alone=more.get("region") == "old-machines",
    )


CODE = {"code": "s3://bucket/code", "code_sha256": "00"}


def test_the_workers_of_one_fleet_have_one_order_and_learn_their_flow_run_by_a_tag() -> None:
    order = order_of("run-1", **CODE)
    assert order == order_of("run-2", **CODE)
    assert f"export FLEET_FLOW_RUN_TAG={FLOW_RUN_TAG}\n" in order.user_data
    assert not any("run-1" in text for text in (order.user_data, *order.tags.values()))


@pytest.mark.parametrize("more", [{}, {**CODE, "region": "old-machines"}], ids=["no code", "no live tags"])
def test_where_nothing_can_read_the_tag_the_user_data_names_the_flow_run(more: dict[str, str]) -> None:
    order = order_of("run-1", **more)
    assert order != order_of("run-2", **more)
    assert "export PREFECT__FLOW_RUN_ID=run-1\n" in order.user_data
    assert "FLEET_FLOW_RUN_TAG" not in order.user_data


def test_an_instance_is_named_as_its_flow_run() -> None:
    configuration = EC2JobConfiguration(name="worker 1")
    assert own_tags(configuration, "run-1") == {"Name": "worker 1", FLOW_RUN_TAG: "run-1"}
    assert own_tags(EC2JobConfiguration(tags={"Name": "mine"}), "0123456789")["Name"] == "mine"
    assert own_tags(EC2JobConfiguration(), "0123456789")["Name"] == "flow run 01234567"


def test_settings_come_from_the_pool_workers_environment() -> None:
    found = PoolSettings.from_environment({"FLEET_POOL_POLL_SECONDS": "0.5", "OTHER": "x"})
    assert found == PoolSettings(poll_seconds=0.5)


@pytest.mark.parametrize("value", ["", "soon", "0", "-1", "inf", "nan"])
def test_a_setting_that_is_no_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(SettingRefused, match="FLEET_POOL_GRACE_SECONDS"):
        PoolSettings.from_environment({"FLEET_POOL_GRACE_SECONDS": value})


def test_the_form_shows_every_default_and_says_what_each_field_is() -> None:
    """A `default_factory` would show as empty in the UI."""
    fields = base_job_template()["variables"]["properties"]
    ours = fields.keys() - {"name", "env", "labels", "command", "aws_credentials"}
    assert all("default" in fields[name] and fields[name]["description"] for name in ours)
    assert fields["boot_seconds"]["default"] == 900


def test_every_job_variable_reaches_the_configuration() -> None:
    template = EC2Worker.get_default_base_job_template()
    assert template["job_configuration"] == {name: f"{{{{ {name} }}}}" for name in template["variables"]["properties"]}


def test_defaults_of_unknown_job_variables_are_refused() -> None:
    with pytest.raises(JobVariableUnknown, match="regoin"):
        base_job_template({"regoin": "eu-west-1"})


def test_the_api_takes_a_key_or_an_auth_string_and_not_both() -> None:
    """Prefect Cloud has the one, a server of one's own the other: an instance that is told both would be refused by either."""
    both = EC2JobConfiguration(api_key_parameter="/shared/key", api_auth_parameter="/shared/auth")
    both.env = {"PREFECT_API_URL": "https://api.prefect.cloud/api"}
    with pytest.raises(JobVariableRefused, match="api_auth_parameter refused: api_key_parameter is set too"):
        check(both, aws_endpoint="https://ec2.us-east-1.amazonaws.com")
