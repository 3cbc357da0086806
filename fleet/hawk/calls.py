"""One call with one token, as each of the two clients makes it: what goes in and comes out as JSON, and how it fails.

A client decides nothing: what a status means, whether to ask again and what a person reads is up to `connect`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Refusal(Exception):
    """Hawk answered with a status that is no success."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(status)  # not what it said, which may quote a secret
        self.status = status
        self.said = said


class NoAnswer(Exception):
    """No answer came, or not whole."""


class NotHawk(Exception):
    """An answer came that isn't Hawk's: a proxy's page, or the web viewer's."""


class HawkCalls(Protocol):
    """A client. Every call raises Refusal, NoAnswer and NotHawk, and nothing else."""

    @property
    def address(self) -> str:
        """The API's address, without a slash at its end."""

    def job_status(self, token: str, eval_set: str) -> Any:
        """`GET /monitoring/jobs/{id}/job-status`; None where Hawk knows no such id."""

    def eval_set_status(self, token: str, eval_set: str) -> Any:
        """`GET /monitoring/jobs/{id}/eval-set-status`, without its envelope."""

    def create(
        self,
        token: str,
        config: Mapping[str, Any] | None,
        eval_set: str | None,
        secrets: Mapping[str, str],
        renewal: str | None,
    ) -> Any:
        """`POST /eval_sets/`: a configuration launches, an id without one resumes. `renewal`: a refresh token for the runner."""

    def stop(self, token: str, eval_set: str) -> None:
        """`POST /eval_sets/{id}/stop`; samples under way become errors."""

    def delete(self, token: str, eval_set: str) -> None:
        """`DELETE /eval_sets/{id}`."""

    def log_files(self, token: str, eval_set: str) -> Any:
        """The files of `GET /view/logs/logs`."""

    def log_urls(self, token: str, names: Sequence[str]) -> list[str]:
        """`POST /view/logs/log-download-urls`, of at most 1,000 logs: signed addresses in the order of the names."""

    def runner_log(self, token: str, eval_set: str, lines: int) -> Any:
        """The entries of `GET /monitoring/jobs/{id}/logs`, newest first."""


def words(text: str) -> str:
    """What the body of a refusal says, in one line.

    Hawk has two forms: problem+json with a title and a detail, and FastAPI's own, whose `detail` is a text or one entry a fault.
    """
    try:
        body = json.loads(text)
    except ValueError:
        return " ".join(text.split()) if "<html" not in text.lower() else "a web page"
    if not isinstance(body, dict):
        return " ".join(text.split())
    detail = body.get("detail")
    if isinstance(detail, list):
        return "; ".join(_fault(entry) for entry in detail)
    parts = [part for part in (body.get("title"), detail) if isinstance(part, str) and part]
    return " ".join(": ".join(parts or [text]).split())


def _fault(entry: Any) -> str:
    """One fault by its place and message; never its `input`, which may be a secret."""
    if not isinstance(entry, dict):
        return str(entry)
    place = ".".join(str(part) for part in entry.get("loc", ()) if part != "body")
    return f"{place}: {entry.get('msg', '')}" if place else str(entry.get("msg", ""))
