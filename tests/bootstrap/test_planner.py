from __future__ import annotations

import os
from pathlib import Path

import pytest
from inspect_ai.log import EvalSpec, read_eval_log

from bootstrap import planner
from bootstrap.environment import JobEnvironment
from bootstrap.planner import plan_tasks
from bootstrap.refusals import PlannerDied, PrerequisiteRefused, TaskUnknown
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.plan import TaskPlan, make_manifest
from fleet.evals.request import ModelSpec, TaskSpec
from tests.job_environment import kit_request

TASKS = ("plain", "numbered", "odd_ids", "chance", "epochal", "sandboxed", "growing", "stopping", "loose.py@loose")


def header(plan: TaskPlan) -> EvalSpec:
    log = read_eval_log(str(plan.log))
    assert log.status == "started"
    return log.eval


@pytest.fixture(scope="module")
def plans(environment: JobEnvironment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TaskPlan]:
    """Every kind of task, with two models, planned in one process."""
    request = kit_request(*TASKS, models=["kit/a", "kit/b"])
    tasks = [
        *request.tasks,
        TaskSpec(name="evalkit/odd_ids", sample_ids=["a*", "01", "odd_ids:x"]),
        TaskSpec(name="evalkit/plain", sample_ids=["w3", "w1"]),
    ]
    request = request.model_copy(update={"tasks": tasks})
    made = plan_tasks(request, environment, tmp_path_factory.mktemp("plans"))
    assert len(made) == len(tasks) * 2
    assert [plan.model.name for plan in made[:2]] == ["kit/a", "kit/b"]
    names = [*TASKS, "some odd ids", "some"]
    return dict(zip(names, made[::2], strict=True)) | {"plain, other model": made[1]}


def test_a_plan_says_what_inspect_would_run(plans: dict[str, TaskPlan]) -> None:
    plain = plans["plain"]
    assert plain.sample_ids == [f"w{n}" for n in range(10)]
    assert len(set(plain.digests)) == 10
    assert plain.digests == plans["plain, other model"].digests
    assert plans["numbered"].sample_ids == list(range(1, 8))
    assert plans["epochal"].epochs == 2
    assert plans["loose.py@loose"].task_name == "loose"
    assert {name for name, plan in plans.items() if plan.needs_docker} == {"sandboxed"}
    assert {name for name, plan in plans.items() if not plan.splittable} == {"growing", "stopping"}
    assert header(plain).config.fail_on_error is True, "the user's own, not a job's"
    assert header(plans["epochal"]).config.epochs_reducer == ["mean", "max"]


def test_samples_are_chosen_by_exact_id(plans: dict[str, TaskPlan]) -> None:
    """Where Inspect's patterns would choose more, and where they wouldn't: the log then says it as Inspect does."""
    assert plans["some odd ids"].sample_ids == ["a*", "01", "odd_ids:x"]
    assert plans["some"].sample_ids == ["w1", "w3"]
    said = header(plans["some"])
    assert said.config.sample_id == ["w3", "w1"]
    assert said.dataset.samples == 10
    assert plans["some"].digests == [plans["plain"].digests[1], plans["plain"].digests[3]]


def test_another_process_finds_the_same_samples(
    plans: dict[str, TaskPlan], environment: JobEnvironment, tmp_path: Path
) -> None:
    """Also where the dataset is shuffled, by the request without a seed or by the task itself without one."""
    request = kit_request("chance", "numbered", "plain", eval_config={"sample_shuffle": True, "limit": 5})
    one, other = (plan_tasks(request, environment, tmp_path / name, env=os.environ) for name in ("one", "other"))
    assert [(plan.sample_ids, plan.digests) for plan in one] == [(plan.sample_ids, plan.digests) for plan in other]
    chance, _, plain = one
    assert chance.digests != plans["chance"].digests[:5] or chance.sample_ids == plans["chance"].sample_ids[:5]
    assert plain.sample_ids != [f"w{n}" for n in range(5)]
    assert len(plain.sample_ids) == 5
    seed = plain.eval_config["sample_shuffle"]
    assert type(seed) is int
    assert header(plain).config.sample_shuffle == seed


def test_a_model_more_changes_no_other_eval(environment: JobEnvironment, tmp_path: Path) -> None:
    """Also where samples are shuffled without a seed; a runner, which takes the manifest's config, shuffles alike."""
    few = kit_request("plain", models=["kit/a"], eval_config={"sample_shuffle": True, "limit": 4})
    more = few.model_copy(update={"models": [ModelSpec(name="kit/b"), ModelSpec(name="kit/a")]})
    [alone] = plan_tasks(few, environment, tmp_path / "few", env=os.environ)
    beside, same = plan_tasks(more, environment, tmp_path / "more", env=os.environ)
    assert beside.sample_ids == same.sample_ids == alone.sample_ids
    one, other = (
        make_manifest(plan, request, environment.spec, slots=1) for plan, request in ((alone, few), (same, more))
    )
    assert one.eval_id == other.eval_id
    assert one.eval_config["sample_shuffle"] == header(alone).config.sample_shuffle


@pytest.mark.fault("request-refused")
def test_what_the_job_environment_refuses_comes_back_as_its_own_error(
    environment: JobEnvironment, tmp_path: Path
) -> None:
    """All refusals are tried where they are made, in `runner/test_tasks.py`; here, that they arrive."""
    needs_key = ModelSpec(name="kit/m", args={"needs_key": "KIT_KEY"})
    cases = [
        (kit_request("plane"), TaskUnknown, "did you mean evalkit/plain"),
        (kit_request("plain", models=[needs_key]), PrerequisiteRefused, "KIT_KEY not set$"),
    ]
    for request, error, said in cases:
        with pytest.raises(error, match=said) as refused:
            plan_tasks(request, environment, tmp_path, env={"PATH": os.environ["PATH"]})
        assert refused.value.exit_code == 2
        assert "\n" not in str(refused.value)


def test_keys_reach_the_provider_and_no_file(environment: JobEnvironment, tmp_path: Path) -> None:
    needs_key = ModelSpec(name="kit/m", args={"needs_key": "KIT_KEY"})
    env = {"PATH": os.environ["PATH"], "KIT_KEY": "only-in-memory"}
    [plan] = plan_tasks(kit_request("plain", models=[needs_key]), environment, tmp_path, env=env)
    assert plan.sample_ids
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"only-in-memory" in path.read_bytes()]


def test_a_process_that_ends_without_an_answer_is_told_with_its_last_words(
    environment: JobEnvironment, tmp_path: Path
) -> None:
    request = kit_request("plain", solver={"name": "quits.py@quits"})
    (environment.source / "quits.py").write_text("raise SystemExit('no solver today')\n")  # type: ignore[operator]
    try:
        with pytest.raises(PlannerDied, match="no solver today"):
            plan_tasks(request, environment, tmp_path)
    finally:
        (environment.source / "quits.py").unlink()  # type: ignore[operator]


@pytest.mark.timeout(30)
@pytest.mark.fault("hang")
def test_a_task_that_hangs_while_it_is_planned_is_ended_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "LONGEST_S", 2)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho downloading the dataset\nexec sleep 300\n")
    python.chmod(0o755)
    (tmp_path / "empty").mkdir()
    environment = JobEnvironment(EnvironmentSpec(python="3.11", lock=""), python, None)
    with pytest.raises(PlannerDied, match=r"didn't end within 2 s, and was ended \(downloading the dataset;"):
        plan_tasks(kit_request("plain"), environment, tmp_path / "plan")
