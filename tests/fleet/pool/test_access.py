"""A pool worker's AWS credentials: shared where they are equal, renewed before they run out."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from prefect_aws.credentials import AwsCredentials
from pydantic import SecretStr

from fleet.aws.session import PATIENCE_S, Aws
from fleet.pool import access as access_module
from fleet.pool.access import Access, is_empty


def keys(**more: Any) -> AwsCredentials:
    return AwsCredentials(aws_access_key_id="AKIA1", aws_secret_access_key=SecretStr("hunter2"), **more)


def test_an_empty_block_means_what_boto3_finds() -> None:
    access = Access()
    plain = access.of(None, "us-east-1")
    assert access.of(AwsCredentials(), "us-east-1") is plain
    assert access.of(AwsCredentials(region_name="eu-west-1"), "us-east-1") is plain
    assert access.of(None, "eu-west-1") is not plain


def test_equal_blocks_share_clients_and_changed_ones_do_not() -> None:
    access = Access()
    assert access.of(keys(), "us-east-1") is access.of(keys(), "us-east-1")
    assert access.of(keys(), "us-east-1") is not access.of(keys(aws_session_token="t"), "us-east-1")
    assert not is_empty(keys())
    assert "hunter2" not in repr(vars(access))


def test_a_blocks_keys_and_client_parameters_are_used(aws: Aws) -> None:
    block = keys(aws_client_parameters={"endpoint_url": "http://127.0.0.1:1", "config": {"user_agent_extra": "ours"}})
    clients = Access().of(block, "eu-west-1")
    client: Any = clients.ec2_once
    assert (client.meta.endpoint_url, client.meta.region_name) == ("http://127.0.0.1:1", "eu-west-1")
    assert client.meta.config.user_agent_extra == "ours"
    assert client.meta.config.retries["total_max_attempts"] == 1  # what a launch needs counts more
    assert client._request_signer._credentials.access_key == "AKIA1"


def test_the_role_is_asked_for_with_the_patience_of_every_client(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's own bounds are a minute for each connection, five times over, before the first instance is asked for."""
    asked: list[Any] = []
    monkeypatch.setattr(access_module, "create_assume_role_refresher", lambda client, _: asked.append(client))
    block = AwsCredentials(assume_role_arn="arn:aws:iam::123456789012:role/pool-worker")
    other = Access().of(block, "us-east-1").sts
    configs: list[Any] = [asked[0].meta.config, other.meta.config]
    for config in configs:
        assert (config.connect_timeout, config.read_timeout, config.retries["mode"]) == (10, PATIENCE_S, "standard")


def test_the_credentials_of_a_role_are_renewed_before_they_run_out(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block's own session would keep the first ones for ever."""
    role = aws.iam.create_role(RoleName="pool-worker", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    block = AwsCredentials(assume_role_arn=role)
    client = Access().of(block, "us-east-1").sts
    assert client.get_caller_identity()["Arn"].endswith("assumed-role/pool-worker/inspect-fleet-pool-worker")
    credentials: Any = client._request_signer._credentials  # type: ignore[attr-defined]
    first = credentials.get_frozen_credentials().access_key
    assert credentials.get_frozen_credentials().access_key == first
    ahead = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=59)
    monkeypatch.setattr(credentials, "_time_fetcher", lambda: ahead)
    assert credentials.get_frozen_credentials().access_key != first
