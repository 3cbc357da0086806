"""A process that is told to end while its Prefect server is away, with sleeps in place of what Prefect tries."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from fleet.backends.farewell import short_farewell

CHILD = """
import signal, sys, time
from prefect.exceptions import TerminationSignal
from fleet.backends import farewell

farewell.AGAIN_S = 0.5
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it

def ends(number, frame):
    raise TerminationSignal(signal=number)

def tell_the_server():
    time.sleep(120)

def a_flow():
    signal.signal(signal.SIGTERM, ends)  # as Prefect's engine does
    try:
        print("running", flush=True)
        time.sleep(120)
    except BaseException:
        tell_the_server()

try:
    with farewell.short_farewell(lambda line: print(line, flush=True)):
        try:
            a_flow()
        except BaseException:
            tell_the_server()
            raise
except BaseException as error:
    print("ended by", type(error).__name__, flush=True)
    time.sleep(1)  # nobody is reminded any more
    print("undisturbed", flush=True)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("told", "error"), [(signal.SIGTERM, "TerminationSignal"), (signal.SIGINT, "KeyboardInterrupt")]
)
@pytest.mark.fault("end-without-prefect")
def test_what_tells_a_server_that_is_away_is_cut_short(told: signal.Signals, error: str) -> None:
    """Flow in flow: each tells its server by itself. The exception that ends the process is the one that began it."""
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    began = time.monotonic()
    process.send_signal(told)
    said, _ = process.communicate()
    assert time.monotonic() - began < 30
    assert said.splitlines() == [
        "the Prefect server doesn't answer: the flow run has ended, and is shown there as if it went on",
        f"ended by {error}",
        "undisturbed",
    ]


def test_a_run_that_nobody_ends_leaves_signals_as_they_were() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with short_farewell(lambda line: None):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_elsewhere_than_in_the_main_thread_nothing_is_done() -> None:
    seen: list[object] = []

    def work() -> None:
        with short_farewell(lambda line: None):
            seen.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [signal.getsignal(signal.SIGALRM)]
