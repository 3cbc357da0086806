"""Tags as AWS takes them, and pool settings and template as people set them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG, JobVariableRefused, check, instance_tags
from fleet.pool.settings import PoolSettings, SettingRefused
from fleet.pool.setup import JobVariableUnknown, base_job_template
from fleet.pool.variables import EC2JobConfiguration
from fleet.pool.worker import EC2Worker


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=400), max_size=8), st.text(max_size=400))
def test_tags_fit_whatever_people_name_their_things(given_tags: dict[str, str], name: str) -> None:
    tags = instance_tags(given_tags, name=name, flow_run_id="run", pool_id="pool", launched_by="me")
    assert (tags[FLOW_RUN_TAG], tags[POOL_TAG]) == ("run", "pool")
    assert all(len(key) <= 128 and len(value) <= 256 for key, value in tags.items())
    assert not any(character in text for pair in tags.items() for text in pair for character in "<>&;\"'\0")


def test_a_run_s_own_word_on_who_started_it_outweighs_the_pool_workers() -> None:
    def launched_by(**given_tags: str) -> str:
        tags = instance_tags(given_tags, name="n", flow_run_id="run", pool_id="pool", launched_by="pool-worker")
        return tags["LaunchedBy"]

    assert launched_by(LaunchedBy="alice") == "alice"
    assert launched_by() == "pool-worker"


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
