"""Requests are read as AWS reads them, for every protocol in use."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from fleet.local.calls import read_call, refuse


def environ(
    method: str, path: str, *, query: str = "", service: str = "s3", body: bytes = b"", **more: str
) -> dict[str, Any]:
    signature = (
        f"AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-west-2/{service}/aws4_request, SignedHeaders=host, Signature=x"
    )
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "HTTP_AUTHORIZATION": signature,
        **more,
    }


@pytest.mark.parametrize(
    ("method", "path", "query", "operation"),
    [
        ("GET", "/", "", "ListBuckets"),
        ("GET", "/bucket", "list-type=2&prefix=a", "ListObjectsV2"),
        ("HEAD", "/bucket", "", "HeadBucket"),
        ("POST", "/bucket", "delete", "DeleteObjects"),
        ("PUT", "/bucket/a/b", "", "PutObject"),
        ("GET", "/bucket/a/b", "", "GetObject"),
        ("HEAD", "/bucket/a/b", "", "HeadObject"),
        ("DELETE", "/bucket/a/b", "", "DeleteObject"),
        ("POST", "/bucket/a/b", "uploads", "CreateMultipartUpload"),
        ("PUT", "/bucket/a/b", "partNumber=1&uploadId=u", "UploadPart"),
        ("POST", "/bucket/a/b", "uploadId=u", "CompleteMultipartUpload"),
    ],
)
def test_an_s3_call_is_known_by_method_and_address(method: str, path: str, query: str, operation: str) -> None:
    """S3 has no operation in its requests; the body is left unread, it may be large."""
    asked = environ(method, path, query=query, body=b"content")
    call = read_call(asked)
    assert (call.service, call.operation, call.region) == ("s3", operation, "us-west-2")
    assert asked["wsgi.input"].read() == b"content"


def test_a_query_call_says_its_action() -> None:
    """EC2, IAM, STS: a form; its text is decoded, so that a fault can match what a person would write."""
    asked = environ("POST", "/", service="ec2", body=b"Action=RunInstances&TagSpecification.1.Tag.1.Value=a%2Fb+c")
    call = read_call(asked)
    assert (call.operation, call.access_key) == ("RunInstances", "AKIA")
    assert "Value=a/b c" in call.text
    assert asked["wsgi.input"].read().startswith(b"Action")


def test_a_json_call_says_its_target() -> None:
    """SQS, SSM: a header."""
    call = read_call(
        environ("POST", "/", service="ssm", body=b'{"Name": "/a"}', HTTP_X_AMZ_TARGET="AmazonSSM.GetParameter")
    )
    assert call.operation == "GetParameter"
    assert call.parameters() == {"Name": "/a"}


def test_a_presigned_call_carries_its_key_in_the_query() -> None:
    """Without an Authorization header."""
    asked = environ("GET", "/b/k", query="X-Amz-Credential=ASIA%2F20260101%2Feu-west-1%2Fs3%2Faws4_request")
    asked["HTTP_AUTHORIZATION"] = ""
    call = read_call(asked)
    assert (call.access_key, call.region, call.operation) == ("ASIA", "eu-west-1", "GetObject")


@pytest.mark.parametrize(
    ("service", "start"), [("ec2", "<Response><Errors>"), ("s3", "<Error><Code>"), ("sts", "<ErrorResponse>")]
)
def test_a_refusal_speaks_the_protocol_of_its_service(service: str, start: str) -> None:
    """XML of three shapes, its text escaped."""
    asked = environ("POST", "/", service=service, body=b"Action=X")
    call = read_call(asked)
    answer = refuse(call, asked, lambda *_: None, code="A<B", status=400, message="&")
    body = b"".join(answer).decode()
    assert body.startswith(start)
    assert "<Code>A&lt;B</Code><Message>&amp;</Message>" in body


def test_a_refusal_of_a_json_service_is_json() -> None:
    """With the code as its type."""
    asked = environ("POST", "/", service="ssm", HTTP_X_AMZ_TARGET="AmazonSSM.GetParameter")
    answer = refuse(read_call(asked), asked, lambda *_: None, code="ThrottlingException", status=400, message="slow")
    assert json.loads(b"".join(answer)) == {"__type": "ThrottlingException", "message": "slow"}
