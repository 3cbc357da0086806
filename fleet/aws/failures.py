"""What it means when AWS doesn't do as asked: error codes in named sets, and one family of errors for every room.

A failure is classed by its code alone, never by its text. botocore's own errors stay inside `fleet.aws`: callers see

    AwsRefused            any failure of a call; `code` says which
    ├── Throttled         asked too often: the same call may be good later
    ├── Denied            the identity lacks a permission
    ├── CredentialsBad    no credentials, or ones that AWS doesn't take (any more)
    └── Unreachable       no answer: network, address, or time
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fleet.errors import FleetError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TooManyUpdates",
    }
)
"""Asked too often. The first eleven are botocore's; the last is SSM's, for two writers of one parameter."""

DENIED = frozenset(
    {
        "403",  # a HEAD has no body, so that S3 can only answer with the status
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthorizationError",
        "UnauthorizedException",
        "UnauthorizedOperation",
    }
)
"""The identity is known and may not do this."""

NOT_VALIDATED = frozenset({"AuthFailure"})
"""EC2's word for what no permission would change: credentials that it can't validate (wrong ones, a wrong clock, a region that is
off for the account), and an image, subnet or group that another account doesn't share.
"""

BAD_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
"""The identity isn't known, or no longer."""

NO_CREDENTIALS = frozenset(
    {
        "CredentialRetrievalError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
"""botocore's errors, by class name, for credentials that are missing before anything was asked."""

NO_ANSWER = frozenset(
    {
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ConnectionError",
        "EndpointConnectionError",
        "HTTPClientError",
        "IncompleteReadError",
        "ProxyConnectionError",
        "ReadTimeoutError",
        "ResponseParserError",  # an answer, but none of AWS's: a proxy's page. AWS may have done what was asked
        "ResponseStreamingError",
        "SSLError",
    }
)
"""botocore's errors, by class name, for an answer that didn't come, or not whole."""

SERVER_TROUBLE = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "Unavailable",
        "500",
        "502",
        "503",
        "504",
    }
)
"""AWS's own fault, which doesn't say whether it did as asked. An answer without a readable body has its HTTP status as its code."""

PASSING = THROTTLED | NO_ANSWER | SERVER_TROUBLE
"""What time mends."""


RENEWAL = (
    "(`aws sso login`, or the AWS_* variables); a wrong clock, or a region that isn't switched on, spoils good ones too"
)
"""What helps against credentials that AWS doesn't take."""


class AwsRefused(FleetError):
    """AWS didn't do as asked. Raised for codes without a class of their own; the base of those that have one."""

    service: str
    operation: str
    """The API operation, such as PutParameter; empty where nothing was asked yet."""
    code: str
    """AWS's error code; for an answer that never came, the class of botocore's error."""
    target: str
    """What it was asked about: a name, an id, an address, with the region where that helps."""
    why: str

    def message(self) -> str:
        """One line: the call, what it was about, and AWS's own words."""
        call = f"{self.service} {self.operation}".strip()
        about = f" of {self.target}" if self.target else ""
        return f"{call}{about} failed: {self.code}{f': {self.why}' if self.why else ''}"


class Throttled(AwsRefused):
    """Asked too often, and botocore's retries didn't help: wait, then ask again."""


class Denied(AwsRefused):
    """The AWS identity lacks the permission: give it, or use another identity."""


class CredentialsBad(AwsRefused):
    """No AWS credentials, or expired or unknown ones: log in again."""

    def message(self) -> str:
        """One line, with what helps."""
        return f"{super().message()}. Renew the AWS credentials {RENEWAL}"


class Unreachable(AwsRefused):
    """No answer from AWS: network, region name, endpoint address, or a proxy that answers in its place."""


def refused(error: Exception, *, service: str, target: str = "", why: str | None = None) -> AwsRefused:
    """The error of this family that `error` is, one of `botocore_errors`, not raised yet. `why` stands in for AWS's own words."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        code, operation = code_of(error), error.operation_name
        text = error.response.get("Error", {}).get("Message", "")
    else:
        code, operation = _name_of(error), ""
        text = _UNQUOTED.get(code, str(error))
    kind = _KIND.get(code, AwsRefused)
    return kind(
        service=service, operation=operation, code=code, target=target, why=one_line(text) if why is None else why
    )


@contextmanager
def calling(service: str, target: str = "") -> Iterator[None]:
    """Around calls of one service: whatever botocore raises inside leaves as an `AwsRefused` about `target`."""
    try:
        yield
    except botocore_errors() as error:
        raise refused(error, service=service, target=target) from error


def botocore_errors() -> tuple[type[Exception], ...]:
    """What botocore raises for a call that failed. The last one isn't of its own family: an answer that can't be read."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return ClientError, BotoCoreError, ResponseParserError


def refuse_what_is_no_json(response_dict: Mapping[str, Any], **_: object) -> None:
    """To be registered with a client's `before-parse`: botocore takes a page of HTML for a JSON answer in which all is left out.

    ResponseParserError. An answer that says of itself that it failed is classed by its status.
    """
    from botocore.parsers import ResponseParserError

    body = response_dict["body"]
    if response_dict["status_code"] >= HTTPStatus.MULTIPLE_CHOICES or not isinstance(body, bytes) or not body:
        return
    try:
        json.loads(body)
    except ValueError:
        raise ResponseParserError("no JSON") from None


def code_of(error: ClientError) -> str:
    """AWS's code for a failed call, empty where it sent none."""
    return error.response.get("Error", {}).get("Code", "")


_KIND: dict[str, type[AwsRefused]] = {
    **dict.fromkeys(THROTTLED, Throttled),
    **dict.fromkeys(DENIED, Denied),
    **dict.fromkeys(BAD_CREDENTIALS | NO_CREDENTIALS, CredentialsBad),
    **dict.fromkeys(NO_ANSWER, Unreachable),
}


_UNQUOTED = {
    # A refused argument is quoted with its value, which may be a secret; an answer with the whole page.
    "ParamValidationError": "an argument isn't what the API takes",
    "ResponseParserError": "the answer isn't one of AWS's: does a proxy stand between?",
}


def _name_of(error: Exception) -> str:
    """The class of a botocore error; of its nearest ancestor that one of the sets names, if one does."""
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((name for name in names if name in _KIND), names[0])


def one_line(text: str) -> str:
    """AWS's own words in one line, without their full stop."""
    # EC2 appends some kilobytes that only sts:DecodeAuthorizationMessage can read.
    text = text.partition(" Encoded authorization failure message:")[0]
    return re.sub(r"\s+", " ", text).strip().rstrip(".")
