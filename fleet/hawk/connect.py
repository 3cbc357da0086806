"""The one code path to a Hawk deployment, above whichever client makes its calls.

A token is kept until Hawk doesn't take it (401); then its source is asked again, once a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError

from fleet.errors import RequestRefused
from fleet.hawk.api import (
    Answer,
    EvalSetStatus,
    HawkApi,
    HawkConflict,
    HawkError,
    HawkFailed,
    HawkForbidden,
    HawkInvalid,
    HawkRefusedLogin,
    HawkUnreachable,
    JobStatus,
    Submitted,
)
from fleet.hawk.calls import HawkCalls, NoAnswer, NotHawk, Refusal
from fleet.hawk.plain import PlainCalls, tls
from fleet.hawk.tokens import Tokens, expiry
from fleet.wire import explain

LONGEST = 1_000
"""Characters of Hawk's own words in a message; a helm failure has pages."""
SHORTEST_HIDDEN = 4
"""Of a secret: a shorter one is in every text."""
SHORTEST_LINE = 16
"""Of a secret of several lines, as private keys are: who quotes it may do so line by line."""
URLS_AHEAD = 8
"""Logs whose addresses are asked for at once: the last one's must not end (after 15 minutes) while the others are fetched."""
DOWNLOAD = httpx.Timeout(60.0, read=300.0)

KINDS: Mapping[int, type[HawkError]] = {
    HTTPStatus.UNAUTHORIZED: HawkRefusedLogin,
    HTTPStatus.FORBIDDEN: HawkForbidden,
    HTTPStatus.CONFLICT: HawkConflict,
}

T = TypeVar("T")
A = TypeVar("A", bound=Answer)


class HawkAddressRefused(RequestRefused):
    """What should be the API's address isn't one."""

    address: str

    def message(self) -> str:
        """One line, with what it would be."""
        return (
            f"{self.address!r} is no address of a Hawk API; it would be as https://api.hawk.example.org, in the Hawk Deployment "
            "block or in HAWK_API_URL"
        )


def connect(address: str, tokens: Tokens) -> HawkApi:
    """The deployment at `address`. Nothing is asked yet. HawkAddressRefused."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        good = good and not (parts.query or parts.fragment) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        # Without a user's name and password, which an address may hold.
        raise HawkAddressRefused(address=f"…@{address.rpartition('@')[2]}" if "@" in address else address)
    return Hawk(calls_for(address.rstrip("/")), tokens.access, tokens.renewal)


def calls_for(address: str) -> HawkCalls:
    """Hawk's own client where it is installed, plain HTTP elsewhere."""
    try:
        from fleet.hawk.package import PackageCalls
    except ImportError:
        return PlainCalls(address)
    return PackageCalls(address)


class Hawk:
    """`HawkApi` above a client's calls."""

    def __init__(self, calls: HawkCalls, access: Callable[[], str], renewal: Callable[[], str] = str) -> None:
        """`access` gives a token that is good now, `renewal` what a runner renews its own by, or nothing."""
        self._calls = calls
        self._access, self._renewal = access, renewal
        self._token = ""

    @property
    def address(self) -> str:
        """See `HawkApi`."""
        return self._calls.address

    def job_status(self, eval_set: str) -> JobStatus | None:
        """See `HawkApi`."""
        asked = f"the status of {eval_set}"
        answer = self._ask(asked, lambda token: self._calls.job_status(token, eval_set))
        return None if answer is None else self._read(JobStatus, answer, asked)

    def eval_set_status(self, eval_set: str) -> EvalSetStatus:
        """See `HawkApi`."""
        asked = f"the progress of {eval_set}"
        return self._read(
            EvalSetStatus, self._ask(asked, lambda token: self._calls.eval_set_status(token, eval_set)), asked
        )

    def submit(self, eval_set: str, config: Mapping[str, Any], *, secrets: Mapping[str, str]) -> Submitted:
        """See `HawkApi`."""
        # Inside the configuration the id is what a new eval set is to have; beside it, one to resume.
        return self._create(f"a launch of {eval_set}", {**config, "eval_set_id": eval_set}, None, secrets)

    def resume(self, eval_set: str, *, secrets: Mapping[str, str]) -> Submitted:
        """See `HawkApi`."""
        return self._create(f"a resume of {eval_set}", None, eval_set, secrets)

    def stop(self, eval_set: str) -> None:
        """See `HawkApi`."""
        self._ask(f"a stop of {eval_set}", lambda token: self._calls.stop(token, eval_set))

    def delete(self, eval_set: str) -> None:
        """See `HawkApi`."""

        def call(token: str) -> None:
            try:
                self._calls.delete(token, eval_set)
            except Refusal as refusal:
                if refusal.status != HTTPStatus.NOT_FOUND:
                    raise

        self._ask(f"the end of {eval_set}", call)

    def log_names(self, eval_set: str) -> list[str]:
        """See `HawkApi`."""
        asked = f"the logs of {eval_set}"
        try:
            files = self._ask(asked, lambda token: self._calls.log_files(token, eval_set))
        except HawkInvalid as error:
            if isinstance(error.__cause__, Refusal) and error.__cause__.status == HTTPStatus.NOT_FOUND:
                return []  # Inspect's viewer, which answers this, has no such folder yet
            raise
        try:
            names = [str(file["name"]) for file in files]
        except (TypeError, KeyError) as error:
            raise self._not_hawk(asked, "it names no logs") from error
        return sorted(name for name in names if name.endswith(".eval"))

    def download(self, names: Sequence[str], folder: Path) -> list[Path]:
        """See `HawkApi`."""
        targets = {name: folder / PurePosixPath(name).name for name in names}
        owed = [name for name, target in targets.items() if not target.exists()]
        for begin in range(0, len(owed), URLS_AHEAD):
            for name, url in self._urls(owed[begin : begin + URLS_AHEAD]):
                self._fetch(name, url, targets[name])
        return list(targets.values())

    def last_words(self, eval_set: str, lines: int) -> list[str]:
        """See `HawkApi`."""
        asked = f"the runner's log of {eval_set}"
        entries = self._ask(asked, lambda token: self._calls.runner_log(token, eval_set, lines))
        try:
            return [str(entry["message"]) for entry in reversed(entries)]
        except (TypeError, KeyError) as error:
            raise self._not_hawk(asked, "it has no messages") from error

    def _create(
        self, asked: str, config: Mapping[str, Any] | None, eval_set: str | None, secrets: Mapping[str, str]
    ) -> Submitted:
        renewal = self._renewal()
        hidden = {**secrets, "refresh token": renewal}
        answer = self._ask(
            asked, lambda token: self._calls.create(token, config, eval_set, secrets, renewal or None), hidden
        )
        submitted = self._read(Submitted, answer, asked)
        until = None if renewal else expiry(self._token)
        if until is None:
            return submitted
        ends = (
            f"the runner asks models with this token, which ends at {until:%Y-%m-%d %H:%M} UTC, and can't renew it: calls after "
            "that fail. Where runs are to last longer, leave the token out and `hawk login` instead"
        )
        return submitted.model_copy(update={"warnings": [*submitted.warnings, ends]})

    def _urls(self, names: Sequence[str]) -> list[tuple[str, str]]:
        asked = f"the addresses of {len(names)} logs"
        urls = self._ask(asked, lambda token: self._calls.log_urls(token, names))
        if len(urls) != len(names):
            raise self._not_hawk(asked, f"it names {len(urls)}")
        return list(zip(names, urls, strict=True))

    def _fetch(self, name: str, url: str, target: Path) -> None:
        """One log. Its address is as good as a password, and belongs to another server: it gets no token, and no error says it."""
        part = target.with_name(f".{target.name}.part")
        whole = False
        try:
            with httpx.stream("GET", url, timeout=DOWNLOAD, verify=tls()) as answer:
                if not answer.is_success:  # whatever it says: Hawk gives another address, which may be good
                    why = f"its store says {answer.status_code}"
                    raise HawkFailed(address=self.address, asked=f"the log {name}", why=why)
                with part.open("wb") as file:
                    for piece in answer.iter_bytes(1 << 20):
                        file.write(piece)
            whole = True
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = f"its store doesn't answer ({type(error).__name__})"
            raise HawkUnreachable(address=self.address, asked=f"the log {name}", why=why) from None
        finally:
            if not whole:
                part.unlink(missing_ok=True)
        part.replace(target)

    def _ask(self, asked: str, call: Callable[[str], T], secrets: Mapping[str, str] | None = None) -> T:
        """What the call gives, with a token that is asked for again where Hawk doesn't take the one we have."""
        for again in (False, True):
            if again or not self._token:
                self._token = self._access()
            try:
                return call(self._token)
            except Refusal as refusal:
                if refusal.status == HTTPStatus.UNAUTHORIZED and not again:
                    continue
                refusal.said = without(refusal.said, secrets or {})[:LONGEST]
                raise self._refused(asked, refusal) from refusal
            except NoAnswer as error:
                raise HawkUnreachable(address=self.address, asked=asked, why=str(error) or "no answer") from error
            except NotHawk as error:
                raise self._not_hawk(asked, str(error)) from error
        raise AssertionError("two rounds end in an answer or an error")

    def _refused(self, asked: str, refusal: Refusal) -> HawkError:
        if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR or refusal.status < HTTPStatus.BAD_REQUEST:
            kind: type[HawkError] = HawkFailed
        else:
            kind = KINDS.get(refusal.status, HawkInvalid)
        said = f": {refusal.said.rstrip('.')}" if refusal.said else ""
        return kind(address=self.address, asked=asked, why=f"{refusal.status}{said}")

    def _read(self, kind: type[A], answer: Any, asked: str) -> A:
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            raise self._not_hawk(asked, explain(error)) from None  # which quotes the answer

    def _not_hawk(self, asked: str, why: str) -> HawkFailed:
        what = f"it answers what isn't Hawk's ({why}): is this the address of its API, and a Hawk of 3.7.2 or later?"
        return HawkFailed(address=self.address, asked=asked, why=what)


def without(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with the name of each secret in place of its value, and of each long line of it."""
    hidden = [(name, value) for name, value in secrets.items() if len(value) >= SHORTEST_HIDDEN]
    hidden += [
        (name, line.strip())
        for name, value in hidden
        for line in value.splitlines()
        if len(line.strip()) >= SHORTEST_LINE
    ]
    for name, value in sorted(hidden, key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    return text
