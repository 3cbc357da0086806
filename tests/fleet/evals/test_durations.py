"""What samples took is kept, and lets expect what the next run's jobs take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals import durations
from fleet.evals.documents import EvalManifest, Job, SampleRef
from fleet.evals.durations import (
    DurationHistory,
    Expectation,
    after_run,
    expected_jobs,
    expected_of,
    makespan,
    note_durations,
    note_slots,
    sample_key,
)
from fleet.evals.layout import Layout
from fleet.evals.plan import make_manifest
from fleet.evals.request import ModelSpec
from fleet.evals.site import Site
from tests.fleet.evals.test_last import FakeBucket
from tests.fleet.evals.test_plan import ENVIRONMENT, REQUEST, planned

seconds = st.lists(st.floats(0.1, 1e5), min_size=1, max_size=30)


@pytest.fixture
def site() -> Site:
    return cast("Site", SimpleNamespace(objects=FakeBucket(), layout=Layout("p")))


def an_eval(**plan: object) -> EvalManifest:
    """Three samples in two epochs, a job each."""
    request = REQUEST.model_copy(update={"samples_per_job": 1})
    return make_manifest(planned(["a", "b", "c"], 2, **plan), request, ENVIRONMENT, slots=2, nonce="x")


def test_a_second_run_expects_what_the_first_one_took(site: Site) -> None:
    """The median over the epochs; what never ran is expected to take the task's median."""
    note_durations(site, an_eval(), {"a": [10.0, 30.0], "b": [100.0]})
    manifest = an_eval()
    expected = expected_jobs(manifest, expected_of(site, manifest))
    assert [expected[job.job] for job in manifest.jobs] == [20.0, 100.0, 60.0] * 2


def test_changed_content_is_another_sample(site: Site) -> None:
    note_durations(site, an_eval(), {"a": [10.0], "b": [100.0], "c": [30.0]})
    changed = an_eval(digests=["f" * 16, f"{1:016x}", f"{2:016x}"])
    expected = expected_jobs(changed, expected_of(site, changed))
    assert [expected[job.job] for job in changed.jobs[:3]] == [30.0, 100.0, 30.0]


def test_without_history_nothing_is_expected(site: Site) -> None:
    other = an_eval(model=ModelSpec(name="other/m"))
    note_durations(site, an_eval(), {"a": [10.0]})
    assert expected_jobs(other, expected_of(site, other)) == {}
    cast("FakeBucket", site.objects).held.clear()
    assert expected_of(site, an_eval()) == Expectation({}, 0)


def test_a_history_of_another_release_is_passed_over_and_replaced(site: Site) -> None:
    note_durations(site, an_eval(), {"a": [10.0]})
    bucket = cast("FakeBucket", site.objects)
    bucket.held = dict.fromkeys(bucket.held, b'{"version": 99}')
    assert expected_of(site, an_eval()).typical is None
    note_durations(site, an_eval(), {"a": [7.0]})
    assert expected_of(site, an_eval()).typical == 7.0


def test_noting_the_same_results_again_changes_nothing(site: Site) -> None:
    """A resumed run, and whoever collects by hand, notes them all once more."""
    bucket = cast("FakeBucket", site.objects)
    note_durations(site, an_eval(), {"a": [10.0], "b": [20.0]})
    note_slots(site, an_eval(), 24)
    before = dict(bucket.held)
    note_durations(site, an_eval(), {"a": [10.0], "b": [20.0]})
    assert bucket.held == before
    assert expected_of(site, an_eval()).slots == 24


def test_a_task_that_cant_be_split_has_no_samples_to_remember(site: Site) -> None:
    whole = an_eval(splittable=False, digests=[])
    note_durations(site, whole, {"a": [10.0]})
    assert cast("FakeBucket", site.objects).held == {}
    assert expected_jobs(whole, Expectation({"k": 5.0})) == {}


def test_a_history_is_bounded_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "MOST_SAMPLES_KEPT", 3)
    history = after_run(DurationHistory(seconds={"a": 1.0, "b": 2.0, "c": 3.0}), {"a": 4.0, "d": 5.0})
    assert history.seconds == {"c": 3.0, "a": 4.0, "d": 5.0}


def test_a_history_of_the_largest_size_stays_small_and_comes_back() -> None:
    history = DurationHistory(seconds={sample_key(n, "d"): n / 10 for n in range(durations.MOST_SAMPLES_KEPT)})
    text = history.write()
    assert len(text) < 4_000_000
    assert DurationHistory.read(text) == history


@given(seconds, st.integers(1, 8), st.integers(0, 29), st.floats(0, 1e4))
def test_a_longer_sample_never_lets_expect_a_shorter_job(
    took: list[float], at_once: int, which: int, more: float
) -> None:
    """Side by side that holds; where they queue, lists have anomalies, but a job is never shorter than its longest or its share."""
    which %= len(took)
    longer = [one + more * (place == which) for place, one in enumerate(took)]
    job = Job(job="j", samples=[SampleRef(id=n, epoch=1, digest="d") for n in range(len(took))])
    one, other = (Expectation({sample_key(n, "d"): it for n, it in enumerate(them)}) for them in (took, longer))
    assert (one.of_job(job) or 0) <= (other.of_job(job) or 0)
    assert makespan(took, at_once) >= max(max(took), sum(took) / at_once) * 0.999999
    assert makespan(took, at_once) <= sum(took) * 1.000001


def test_a_request_that_limits_samples_at_a_time_makes_longer_jobs() -> None:
    manifest = make_manifest(
        planned(["a", "b", "c"], eval_config={"max_samples": 2}),
        REQUEST.model_copy(update={"samples_per_job": 3}),
        ENVIRONMENT,
        slots=2,
    )
    assert list(expected_jobs(manifest, Expectation({"any": 10.0})).values()) == [20.0]
