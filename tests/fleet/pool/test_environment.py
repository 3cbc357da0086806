"""Nothing secret and nothing of the pool worker reaches an instance; what it couldn't reach is refused."""

from __future__ import annotations

import pytest

from fleet.pool.environment import (
    ApiUnreachable,
    EnvironmentRefused,
    SecretInEnvironment,
    check_plain,
    check_reachable,
    instance_environment,
    looks_secret,
)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "HF_TOKEN",
        "client_secret",
        "DB_PASSWORD",
        "PREFECT_API_KEY",
        "PREFECT_API_AUTH_STRING",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
    ],
)
def test_secrets_are_told_by_their_names(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PREFECT_API_URL", "TOKENIZERS_PARALLELISM", "KEYBOARD", "FLEET_API_KEY_PARAMETER"])
def test_other_names_are_none(name: str) -> None:
    assert not looks_secret(name)


def test_a_secret_among_plain_variables_is_refused_by_name_and_without_its_value() -> None:
    with pytest.raises(SecretInEnvironment) as caught:
        check_plain({"B_TOKEN": "hunter2", "A_KEY": "hunter3", "FINE": "1"})
    said = str(caught.value)
    assert "A_KEY, B_TOKEN" in said
    assert "secret" in said
    assert "hunter" not in said
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A;rm"])
def test_what_a_shell_could_not_set_is_refused(name: str) -> None:
    with pytest.raises(EnvironmentRefused):
        check_plain({name: "x"})


AWS, LOCAL = "https://ec2.us-east-1.amazonaws.com", "http://127.0.0.1:5000"


@pytest.mark.parametrize(
    ("api_url", "endpoint", "why"),
    [
        ("http://127.0.0.1:4200/api", AWS, "loopback"),
        ("http://localhost:4200/api", AWS, "loopback"),
        ("http://[::1]:4200/api", AWS, "loopback"),
        ("http://0.0.0.0:4200/api", AWS, "loopback"),
        ("http://127.0.0.1:4200/api", "http://10.0.0.5:5000", "loopback"),
        (None, AWS, "none is set"),
        ("", LOCAL, "none is set"),
        ("sqlite:///x.db", LOCAL, "no http address"),
        ("https://me:hunter2@prefect.example.org/api", AWS, "user or password"),
    ],
)
def test_an_api_that_an_instance_could_not_reach_is_refused(api_url: str | None, endpoint: str, why: str) -> None:
    with pytest.raises(ApiUnreachable, match=why) as caught:
        check_reachable(api_url, endpoint)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__dict__)


@pytest.mark.parametrize(
    ("api_url", "endpoint"),
    [
        ("http://127.0.0.1:4200/api", LOCAL),
        ("http://127.0.0.1:4200/api", "http://localhost:5000"),
        ("http://prefect.example.org/api", AWS),
        ("http://10.0.0.7:4200/api", AWS),
        ("http://10.0.0.7:4200/api", LOCAL),
    ],
)
def test_an_api_that_an_instance_can_reach_is_taken(api_url: str, endpoint: str) -> None:
    check_reachable(api_url, endpoint)


def test_an_instance_is_told_ids_names_and_addresses_only() -> None:
    told = instance_environment(
        plain={"TZ": "UTC", "EMPTY": None, "PREFECT_API_URL": "http://other/api"},
        api_url="http://mine/api",
        flow_run_id="run-1",
        region="eu-west-1",
        code="s3://b/k",
        code_sha256="00",
    )
    assert told == {
        "PREFECT_API_URL": "http://other/api",
        "TZ": "UTC",
        "PREFECT__FLOW_RUN_ID": "run-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "FLEET_REGION": "eu-west-1",
        "FLEET_CODE": "s3://b/k",
        "FLEET_CODE_SHA256": "00",
    }
