from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.failures import CredentialsBad
from fleet.aws.identity import LONGEST_TAG, Caller, caller, name_in
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail, reply


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:iam::123456789012:user/nightly", "nightly"),
        ("arn:aws:iam::123456789012:user/teams/evals/nightly", "nightly"),
        ("arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Research_0a1b/r.one@example.org", "r.one@example.org"),
        ("arn:aws:sts::123456789012:assumed-role/inspect-fleet-worker/i-0123456789abcdef0", "i-0123456789abcdef0"),
        ("arn:aws:sts::123456789012:federated-user/guest", "guest"),
        ("arn:aws-us-gov:sts::123456789012:assumed-role/Role/a,b=c", "a-b=c"),
        ("arn:aws:iam::123456789012:root", "root"),
    ],
)
def test_the_name_is_the_users_or_the_sessions(arn: str, name: str) -> None:
    assert name_in(arn) == name


@given(st.text())
def test_a_name_is_fit_for_a_tag(text: str) -> None:
    name = name_in(f"arn:aws:iam::1:user/{text}")
    assert re.fullmatch(r"[\w.=+@-]*", name)
    assert len(name) <= LONGEST_TAG


def test_the_caller_is_who_aws_says(aws: Aws) -> None:
    arn = "arn:aws:sts::123456789012:assumed-role/Research/r.one@example.org"
    reply(aws.sts, "GetCallerIdentity", {"Account": "123456789012", "Arn": arn, "UserId": "AROA:r.one"})
    assert caller(aws) == Caller(account="123456789012", arn=arn, name="r.one@example.org")


def test_the_emulators_caller_is_its_user(aws: Aws) -> None:
    found = caller(aws)
    assert found.account == "123456789012"
    assert found.arn.endswith(f"/{found.name}")


def test_expired_credentials_say_so(aws: Aws) -> None:
    fail(aws.sts, "GetCallerIdentity", "ExpiredToken", "The security token included in the request is expired")
    with pytest.raises(CredentialsBad, match=r"expired.*aws sso login"):
        caller(aws)


def test_no_credentials_say_so(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsBad, match="NoCredentialsError"):
        caller(Aws("us-east-1"))
