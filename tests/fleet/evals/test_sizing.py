"""The order of jobs, job sizes and fleet sizes that follow from expected durations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.progress import WorkerTally
from fleet.evals.sizing import sending_order, settled_slots

evals = st.dictionaries(st.text(max_size=2), st.lists(st.text(max_size=3), max_size=12, unique=True), max_size=4)


@given(evals, st.data())
def test_each_open_job_is_sent_once_and_the_longest_expected_first(
    open_jobs: dict[str, list[str]], data: st.DataObject
) -> None:
    expected = {
        eval_id: data.draw(st.dictionaries(st.sampled_from(jobs), st.floats(0.1, 1e5))) if jobs else {}
        for eval_id, jobs in open_jobs.items()
    }
    order = sending_order(open_jobs, expected)
    assert sorted(order) == sorted((eval_id, job) for eval_id, jobs in open_jobs.items() for job in jobs)
    known = [expected[eval_id][job] for eval_id, job in order if job in expected[eval_id]]
    assert known == sorted(known, reverse=True)


def test_without_history_evals_take_turns_in_plan_order() -> None:
    order = sending_order({"a": ["a1", "a2", "a3"], "b": ["b1"]}, {})
    assert [job for _, job in order] == ["a1", "b1", "a2", "a3"]


def test_an_eval_of_which_nothing_is_known_waits_for_no_other() -> None:
    known = {f"k{n}": 10.0 - n for n in range(4)}
    order = sending_order({"a": list(known), "b": ["u1", "u2"]}, {"a": known})
    assert [job for _, job in order] == ["u1", "k0", "k1", "u2", "k2", "k3"]


def test_the_next_run_begins_where_rate_limits_left_this_one() -> None:
    """With those that were refused themselves: an instance that came late had no say."""
    limited = [WorkerTally(jobs=24, settled=settled, rate_limited=1) for settled in (3, 4, 8)]
    assert settled_slots([*limited, WorkerTally(settled=1), *[WorkerTally(jobs=9, settled=1)] * 3]) == 4


def test_a_refused_call_in_a_short_run_is_no_reason_to_begin_with_less() -> None:
    """Its instances had two slots each, for two jobs: that is their share, and no provider's limit."""
    short = [WorkerTally(jobs=2, settled=2, rate_limited=limited) for limited in (0, 1)]
    assert settled_slots(short) == 0
    assert settled_slots([*short, WorkerTally(jobs=9, settled=32)]) == 32


def test_a_run_without_rate_limits_says_how_far_it_came_but_never_less_than_the_first_slots() -> None:
    assert settled_slots([WorkerTally(jobs=9, settled=20), WorkerTally(jobs=9, settled=32)]) == 32
    assert settled_slots([WorkerTally(jobs=1, settled=2)]) == 0
    assert settled_slots([]) == 0
