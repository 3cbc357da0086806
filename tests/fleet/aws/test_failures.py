from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
)

from fleet.aws.failures import (
    BAD_CREDENTIALS,
    DENIED,
    NO_ANSWER,
    NO_CREDENTIALS,
    THROTTLED,
    AwsRefused,
    CredentialsBad,
    Denied,
    Throttled,
    Unreachable,
    calling,
    refused,
)
from fleet.aws.session import Aws


def client_error(code: str, message: str = "No.") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "DoThing")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("Throttling", Throttled),
        ("RequestLimitExceeded", Throttled),
        ("UnauthorizedOperation", Denied),
        ("AccessDeniedException", Denied),
        ("ExpiredToken", CredentialsBad),
        ("UnrecognizedClientException", CredentialsBad),
        ("NoSuchBucket", AwsRefused),
        ("", AwsRefused),
    ],
)
def test_a_failure_is_classed_by_its_code(code: str, kind: type[AwsRefused]) -> None:
    assert type(refused(client_error(code), service="s3")) is kind


def test_text_that_speaks_of_throttling_is_no_throttling() -> None:
    assert type(refused(client_error("NoSuchKey", "Throttling AccessDenied 429"), service="s3")) is AwsRefused


def test_no_code_is_in_two_sets() -> None:
    sets = [THROTTLED, DENIED, BAD_CREDENTIALS, NO_CREDENTIALS, NO_ANSWER]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCredentialsError(), CredentialsBad),
        (ProfileNotFound(profile="research"), CredentialsBad),
        (EndpointConnectionError(endpoint_url="https://sqs.us-esat-1.amazonaws.com"), Unreachable),
    ],
)
def test_what_never_reached_aws_is_of_the_family_too(error: BotoCoreError, kind: type[AwsRefused]) -> None:
    refusal = refused(error, service="sqs")
    assert type(refusal) is kind
    assert refusal.code == type(error).__name__


def test_a_dead_endpoint_is_unreachable(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(Unreachable, match="ec2"), calling("ec2"):
        Aws("us-east-1").ec2_once.describe_regions()


def test_the_message_is_one_line_with_call_target_code_and_reason() -> None:
    refusal = refused(client_error("NoSuchBucket", "The bucket\n  is gone."), service="s3", target="s3://b/k")
    assert str(refusal) == "s3 DoThing of s3://b/k failed: NoSuchBucket: The bucket is gone"


def test_ec2s_encoded_message_is_left_out() -> None:
    text = "You are not authorized. Encoded authorization failure message: AAAA" + "B" * 3000
    assert refused(client_error("UnauthorizedOperation", text), service="ec2").why == "You are not authorized"


def test_a_refused_argument_is_not_quoted() -> None:
    error = ParamValidationError(report="Invalid type for parameter Value, value: sk-secret")
    assert "sk-secret" not in str(refused(error, service="ssm"))


def test_credentials_say_what_helps() -> None:
    assert "aws sso login" in str(refused(client_error("ExpiredToken"), service="sts"))


def test_other_errors_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), calling("s3"):
        raise ZeroDivisionError
