from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import anyio
import pytest
from prefect.exceptions import TerminationSignal

from bootstrap.stopping import stop_on_sigterm


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


async def told_to_stop(error: Exception | None = None) -> None:
    with stop_on_sigterm() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        if error:
            raise error


def test_sigterm_sets_the_event_and_the_end_of_the_block_tells_prefect() -> None:
    async def main() -> None:
        with pytest.raises(TerminationSignal):
            await told_to_stop()
        os.kill(os.getpid(), signal.SIGTERM)  # a second one: the first is being obeyed

    anyio.run(main)


def test_without_a_signal_the_handler_that_was_there_is_back() -> None:
    def prefects(*_: object) -> None:
        raise AssertionError

    signal.signal(signal.SIGTERM, prefects)

    async def main() -> None:
        with stop_on_sigterm() as stop:
            assert not stop.is_set()

    anyio.run(main)
    assert signal.getsignal(signal.SIGTERM) is prefects


def test_an_error_in_the_block_is_not_hidden_by_the_signal() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="the cause"):
            await told_to_stop(ValueError("the cause"))

    anyio.run(main)
