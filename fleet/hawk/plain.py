"""Hawk's API over plain HTTP: for every Python that Hawk's own client isn't there for."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from fleet.hawk.calls import NoAnswer, NotHawk, Refusal, words

ANSWER_S = 60.0
LAUNCH_S = 300.0
"""Before it answers, a launch resolves every package and waits for the cluster: Hawk's own client waits as long."""

_longest: ContextVar[float] = ContextVar("longest", default=LAUNCH_S)


@contextmanager
def answers_within(seconds: float) -> Iterator[None]:
    """A block in which no call of either client waits longer for its answer."""
    before = _longest.set(seconds)
    try:
        yield
    finally:
        _longest.reset(before)


def longest(seconds: float) -> float:
    """How long a call waits now that would wait so many seconds by itself."""
    return min(seconds, _longest.get())


@cache
def tls() -> ssl.SSLContext:
    """For every call of this process: to read the list of authorities takes longer than most calls."""
    return httpx.create_ssl_context()


class PlainCalls:
    """`HawkCalls` over httpx."""

    def __init__(self, address: str) -> None:
        self.address = address

    def job_status(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        try:
            return self._json(token, "GET", f"/monitoring/jobs/{_quoted(eval_set)}/job-status")
        except Refusal as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def eval_set_status(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        return self._part("data", token, "GET", f"/monitoring/jobs/{_quoted(eval_set)}/eval-set-status")

    def create(
        self,
        token: str,
        config: Mapping[str, Any] | None,
        eval_set: str | None,
        secrets: Mapping[str, str],
        renewal: str | None,
    ) -> Any:
        """See `HawkCalls`."""
        asked = {"eval_set_config": config, "eval_set_id": eval_set, "secrets": dict(secrets), "refresh_token": renewal}
        return self._json(token, "POST", "/eval_sets/", json=asked, timeout=LAUNCH_S)

    def stop(self, token: str, eval_set: str) -> None:
        """See `HawkCalls`."""
        self._call(token, "POST", f"/eval_sets/{_quoted(eval_set)}/stop", json={"action": "error"})

    def delete(self, token: str, eval_set: str) -> None:
        """See `HawkCalls`."""
        self._call(token, "DELETE", f"/eval_sets/{_quoted(eval_set)}")

    def log_files(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        return self._part("files", token, "GET", "/view/logs/logs", params={"log_dir": eval_set})

    def log_urls(self, token: str, names: Sequence[str]) -> list[str]:
        """See `HawkCalls`."""
        urls = self._part("urls", token, "POST", "/view/logs/log-download-urls", json={"logs": list(names)})
        try:
            return [str(entry["url"]) for entry in urls]
        except (TypeError, KeyError) as error:
            raise NotHawk("it names no addresses") from error

    def runner_log(self, token: str, eval_set: str, lines: int) -> Any:
        """See `HawkCalls`."""
        params = {"sort": "desc", "limit": str(lines)}
        return self._part("entries", token, "GET", f"/monitoring/jobs/{_quoted(eval_set)}/logs", params=params)

    def _part(self, name: str, token: str, method: str, path: str, **what: Any) -> Any:
        answer = self._json(token, method, path, **what)
        if not isinstance(answer, dict) or name not in answer:
            raise NotHawk(f"it has no {name}")
        return answer[name]

    def _json(self, token: str, method: str, path: str, **what: Any) -> Any:
        answer = self._call(token, method, path, **what)
        try:
            return answer.json()
        except ValueError as error:
            raise NotHawk("it isn't JSON") from error

    def _call(self, token: str, method: str, path: str, *, timeout: float = ANSWER_S, **what: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        timeout = longest(timeout)
        try:
            answer = httpx.request(method, self.address + path, headers=headers, timeout=timeout, verify=tls(), **what)
        except httpx.TimeoutException as error:
            raise NoAnswer(f"no answer within {timeout:g} s") from error
        except httpx.HTTPError as error:
            raise NoAnswer(str(error)) from error
        if not answer.is_success:
            raise Refusal(answer.status_code, words(answer.text))
        return answer


def _quoted(eval_set: str) -> str:
    return quote(eval_set, safe="")
