from __future__ import annotations

import ast
import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bootstrap.refusals import KINDS, refusal
from bootstrap.runner.refusal import Refused
from bootstrap.runner.settings import AT_ONCE, at_once, call, eval_settings, job_settings
from bootstrap.runner.tasks import Built, build
from fleet.evals.attempts import FINAL

What = Callable[..., dict[str, Any]]
RUNNER = Path(__file__).parents[3] / "bootstrap" / "runner"


def built(what: dict[str, Any]) -> Built:
    async def main() -> Built:
        return build(what)

    return asyncio.run(main())


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, str]] = {
    # name: (task, args, …), other fields, the error, what its line says
    "no such task": (("plane",), {}, "TaskUnknown", "no task has that name; did you mean plain"),
    "no such package": (("nowhere/plain",), {}, "TaskUnknown", "no package nowhere with tasks"),
    "no such file": (("gone.py@x",), {}, "FileMissing", "gone.py is missing"),
    "a file of this machine": (("/etc/tasks.py@x",), {}, "FileMissing", "relative to `source`"),
    "no such task in the file": (("loose.py@lose",), {}, "TaskUnknown", "did you mean loose"),
    "a file of several tasks": (("loose.py",), {}, "TaskUnknown", "2 tasks; name one"),
    "no such argument": (("plain", {"cuont": 1}), {}, "TaskArgsRefused", "takes no cuont; did you mean count"),
    "an argument missing": (("picky",), {}, "TaskArgsRefused", "missing a required argument: 'needed'"),
    "a task that raises": (("unbuildable",), {}, "TaskRefused", "ValueError: this task never gets built"),
    "no such provider": (("plain", {}, "kitt/m"), {}, "ModelUnknown", "did you mean kit"),
    "a model without provider": (("plain", {}, "kit"), {}, "ModelUnknown", "named provider/model"),
    "no such solver": (("plain",), {"solver": {"name": "generat", "args": {}}}, "SolverUnknown", "mean generate"),
    "no such solver file": (("plain",), {"solver": {"name": "no.py@s", "args": {}}}, "FileMissing", "no.py"),
    "no such generate key": (
        ("plain",),
        {"generate_config": {"temprature": 1}},
        "ConfigKeyUnknown",
        "mean temperature",
    ),
    "a bad generate value": (("plain",), {"generate_config": {"seed": "x"}}, "ConfigValueRefused", "seed: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cant_be_planned_is_refused_by_name_in_one_line(case: str, what: What) -> None:
    asked, fields, kind, said = REFUSED[case]
    with pytest.raises(Refused) as refused:
        built(what(*asked, **fields))
    assert refused.value.kind == kind
    error = refusal({"kind": refused.value.kind, "facts": refused.value.facts})
    assert said in str(error)
    assert "\n" not in str(error)
    assert error.exit_code == 2


def test_roles_are_models_too(what: What) -> None:
    asked = what("plain")
    asked["model"]["roles"] = {"grader": "grimace/x"}
    with pytest.raises(Refused, match="ModelUnknown"):
        built(asked)


def test_every_refusal_of_the_runner_has_its_error() -> None:
    """The two sides share names only; a crash of a job may go by names that no error has."""
    of_jobs = {"SampleAbsent", "SampleChanged"}
    named = {
        node.args[0].value
        for path in RUNNER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused"
        if node.args and isinstance(node.args[0], ast.Constant)
    }
    assert named >= {"TaskUnknown", "ModelUnknown", "ConfigKeyUnknown"}
    assert named - of_jobs <= KINDS.keys()
    assert KINDS.keys() | of_jobs <= FINAL, "a refusal is the same at each attempt"


def test_the_runner_is_written_for_every_python_of_inspect() -> None:
    """Job environments may have an older Python than ours."""
    for path in RUNNER.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))


def test_eval_settings_are_inspects_own() -> None:
    settings = eval_settings({"limit": [2, 5], "epochs": 3, "epochs_reducer": ["mean", "max"], "message_limit": 4})
    assert settings["limit"] == (2, 5)
    assert settings["epochs"].epochs == 3
    assert len(settings["epochs"].reducer) == 2
    metered = eval_settings({"token_limit": 100, "token_limit_type": "output"})["token_limit"]
    assert (metered.tokens, metered.type) == (100, "output")
    for config, kind in (
        ({"mesage_limit": 4}, "ConfigKeyUnknown"),
        ({"message_limit": "many"}, "ConfigValueRefused"),
        ({"epochs_reducer": ["mean"]}, "ConfigValueRefused"),
    ):
        with pytest.raises(Refused, match=kind):
            eval_settings(config)


def test_a_job_runs_its_samples_at_once_and_judges_nothing() -> None:
    settings = job_settings(
        {"limit": 3, "fail_on_error": True, "max_samples": 2, "time_limit": 9, "log_samples": False}, 5
    )
    assert settings["max_samples"] == 2
    assert settings["fail_on_error"] is False
    assert settings["time_limit"] == 9
    assert "limit" not in settings
    assert "log_samples" not in settings
    assert job_settings({"limit": 3}, None)["limit"] == 3


@pytest.mark.parametrize(
    ("config", "generate", "samples", "side_by_side"),
    [
        pytest.param({}, {}, 5, 5, id="all of a job's"),
        pytest.param({"max_samples": 2}, {}, None, 2, id="as the request says"),
        pytest.param({}, {"max_connections": 40}, None, 40, id="a whole task's by its connections"),
        pytest.param({}, {}, None, AT_ONCE, id="or by Inspect's own number"),
    ],
)
def test_how_many_samples_a_wait_holds_up_one_of(
    config: dict[str, Any], generate: dict[str, Any], samples: int | None, side_by_side: int
) -> None:
    """Of a job that runs more of them, one sample's wait is so much less of a loss."""
    assert at_once(job_settings(config, samples), generate) == side_by_side


def test_empty_labels_and_args_are_as_if_not_given(what: What) -> None:
    arguments = call(what("plain", solver={"name": "generate", "args": {"x": 1}}))
    assert arguments["tags"] is None
    assert arguments["metadata"] is None
    assert arguments["model_roles"] is None
    assert (arguments["solver"].solver, arguments["solver"].args) == ("generate", {"x": 1})


def test_a_task_is_built_alike_every_time_without_a_seed(what: What) -> None:
    """Unseeded order is made one order; afterwards chance is as it was, and free."""
    random.seed(5)
    state = random.getstate()
    one, other = built(what("chance")), built(what("chance"))
    assert random.getstate() == state
    assert [sample.choices for sample in one.task.dataset] == [sample.choices for sample in other.task.dataset]
    assert [sample.input for sample in one.task.dataset] == [sample.input for sample in other.task.dataset]
    assert len({random.Random().random() for _ in range(3)}) == 3  # noqa: S311


def test_samples_are_found_by_exact_id_or_by_content_where_the_id_is_only_a_place(what: What) -> None:
    odd = built(what("odd_ids"))
    assert odd.sample("01", odd.digest("01")).id == "01"
    with pytest.raises(Refused, match="SampleAbsent"):
        odd.sample(1, odd.digest("1"))
    with pytest.raises(Refused, match="SampleChanged"):
        odd.sample("1", odd.digest("a1"))

    numbered = built(what("numbered"))
    third = numbered.digest(3)
    moved = numbered.sample(1, third)
    assert moved.id == 1
    assert moved.target == "4"
    assert numbered.sample(3, third) is not numbered.sample(3, third), "a run may change its sample"


def test_what_needs_docker_is_seen_in_task_and_samples(what: What) -> None:
    assert built(what("sandboxed")).needs_docker(["w0"])
    by_sample = built(what("sandboxed", {"by_sample": True}))
    assert by_sample.needs_docker([0, 1, 2])
    assert not by_sample.needs_docker([0, 1])
    assert not built(what("plain")).needs_docker(["w0"])


def test_what_decides_for_itself_cant_be_split(what: What) -> None:
    assert built(what("plain")).splittable
    assert not built(what("growing")).splittable
    assert not built(what("stopping")).splittable
