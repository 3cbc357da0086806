from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.documents import EnvironmentSpec, EvalManifest, SettingSpec
from fleet.evals.plan import (
    LIKE,
    MOST_SAMPLES,
    SHORT_S,
    TaskPlan,
    changed,
    identify,
    make_jobs,
    make_manifest,
    resized,
    samples_per_job,
    settled_config,
    slug,
)
from fleet.evals.request import EvalRequest, ModelSpec, SolverSpec, TaskSpec

ENVIRONMENT = EnvironmentSpec(python="3.11", lock="a==1\nb==2\n", source="0" * 64, installable=True)
REQUEST = EvalRequest(tasks=[TaskSpec(name="kit/words")], models=[ModelSpec(name="scripted/m")])


def planned(ids: list[int | str], epochs: int = 1, **fields: Any) -> TaskPlan:
    return TaskPlan(
        **{
            "task": REQUEST.tasks[0],
            "model": REQUEST.models[0],
            "log": Path("2026-01-01T00-00-00_words_x.eval"),
            "task_name": "words",
            "eval_config": {},
            "sample_ids": ids,
            "digests": [f"{position:016x}" for position in range(len(ids))],
            "epochs": epochs,
            "splittable": True,
            "needs_docker": False,
            **fields,
        }
    )


ids = st.lists(st.one_of(st.integers(0, 500), st.text(max_size=5)), min_size=1, max_size=60, unique_by=str)


@given(ids, st.integers(1, 4), st.integers(1, 20))
def test_each_sample_and_epoch_is_in_exactly_one_job_in_plan_order(
    names: list[int | str], epochs: int, size: int
) -> None:
    """Epoch-major, dataset order within: the order in which a single eval logs and scores them."""
    jobs = make_jobs(planned(names, epochs), size)
    pairs = [(ref.id, ref.epoch) for job in jobs for ref in job.samples]
    assert pairs == [(name, epoch) for epoch in range(1, epochs + 1) for name in names]
    assert all(len(job.samples) == size for job in jobs[:-1])
    assert 1 <= len(jobs[-1].samples) <= size
    job_ids = [job.job for job in jobs]
    assert job_ids == sorted(set(job_ids))


@given(ids, st.integers(1, 4), st.integers(1, 300))
def test_auto_gives_each_slot_a_few_jobs(names: list[int | str], epochs: int, slots: int) -> None:
    plan = planned(names, epochs)
    size = samples_per_job(plan, REQUEST, slots=slots)
    assert 1 <= size <= MOST_SAMPLES
    jobs = len(make_jobs(plan, size))
    assert jobs <= 4 * slots or size == MOST_SAMPLES


@pytest.mark.parametrize(
    ("fields", "asked", "size"),
    [
        ({}, "auto", 7),
        ({"needs_docker": True}, "auto", 1),
        ({}, 3, 3),
        ({"needs_docker": True}, 3, 3),
    ],
)
def test_how_many_samples_a_job_gets(fields: dict[str, Any], asked: Any, size: int) -> None:
    request = REQUEST.model_copy(update={"samples_per_job": asked})
    assert samples_per_job(planned(list(range(50)), **fields), request, slots=2) == size


@given(ids, st.integers(1, 3), st.integers(1, 6), st.data())
def test_with_history_each_sample_is_still_in_one_job_and_jobs_hold_samples_of_like_length(
    names: list[int | str], epochs: int, size: int, data: st.DataObject
) -> None:
    request = REQUEST.model_copy(update={"samples_per_job": size})
    before = make_manifest(planned(names, epochs), request, ENVIRONMENT, slots=2)
    took = data.draw(st.lists(st.floats(0.1, 1e4), min_size=len(names), max_size=len(names)))
    expected = dict(zip((f"{place:016x}" for place in range(len(names))), took, strict=True))
    after = resized(before, lambda ref: expected[ref.digest])
    assert (after.eval_id, after.identity) == (before.eval_id, before.identity)
    plan_order = [ref for job in before.jobs for ref in job.samples]
    places = [[plan_order.index(ref) for ref in job.samples] for job in after.jobs]
    assert sorted(place for job in places for place in job) == list(range(len(plan_order)))
    assert all(job == sorted(job) and len(job) <= size for job in places)
    assert places == sorted(places)
    job_ids = [job.job for job in after.jobs]
    assert job_ids == sorted(set(job_ids))
    if size > 1:
        for job in after.jobs:
            seconds = [expected[ref.digest] for ref in job.samples]
            assert min(seconds) >= min(LIKE * max(seconds), max(seconds) - SHORT_S)


def test_one_long_sample_stands_alone_and_short_ones_share() -> None:
    before = make_manifest(
        planned(list("abcdefg")), REQUEST.model_copy(update={"samples_per_job": 3}), ENVIRONMENT, slots=2
    )
    took = dict(zip("abcdefg", (5, 20, 3600, 1, 25, 9, 2), strict=True))
    jobs = resized(before, lambda ref: took[str(ref.id)]).jobs
    assert ["".join(str(ref.id) for ref in job.samples) for job in jobs] == ["adg", "bef", "c"]


def test_jobs_stay_as_they_are_where_something_is_not_known() -> None:
    before = make_manifest(
        planned(list("abcd")), REQUEST.model_copy(update={"samples_per_job": 2}), ENVIRONMENT, slots=2
    )
    assert resized(before, lambda ref: None if ref.id == "a" else 5.0) == before


def test_a_task_that_cant_be_split_is_one_job() -> None:
    [job] = make_jobs(planned([1, 2], splittable=False, digests=[]), 1)
    assert job.whole
    assert job.samples == []


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # part: (fields of the plan, of the request, of the environment)
    "task": ({"task": TaskSpec(name="kit/words", args={"n": 1})}, {}, {}),
    "model": ({"model": ModelSpec(name="scripted/m", roles={"grader": "scripted/g"})}, {}, {}),
    "solver": ({}, {"solver": SolverSpec(name="kit/other")}, {}),
    "eval_config": ({"eval_config": {"message_limit": 5}}, {}, {}),
    "generate_config": ({}, {"generate_config": {"temperature": 1.0}}, {}),
    "source": ({}, {}, {"source": "1" * 64}),
    "packages": ({}, {}, {"lock": "a==1\nb==3\n"}),
    "python": ({}, {}, {"python": "3.12"}),
    "samples": ({"digests": ["0" * 16, "f" * 16]}, {}, {}),
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_change_of_what_is_evaluated_is_another_eval_and_says_which(part: str) -> None:
    plan_fields, request_fields, environment_fields = CHANGES[part]
    before = make_manifest(planned(["a", "b"]), REQUEST, ENVIRONMENT, slots=2)
    now = make_manifest(
        planned(["a", "b"], **plan_fields),
        REQUEST.model_copy(update=request_fields),
        ENVIRONMENT.model_copy(update=environment_fields),
        slots=2,
    )
    assert now.eval_id != before.eval_id
    assert changed(before.identity, now.identity) == [part]


def test_a_setting_is_what_its_files_and_its_commit_are() -> None:
    """Not how they were packed: another version of git packs a commit otherwise, and the run is still the same."""
    one = SettingSpec(name="tools", files="1" * 64, git="2" * 64, commit="3" * 40, package=True)

    def identity(**fields: str) -> dict[str, str]:
        beside = ENVIRONMENT.model_copy(update={"settings": [one.model_copy(update=fields)]})
        return identify(planned([1]), REQUEST, beside)

    assert identity(git="4" * 64) == identity()
    for fields in ({"name": "other"}, {"files": "4" * 64}, {"commit": "4" * 40}):
        assert changed(identity(), identity(**fields)) == ["settings"]
    assert changed(identity(), identify(planned([1]), REQUEST, ENVIRONMENT)) == ["settings"]


def test_another_table_of_prices_is_another_eval_and_none_is_as_before() -> None:
    """One log has costs by one table; where it lies on somebody's disk is nothing to it."""
    without = identify(planned([1]), REQUEST, ENVIRONMENT)
    one, other = (identify(planned([1]), REQUEST, ENVIRONMENT, rates=table) for table in (b"{1}", b"{2}"))
    assert changed(one, other) == ["model_cost_config"]
    assert set(one) - set(without) == {"model_cost_config"}
    assert identify(planned([1]), REQUEST.model_copy(update={"model_cost_config": "/a"}), ENVIRONMENT) == without


def test_ids_of_another_type_and_more_epochs_are_other_samples() -> None:
    one = identify(planned([1, 2]), REQUEST, ENVIRONMENT)
    assert changed(one, identify(planned(["1", "2"]), REQUEST, ENVIRONMENT)) == ["samples"]
    assert changed(one, identify(planned([1, 2], epochs=2), REQUEST, ENVIRONMENT)) == ["samples"]


def test_how_it_is_run_and_labelled_doesnt_make_another_eval() -> None:
    """The same request on a larger fleet, with other tags or parallelism, resumes."""
    plan = planned(["a", "b", "c"])
    before = make_manifest(plan, REQUEST, ENVIRONMENT, slots=1)
    request = REQUEST.model_copy(
        update={"tags": ["x"], "log_dir": "elsewhere", "samples_per_job": 1, "generate_config": {"max_connections": 3}}
    )
    now = make_manifest(
        planned(["a", "b", "c"], eval_config={"max_samples": 3, "log_buffer": 1}), request, ENVIRONMENT, slots=90
    )
    assert now.eval_id == before.eval_id
    assert make_manifest(plan, REQUEST, ENVIRONMENT, slots=1, nonce="n").eval_id != before.eval_id


def test_a_manifest_names_the_merged_log_like_inspect_and_travels() -> None:
    manifest = make_manifest(planned(["a", 1, "b"], epochs=2), REQUEST, ENVIRONMENT, slots=1)
    assert manifest.log_name == "2026-01-01T00-00-00_words_x.eval"
    assert manifest.eval_id.startswith("words-")
    assert EvalManifest.read(manifest.write()) == manifest


def test_a_shuffle_without_a_seed_gets_one_that_the_task_alone_decides() -> None:
    """Every model sees the same samples, and another model or option beside it leaves an eval what it was."""
    task = TaskSpec(name="kit/words", args={"count": 3})
    seed = settled_config({"sample_shuffle": True}, task)["sample_shuffle"]
    assert isinstance(seed, int)
    assert seed > 1
    more = settled_config(
        {"sample_shuffle": True, "limit": 5, "epochs": 2}, TaskSpec(name="kit/words", args={"count": 3})
    )
    assert more == {"sample_shuffle": seed, "limit": 5, "epochs": 2}
    for other in (TaskSpec(name="kit/words"), TaskSpec(name="kit/others", args={"count": 3})):
        assert settled_config({"sample_shuffle": True}, other)["sample_shuffle"] != seed
    for kept in (7, 0, False):
        assert settled_config({"sample_shuffle": kept}, task)["sample_shuffle"] is kept
    assert settled_config({}, task) == {}


@given(st.text(max_size=80))
def test_a_slug_is_short_and_plain(name: str) -> None:
    made = slug(name)
    assert 1 <= len(made) <= 40
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_slugs_are_the_tasks_own_names() -> None:
    assert slug("inspect_evals/gpqa_diamond") == "gpqa-diamond"
    assert slug("tasks/deep.py@My_Task") == "my-task"
