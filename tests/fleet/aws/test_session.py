from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from fleet.aws.session import Aws


def test_threads_share_one_client(aws: Aws) -> None:
    with ThreadPoolExecutor(8) as threads:
        clients = set(threads.map(lambda _: id(aws.sqs), range(32)))
    assert len(clients) == 1


def test_each_service_has_a_client_of_the_region(aws: Aws) -> None:
    for client in (aws.ec2, aws.ec2_once, aws.ssm, aws.sqs, aws.s3, aws.iam):
        assert client.meta.region_name in {"us-east-1", "aws-global"}
    assert aws.sts.meta.service_model.service_name == "sts"
    assert aws.ec2 is not aws.ec2_once


def test_launches_are_asked_for_once_and_the_rest_by_botocores_standard_retries(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_MAX_ATTEMPTS", raising=False)
    assert aws.ec2_once.meta.config.retries["total_max_attempts"] == 1  # type: ignore[attr-defined]
    assert aws.ec2.meta.config.retries == {"mode": "standard"}  # type: ignore[attr-defined]


def test_a_persons_number_of_attempts_holds_but_for_launches(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    assert aws.ssm.meta.config.retries["total_max_attempts"] == 7  # type: ignore[attr-defined]
    assert aws.ec2_once.meta.config.retries["total_max_attempts"] == 1  # type: ignore[attr-defined]


def test_a_given_session_counts_instead_of_the_environment(aws_environment: None) -> None:
    given = boto3.Session("other", "other", region_name="us-east-1")
    signer = Aws("us-east-1", session=given).sqs._request_signer  # type: ignore[attr-defined]
    assert signer._credentials.access_key == "other"


def test_only_a_login_s_or_a_role_s_credentials_are_renewed(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the environment stay what they are. A program that makes them stands for all that botocore asks again."""
    assert not aws.renews_credentials, "there are none yet"
    assert aws.sqs
    assert not aws.renews_credentials
    login = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c"}
    (tmp_path / "login").write_text(json.dumps(login | {"Expiration": "2099-01-01T00:00:00Z"}))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'login'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    at_login = Aws("us-east-1")
    assert at_login.sqs
    assert at_login.renews_credentials


def test_prices_come_from_a_region_that_has_the_pricing_api() -> None:
    assert Aws("eu-north-1").pricing.meta.region_name == "us-east-1"


def test_importing_the_room_imports_no_boto3() -> None:
    """`fleet --help` answers at once."""
    modules = "session failures objects queues parameters images identity prices"
    program = "\n".join(
        [*(f"import fleet.aws.{name}" for name in modules.split()), "import sys", "sys.exit('boto3' in sys.modules)"]
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
