"""Hawk's API through Hawk's own client, `hawk.client`: there with the extra `hawk`, on Python 3.13 or newer.

What that client checks in an answer is checked with it; what it gives back becomes JSON again, so that one code reads both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar

from anyio import fail_after
from anyio.from_thread import start_blocking_portal
from hawk.client import HawkAPIError, HawkClient, HawkClientError

from fleet.hawk.calls import NoAnswer, NotHawk, Refusal, words
from fleet.hawk.plain import ANSWER_S, LAUNCH_S, longest

T = TypeVar("T")


class PackageCalls:
    """`HawkCalls` over `hawk.client.HawkClient`. One client a call: a client keeps the token that it began with."""

    def __init__(self, address: str) -> None:
        self.address = address

    def job_status(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        status = self._call(token, lambda client: client.get_job_status(eval_set))
        return None if status is None else status.model_dump(mode="json")

    def eval_set_status(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        return self._call(token, lambda client: client.get_eval_set_status(eval_set)).model_dump(mode="json")

    def create(
        self,
        token: str,
        config: Mapping[str, Any] | None,
        eval_set: str | None,
        secrets: Mapping[str, str],
        renewal: str | None,
    ) -> Any:
        """See `HawkCalls`."""
        return self._call(
            token,
            lambda client: client.create_eval_set(
                config, eval_set_id=eval_set, secrets=dict(secrets), refresh_token=renewal
            ),
            timeout=LAUNCH_S,
        )

    def stop(self, token: str, eval_set: str) -> None:
        """See `HawkCalls`."""
        self._call(token, lambda client: client.stop_eval_set(eval_set, error=True))

    def delete(self, token: str, eval_set: str) -> None:
        """See `HawkCalls`."""
        self._call(token, lambda client: client.delete_job(eval_set))

    def log_files(self, token: str, eval_set: str) -> Any:
        """See `HawkCalls`."""
        return self._call(token, lambda client: client.get_log_files(eval_set))

    def log_urls(self, token: str, names: Sequence[str]) -> list[str]:
        """See `HawkCalls`."""

        async def urls(client: HawkClient) -> list[str]:
            return [url async for url, _ in client.get_download_urls(list(names))]

        return self._call(token, urls)

    def runner_log(self, token: str, eval_set: str, lines: int) -> Any:
        """See `HawkCalls`."""
        entries = self._call(token, lambda client: client.fetch_logs(eval_set, limit=lines))
        return [entry.model_dump(mode="json") for entry in entries]

    def _call(self, token: str, call: Callable[[HawkClient], Awaitable[T]], *, timeout: float = ANSWER_S) -> T:
        timeout = longest(timeout)

        async def make() -> T:
            # The client's own timeout has no effect: it hands aiohttp None with each request, which is none.
            async with _failing_as_ours():
                try:
                    with fail_after(timeout):
                        async with HawkClient(api_url=self.address, token=token, timeout=timeout) as client:
                            return await call(client)
                except TimeoutError as error:
                    raise NoAnswer(f"no answer within {timeout:g} s") from error

        # A thread of its own: the caller's may have a loop that runs already.
        with start_blocking_portal() as portal:
            return portal.call(make)


@asynccontextmanager
async def _failing_as_ours() -> AsyncIterator[None]:
    try:
        yield
    except HawkAPIError as error:
        # Of a problem+json its title and detail; of anything else the status line, and below it the body.
        status_line = f"{error.status} "
        body = error.message.partition("\n")[2] if error.message.startswith(status_line) else error.message
        # Neither this error nor pydantic's stays in the chain, which Prefect logs whole: they quote what Hawk said.
        raise Refusal(error.status, words(body or _phrase(error.status))) from None
    except HawkClientError as error:
        if error.__cause__ is not None:
            raise NoAnswer(str(error).partition(": ")[2] or "no answer in time") from error
        raise NotHawk(str(error)) from error
    except ValueError as error:  # pydantic's for fields, json's for no JSON
        raise NotHawk(f"Hawk's client can't read it ({type(error).__name__})") from None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
