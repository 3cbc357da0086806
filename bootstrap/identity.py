"""Who this instance is, by the instance metadata service, version 2 only (a session token with each question).

Standard library only: `boot` asks before anything else is loaded.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

from fleet.errors import FleetError

ADDRESS = "http://169.254.169.254"
TOKEN_SECONDS = 21_600
"""The longest life the service grants a token."""
TRIES = 5
"""The service may come up after the first programs of a boot."""
MOST_BYTES = 65_536
"""Of one answer: what is longer is none of the service's."""
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,32}")
_TOKEN = re.compile(r"[!-;=-~]+")
"""What may stand in a header, without the sign by which a page begins."""


class MetadataUnclear(OSError):
    """Something answered for the metadata service, in a way that it doesn't: a proxy's page, most likely. As good as no answer."""


class InstanceUnknown(FleetError):
    """The metadata service gave no instance id: this is no instance, or its metadata options are wrong."""

    endpoint: str
    why: str

    def message(self) -> str:
        """One line: who was asked, what came, what to look at."""
        return (
            f"no instance id from the metadata service at {self.endpoint}: {self.why}. Is this an EC2 instance with "
            "its metadata service switched on?"
        )


class Metadata:
    """The metadata service of this instance. Not for the machine that launches: what answers there is another's."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        tries: int = TRIES,
        timeout: float = 3.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ADDRESS).rstrip("/")
        self.disabled = environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        self._tries = tries
        self._timeout = timeout
        self._sleep = sleep
        self._token: str | None = None
        # A proxy in the environment must not see tokens, nor can it reach a link-local address.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def get(self, path: str) -> str | None:
        """The metadata at `path` (`placement/region`); None where there is none. OSError: the service doesn't answer."""
        for fresh in (False, True):
            token = self._token = self._token or self._new_token()
            try:
                return self._ask("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": token})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                self._token = None  # whatever is wrong, it may be the token
                if error.code != 401 or fresh:  # 401: it has run out
                    raise
        return None  # not reached: the second round returns or raises

    def instance_id(self) -> str:
        """This instance's id. InstanceUnknown: after `tries`, each a second or more after the one before."""
        if self.disabled:
            raise InstanceUnknown(endpoint=self.endpoint, why="AWS_EC2_METADATA_DISABLED is set")
        why = "it was not asked"
        for attempt in range(self._tries):
            if attempt:
                self._sleep(attempt)
            try:
                found = self.get("instance-id")
            except OSError as error:  # HTTPError and URLError are OSErrors; so is a timeout
                why = str(error)
                continue
            if found is not None and _INSTANCE_ID.fullmatch(found.strip()):
                return found.strip()
            why = "it has none" if found is None else f"it answered {found.strip()[:40]!r}"
        raise InstanceUnknown(endpoint=self.endpoint, why=f"{why} ({self._tries} tries)")

    def _new_token(self) -> str:
        token = self._ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)})
        if not _TOKEN.fullmatch(token):
            raise MetadataUnclear(f"{token[:40]!r} is no session token")
        return token

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> str:
        request = urllib.request.Request(  # noqa: S310  the endpoint is the operator's
            f"{self.endpoint}/latest/{path}", method=method, headers=headers
        )
        try:
            with self._open(request, timeout=self._timeout) as answer:
                text = bytes(answer.read(MOST_BYTES)).decode()
                if answer.length:  # what is left of what was announced
                    raise MetadataUnclear("its answer is broken off, or too long")
                return text
        except (http.client.HTTPException, UnicodeDecodeError) as error:
            raise MetadataUnclear(f"its answer can't be read ({type(error).__name__})") from error
