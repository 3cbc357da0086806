from __future__ import annotations

import pytest

from fleet.evals.attempts import FINAL, LONGEST_DELAY, MOST_FAILURES, RATE_LIMITED, after_failure, kind_of


def failures_until_final(kind: str) -> int:
    return next(number for number in range(1, 100) if after_failure(kind, number).final)


@pytest.mark.parametrize("kind", sorted(FINAL))
@pytest.mark.fault("job-fails")
def test_what_another_attempt_cant_mend_fails_at_once(kind: str) -> None:
    assert failures_until_final(kind) == 1


def test_an_unknown_kind_is_tried_again_a_few_times() -> None:
    assert failures_until_final("NobodyKnows") == MOST_FAILURES
    assert failures_until_final("RunnerDied") == MOST_FAILURES


@pytest.mark.fault("rate-limit")
def test_a_rate_limited_job_waits_longer_and_gets_more_attempts() -> None:
    for kind in RATE_LIMITED:
        assert failures_until_final(kind) > MOST_FAILURES
        assert after_failure(kind, 1).delay > after_failure("RunnerDied", 1).delay


def test_delays_grow_to_a_cap() -> None:
    delays = [after_failure("RateLimitError", number).delay for number in range(1, 10)]
    assert delays == sorted(delays)
    assert max(delays) == LONGEST_DELAY


@pytest.mark.fault("job-fails")
def test_the_kind_of_an_exception_is_the_nearest_base_that_means_something() -> None:
    assert kind_of(["ModuleNotFoundError", "ImportError"]) == "ImportError"
    assert kind_of(["ReadTimeout", "TransportError"]) == "ReadTimeout"
