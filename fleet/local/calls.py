"""One request to the emulator as AWS would read it: service, operation, caller; and the shape of a refusal for each protocol."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote
from xml.sax.saxutils import escape

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

SIGNATURE = re.compile(r"Credential=([^/,\s]+)/\d+/([^/]+)/([^/]+)/")
QUERY_SERVICES = frozenset({"ec2", "sts", "iam", "cloudformation"})
DRAIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """A request, read but not yet answered."""

    service: str
    operation: str
    """AWS's name of it, such as RunInstances or PutObject."""
    region: str
    access_key: str
    text: str
    """What a fault matches: the body as it came (decoded), or for S3 its path and query."""
    raw: str = ""
    """The body, not decoded; of S3 nothing."""

    def form(self) -> dict[str, str]:
        """The body of a query service."""
        return dict(parse_qsl(self.raw, keep_blank_values=True))

    def parameters(self) -> dict[str, Any]:
        """The body of a JSON service. Empty for others, and for what isn't an object."""
        try:
            found = json.loads(self.text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def read_call(environ: Environ) -> Call:
    """The call, from a WSGI environment, whose body can still be read afterwards."""
    found = SIGNATURE.search(environ.get("HTTP_AUTHORIZATION", "")) or SIGNATURE.search(
        unquote(environ.get("QUERY_STRING", "").replace("X-Amz-Credential=", "Credential="))
    )
    access_key, region, service = found.groups() if found else ("", "", "s3")
    if service == "s3":
        return Call(service, _s3_operation(environ), region, access_key, _address(environ))
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    text = body.decode("utf-8", "replace")
    if service in QUERY_SERVICES:
        operation = parse_qs(text).get("Action", [""])[0]
        return Call(service, operation, region, access_key, unquote(text.replace("+", " ")), text)
    target = environ.get("HTTP_X_AMZ_TARGET", "").rsplit(".", 1)[-1]
    return Call(service, target or f"{environ['REQUEST_METHOD']} {_address(environ)}", region, access_key, text)


def _address(environ: Environ) -> str:
    query = environ.get("QUERY_STRING", "")
    return f"{environ.get('PATH_INFO', '/')}?{query}" if query else str(environ.get("PATH_INFO", "/"))


def _s3_operation(environ: Environ) -> str:
    method: str = environ["REQUEST_METHOD"]
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    bucket, _, key = environ.get("PATH_INFO", "/").lstrip("/").partition("/")
    if not bucket:
        return "ListBuckets"
    if key:
        if "uploadId" in query:
            return {
                "PUT": "UploadPart",
                "POST": "CompleteMultipartUpload",
                "DELETE": "AbortMultipartUpload",
                "GET": "ListParts",
            }.get(method, method)
        if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
            return "CopyObject"
        if method == "POST" and "uploads" in query:
            return "CreateMultipartUpload"
        return {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}.get(
            method, method
        )
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    listing = "ListObjectsV2" if "list-type" in query else "ListObjects"
    return {"PUT": "CreateBucket", "GET": listing, "HEAD": "HeadBucket", "DELETE": "DeleteBucket"}.get(method, method)


def refuse(
    call: Call, environ: Environ, start: StartResponse, *, code: str, status: int, message: str
) -> Iterable[bytes]:
    """Answer a call with an error, in its service's protocol."""
    _drain(environ)
    kind, body = _error(call.service, code, message, "Sender" if status < 500 else "Receiver")
    data = b"" if environ["REQUEST_METHOD"] == "HEAD" else body.encode()
    headers = [("Content-Type", kind), ("Content-Length", str(len(data))), ("x-amzn-errortype", code)]
    start(f"{status} Refused", headers)
    return [data]


def _drain(environ: Environ) -> None:
    """Read what is left of a request: a client that still sends would see a broken connection instead of the refusal."""
    left = int(environ.get("CONTENT_LENGTH") or 0)
    while left > 0 and (part := environ["wsgi.input"].read(min(left, DRAIN_BYTES))):
        left -= len(part)


def _error(service: str, code: str, message: str, side: str) -> tuple[str, str]:
    code_and_message = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        errors = f"<Errors><Error>{code_and_message}</Error></Errors>"
        return "text/xml", f"<Response>{errors}<RequestID>local</RequestID></Response>"
    if service == "s3":
        return "application/xml", f"<Error>{code_and_message}<RequestId>local</RequestId></Error>"
    if service in QUERY_SERVICES:
        error = f"<Error><Type>{side}</Type>{code_and_message}</Error>"
        return "text/xml", f"<ErrorResponse>{error}<RequestId>local</RequestId></ErrorResponse>"
    return "application/x-amz-json-1.1", json.dumps({"__type": code, "message": message})
