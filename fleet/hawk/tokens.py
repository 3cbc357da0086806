"""Where the token comes from that Hawk is asked with. It expires after hours, so that whoever asks may ask for it again.

A runner asks models with the token of whoever launched it, and needs one to renew that by (a refresh token) to outlive it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fleet.hawk.api import HawkLoginMissing

COMMAND = ("hawk", "auth")
"""Renews an expired login where it can, and never asks a person anything."""
COMMAND_S = 60.0


class Tokens:
    """The source for the deployment at `address`: `token` itself, else $HAWK_ACCESS_TOKEN, else Hawk's command."""

    def __init__(self, address: str, token: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._address, self._token = address, token
        self._environ = os.environ if environ is None else environ

    def access(self) -> str:
        """A token that is good now, as far as its source knows. HawkLoginMissing."""
        return self._given() or self._by_command("access-token")

    def renewal(self) -> str:
        """What a runner renews its token by; empty: there is none. Only the login has one that the token came from."""
        if self._given():
            return ""
        try:
            return self._by_command("refresh-token")
        except HawkLoginMissing:
            return ""

    def __repr__(self) -> str:
        return f"Tokens({self._address!r})"

    def _given(self) -> str:
        return self._token or self._environ.get("HAWK_ACCESS_TOKEN", "").strip()

    def _by_command(self, what: str) -> str:
        command = [*COMMAND, what]
        shown = " ".join(command)
        try:
            done = subprocess.run(
                command,
                env={**self._environ, "HAWK_API_URL": self._address},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMMAND_S,
            )
        except FileNotFoundError as error:
            raise self._missing("there is no command `hawk` to ask for one") from error
        except OSError as error:
            raise self._missing(f"the command `hawk` can't be started ({error.strerror})") from error
        except subprocess.TimeoutExpired as error:
            raise self._missing(f"`{shown}` didn't end within {COMMAND_S:g} s") from error
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        if done.returncode:
            why = said[-1].removeprefix("Error: ").rstrip(".") if said else f"exit code {done.returncode}"
            raise self._missing(f"`{shown}` says: {why}")
        printed = done.stdout.split()
        if not printed:
            raise self._missing(f"`{shown}` printed none")
        return printed[-1]

    def _missing(self, why: str) -> HawkLoginMissing:
        return HawkLoginMissing(address=self._address, why=why)


def expiry(token: str) -> datetime | None:
    """When a token ends, as it says itself; None: it isn't one that says so. Nothing is checked: that is the server's."""
    try:
        payload = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, OSError, binascii.Error):
        return None
