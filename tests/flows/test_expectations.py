"""What a run makes of the history of its evals, and adds to it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap.run_plan import PlannedEval, RunPlan
from fleet.evals.documents import EvalManifest
from fleet.evals.durations import expected_of, note_durations, note_slots
from fleet.evals.layout import Layout
from fleet.evals.plan import make_manifest
from fleet.evals.progress import RunTally, WorkerTally
from fleet.evals.site import Site
from flows.run import Run
from tests.fleet.evals.test_last import FakeBucket
from tests.fleet.evals.test_plan import ENVIRONMENT, REQUEST, planned

TOOK = {"a": [5.0], "b": [3600.0], "c": [8.0], "d": [7.0]}


@pytest.fixture
def site() -> Site:
    return cast("Site", SimpleNamespace(objects=FakeBucket(), layout=Layout("p")))


def an_eval(nonce: str = "") -> EvalManifest:
    """Four samples, two a job."""
    request = REQUEST.model_copy(update={"samples_per_job": 2})
    return make_manifest(planned(list("abcd")), request, ENVIRONMENT, slots=2, nonce=nonce)


def a_run(site: Site, *, sizes_by_person: bool = False) -> Run:
    """As far as its history is concerned: everything else needs AWS."""
    run = Run.__new__(Run)
    run.site = site
    run.plan = RunPlan(
        environment=ENVIRONMENT,
        archives=(),
        evals=(PlannedEval(an_eval("new"), Path("plan.eval")),),
        warnings=(),
        sizes_by_person=sizes_by_person,
    )
    return run


def jobs_of(manifest: EvalManifest) -> list[str]:
    return ["".join(str(ref.id) for ref in job.samples) for job in manifest.jobs]


def test_a_new_eval_gets_jobs_of_like_samples_and_expectations_of_each(site: Site) -> None:
    note_durations(site, an_eval("old"), TOOK)
    note_slots(site, an_eval("old"), 24)
    run = a_run(site)
    (manifest,) = run.expect()
    assert jobs_of(manifest) == ["a", "b", "cd"]
    assert [run.expected[manifest.eval_id][job.job] for job in manifest.jobs] == [5.0, 3600.0, 8.0]
    assert run.settled == 24
    assert run.plan.evals[0].manifest is manifest, "so that these jobs are the ones that are stored and sent"


def test_a_person_s_size_of_jobs_is_theirs(site: Site) -> None:
    note_durations(site, an_eval("old"), TOOK)
    (manifest,) = a_run(site, sizes_by_person=True).expect()
    assert jobs_of(manifest) == ["ab", "cd"]


def test_an_eval_that_goes_on_keeps_its_jobs(site: Site) -> None:
    """Results lie there by their names."""
    note_durations(site, an_eval("old"), TOOK)
    stored = an_eval("new")
    cast("FakeBucket", site.objects).put(site.layout.manifest(stored.eval_id), stored.write().encode())
    run = a_run(site)
    (manifest,) = run.expect()
    assert jobs_of(manifest) == ["ab", "cd"]
    assert set(run.expected[manifest.eval_id]) == {job.job for job in stored.jobs}


def test_without_history_a_run_expects_nothing(site: Site) -> None:
    run = a_run(site)
    (manifest,) = run.expect()
    assert jobs_of(manifest) == ["ab", "cd"]
    assert (run.expected, run.settled) == ({manifest.eval_id: {}}, 0)


def test_where_slots_had_settled_is_kept_for_the_next_run(site: Site) -> None:
    run = a_run(site)
    said = {"w": WorkerTally(jobs=18, settled=6, rate_limited=1)}
    # The run has its manifests at hand: that of an eval with many samples is large, and isn't read again.
    cast("FakeBucket", site.objects).put(site.layout.manifest(an_eval("new").eval_id), b"unread")
    run.watch = cast("object", SimpleNamespace(tally=RunTally({}, said)))  # type: ignore[assignment]
    run.remember()
    assert expected_of(site, an_eval()).slots == 6
