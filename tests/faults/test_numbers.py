"""The numbers that `docs/faults.md` promises are those by which the product goes."""

from __future__ import annotations

import pytest

from bootstrap.guard import BAD_LOOKS, GIVE_UP_SECONDS, LOOK_SECONDS
from bootstrap.lease import LEAVE_SECONDS
from bootstrap.notices import FINISH_SECONDS, MARGIN_SECONDS
from bootstrap.partial import ENDING_SECONDS, MOST_BYTES
from bootstrap.secrets import PATIENCE
from bootstrap.slots import ROUND_S
from fleet.account.heartbeat import SILENCE
from fleet.aws.queues import MOST_LEASE_SECONDS
from fleet.backends.farewell import AGAIN_S
from fleet.evals.attempts import LONGEST_DELAY, MOST_FAILURES, POISON_DEATHS, RATE_LIMIT_FAILURES
from fleet.evals.dead_letters import MOST_TAKEN
from fleet.evals.lock import HOLD_S
from fleet.evals.steps import FAILURE_SHARE, FIRST_JOBS, LAUNCH_S
from fleet.pool.clean_up import SILENCE_S
from fleet.reaper.verdict import GRACE_S, OVERDUE_S
from flows.watch import PATIENCE_S
from tests.faults.table import PAGE, faults


def word(number: float) -> str:
    words = {0.5: "half an", 1: "an", 2: "two", 3: "three", 4: "four", 5: "five", 9: "nine", 10: "ten"}
    return words.get(number, f"{number:g}")


def ordinal(number: int) -> str:
    return {3: "third", 6: "sixth", 10: "tenth"}.get(number, f"{number}th")


NUMBERS = {
    "no-answer": [f"looks again for {word(PATIENCE_S / 60)} minutes"],
    "no-answer-cleaning-up": [f"asked for {word(SILENCE_S)} seconds"],
    "end-without-prefect": [f"tried for {word(AGAIN_S)} seconds"],
    "throttled": [f"go on for {word(PATIENCE_S / 60)} minutes"],
    "secret-late": [f"after {PATIENCE / 60:.0f} minutes"],
    "spot-notice": [f"{MARGIN_SECONDS:.0f} s before the end"],
    "rebalance": [f"may finish for {word(FINISH_SECONDS / 3600)} hour"],
    "host-bad": [f"at {word(BAD_LOOKS)} looks in a row (every {LOOK_SECONDS:.0f} s)"],
    "host-stays-bad": [f"for {word(GIVE_UP_SECONDS / 60)} minutes"],
    "poison-job": [f"{word(POISON_DEATHS)} workers", f"before a {ordinal(POISON_DEATHS + 1)} runs it"],
    "dead-letter": [f"taken {MOST_TAKEN} times"],
    "twelve-hours": [f"the {MOST_LEASE_SECONDS / 3600:.0f} hours", f"for {word(LEAVE_SECONDS / 60)} minutes"],
    "partial-log": [f"({MOST_BYTES / 2**20:.0f} MB at most, {ENDING_SECONDS:.0f} s for the runner"],
    "job-fails": [f"until the {ordinal(MOST_FAILURES)} failure", f"until the {ordinal(RATE_LIMIT_FAILURES)}"],
    "rate-limit": [f"each round of {ROUND_S:.0f} s", f"({LONGEST_DELAY} s apart at most)"],
    "failing-jobs": [f"more than {FAILURE_SHARE:.0%} of jobs ({word(FIRST_JOBS)} at least)"],
    "no-workers": [f"within {LAUNCH_S / 60:.0f} minutes"],
    "controller-killed": [f"After {word(SILENCE.total_seconds() / 60)} minutes without a heartbeat"],
    "leftovers": [
        f"{OVERDUE_S / 60:.0f} minutes past its expiry ({(HOLD_S + OVERDUE_S) / 60:.0f} without a renewal)",
        f"removed {word(GRACE_S / 3600)} hour later",
    ],
}


@pytest.mark.parametrize("key", NUMBERS)
def test_what_is_promised_is_what_the_code_goes_by(key: str) -> None:
    (row,) = (row for row in faults(PAGE.read_text()) if row.key == key)
    assert [phrase for phrase in NUMBERS[key] if phrase not in f"{row.event}; {row.expectation}"] == []
