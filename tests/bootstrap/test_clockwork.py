"""What a blocking call costs whoever waits for it, when it hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import anyio
import pytest

from bootstrap import clockwork
from bootstrap.clockwork import real_clockwork

SOON = 0.02


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """What the calls of a test wait for; set at its end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_without_a_deadline_is_waited_for_although_it_is_cancelled(over: threading.Event) -> None:
    """A message that it takes from a queue must not be lost."""
    answers: list[str] = []

    def call() -> str:
        over.wait(60)
        return "taken"

    async def ask() -> None:
        answers.append(await real_clockwork().in_thread(call))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(SOON)
            tasks.cancel_scope.cancel()
            threading.Timer(SOON, over.set).start()

    anyio.run(main)
    assert answers == ["taken"]


@pytest.mark.parametrize("shield", [True, False])
@pytest.mark.fault("hang")
def test_a_call_with_a_deadline_is_waited_for_no_longer(shield: bool, over: threading.Event) -> None:
    """Last words, and jobs that are given back: the bound holds although no thread can be ended."""

    async def main() -> bool:
        with anyio.move_on_after(SOON, shield=shield) as scope:
            await real_clockwork().in_thread(over.wait, 60)
        return scope.cancelled_caught

    assert anyio.run(main)
    assert not over.is_set()


def test_what_a_call_with_a_deadline_answers_in_time_is_its_answer() -> None:
    async def main() -> None:
        in_thread = real_clockwork().in_thread
        with anyio.fail_after(60):
            assert await in_thread(divmod, 7, 2) == (3, 1)
            with pytest.raises(ZeroDivisionError):
                await in_thread(divmod, 7, 0)

    anyio.run(main)


def test_calls_that_hang_are_counted_until_they_end(over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every new one would leave a thread behind; and those without a deadline don't stand behind them."""
    monkeypatch.setattr(clockwork, "THREADS", 2)
    begun: list[int] = []

    def call(number: int, then: Callable[[], object] = lambda: None) -> int:
        begun.append(number)
        then()
        over.wait(60)
        return number

    async def main() -> None:
        in_thread = real_clockwork().in_thread
        in_loop = asyncio.get_running_loop().call_soon_threadsafe
        for number in range(5):
            with anyio.move_on_after(60 if number < 2 else SOON) as scope:  # the first two until they have begun
                await in_thread(call, number, partial(in_loop, scope.cancel))
        assert begun == [0, 1]
        assert await in_thread(abs, -1) == 1
        over.set()
        with anyio.fail_after(60):
            assert await in_thread(call, 9) == 9

    anyio.run(main)


HANGS = """
import threading, anyio
from bootstrap.clockwork import real_clockwork

async def main():
    with anyio.move_on_after(0.02):
        await real_clockwork().in_thread(threading.Event().wait)
    print("over")

anyio.run(main)
"""


@pytest.mark.fault("hang")
def test_a_process_ends_although_a_call_of_it_hangs() -> None:
    """Python waits for anyio's own threads: the instance would run on, and be paid for."""
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "over\n"
