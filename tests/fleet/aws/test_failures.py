from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


@pytest.fixture
def page(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Something between us and AWS that answers whatever is asked with a page of its own, and says that all is well."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html><body><p>Accept our terms & log in: secret-page<br></body></html>")

        do_GET = do_PUT = do_POST  # noqa: N815  the library's names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


CALLS: list[tuple[str, Callable[[Aws], object]]] = [
    ("ec2", lambda aws: aws.ec2_once.describe_regions()),
    ("ssm", lambda aws: aws.ssm.put_parameter(Name="n", Value="v", Type="String")),
    ("sqs", lambda aws: aws.sqs.send_message(QueueUrl="http://127.0.0.1/1/q", MessageBody="m")),
    ("sts", lambda aws: aws.sts.get_caller_identity()),
]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_an_answer_that_is_none_of_aws_s_is_none(page: None, call: Callable[[Aws], object]) -> None:
    """A JSON service's would be taken for an answer that leaves all out: a secret would count as written."""
    with pytest.raises(Unreachable) as caught, calling("a service"):
        call(Aws("us-east-1"))
    assert caught.value.code == "ResponseParserError"
    assert "proxy" in str(caught.value)
    assert "secret-page" not in str(caught.value)


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
