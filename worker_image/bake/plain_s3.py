"""Two calls of S3 with nothing but the standard library: a fresh Ubuntu has neither boto3 nor the AWS command line.

    python3 plain_s3.py get s3://bucket/key FILE
    python3 plain_s3.py put FILE s3://bucket/key

Who asks is the instance's own role, as its metadata service says. Signed by AWS's Signature Version 4; the endpoint of the
environment counts, as for any SDK. Runs on the base image's own Python, so that nothing of this project is imported.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TRIES = 6
"""A role's credentials may lag a launch by some seconds."""


def signature_headers(
    method: str, url: str, body: bytes, credentials: tuple[str, str, str], region: str, now: datetime.datetime
) -> dict[str, str]:
    """The headers that sign a request of S3. `credentials`: access key, secret key, session token or ''."""
    access, secret, token = credentials
    parts = urllib.parse.urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if token:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, parts.path, parts.query, lines, names, digest])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    sign = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={sign}"
    return {**headers, "authorization": authorization, "content-type": "application/octet-stream"}


def address(uri: str, region: str, endpoint: str = "") -> str:
    """The URL of an s3:// address: by the endpoint with the bucket in the path, else by the bucket's own host."""
    bucket, _, key = uri[len("s3://") :].partition("/")
    key = urllib.parse.quote(key, safe="/-_.~")
    if endpoint:
        return f"{endpoint.rstrip('/')}/{bucket}/{key}"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://{bucket}.s3.{region}.{suffix}/{key}"


def metadata(path: str) -> str:
    """What the instance's metadata service says, version 2."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/") + "/latest/"
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    token = _ask("PUT", base + "api/token", ttl).decode()
    return _ask("GET", base + path, {"X-aws-ec2-metadata-token": token}).decode()


def role_credentials() -> tuple[str, str, str]:
    """The role's access key, secret key and session token."""
    where = "meta-data/iam/security-credentials/"
    said = json.loads(metadata(where + metadata(where).split()[0]))
    return said["AccessKeyId"], said["SecretAccessKey"], said["Token"]


def call(method: str, uri: str, body: bytes = b"") -> bytes:
    """Ask S3, again where it fails: the answer's body. OSError: it failed each time."""
    region = os.environ["FLEET_BUCKET_REGION"]
    url = address(uri, region, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", ""))
    for left in reversed(range(TRIES)):
        try:
            now = datetime.datetime.now(datetime.UTC)
            headers = signature_headers(method, url, body, role_credentials(), region, now)
            return _ask(method, url, headers, body)
        except OSError as error:  # urllib's errors are of this family
            if not left:
                raise
            print(f"{method} {uri}: {_words(error)}; again", file=sys.stderr, flush=True)  # noqa: T201
            time.sleep(2 ** (TRIES - 1 - left))
    raise AssertionError("the last try returns or raises")


def _words(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error} {error.read(500).decode(errors='replace')}"
    return str(error)


def _ask(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    request = urllib.request.Request(url, data=body or None, method=method, headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  the metadata service or S3
        content: bytes = answer.read()
    return content


def main(words: list[str]) -> None:
    """`get ADDRESS FILE` or `put FILE ADDRESS`."""
    what, first, second = words
    if what == "get":
        Path(second).write_bytes(call("GET", first))
    else:
        call("PUT", second, Path(first).read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
