"""The S3 calls of a machine that has only Python, held against botocore's own signer and against the local cloud."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from worker_image.bake.plain_s3 import address, signature_headers

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@pytest.fixture(scope="module", autouse=True)
def botocores_clock() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr("botocore.auth.get_current_datetime", lambda *_: NOW.replace(tzinfo=None))
    yield
    patch.undo()


@given(
    key=st.text("abcXYZ019-_.~/ +=&%é", min_size=1, max_size=40).filter(lambda text: not text.startswith("/")),
    body=st.binary(max_size=50),
    token=st.sampled_from(["", "a-session-token"]),
    method=st.sampled_from(["GET", "PUT"]),
)
def test_a_signature_is_botocores(key: str, body: bytes, token: str, method: str) -> None:
    url = address(f"s3://a-bucket/{key}", "eu-west-1")
    ours = signature_headers(method, url, body, ("AKID", "secret", token), "eu-west-1", NOW)
    request = AWSRequest(method=method, url=url, data=body)
    request.context["payload_signing_enabled"] = True
    S3SigV4Auth(Credentials("AKID", "secret", token or None), "s3", "eu-west-1").add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]


@pytest.mark.parametrize(
    ("uri", "region", "endpoint", "url"),
    [
        ("s3://b/a/c.json", "us-east-1", "", "https://b.s3.us-east-1.amazonaws.com/a/c.json"),
        ("s3://b/a", "cn-north-1", "", "https://b.s3.cn-north-1.amazonaws.com.cn/a"),
        ("s3://b/a", "us-east-1", "http://127.0.0.1:5000/", "http://127.0.0.1:5000/b/a"),
        ("s3://b/a b+c", "us-east-1", "", "https://b.s3.us-east-1.amazonaws.com/a%20b%2Bc"),
    ],
)
def test_an_address_is_where_s3_has_it(uri: str, region: str, endpoint: str, url: str) -> None:
    assert address(uri, region, endpoint) == url
