"""The order of jobs, job sizes and fleet sizes that follow from expected durations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.sizing import sending_order

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
