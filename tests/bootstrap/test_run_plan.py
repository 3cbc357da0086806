"""The plan of a whole request."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from bootstrap.environment import JobEnvironment
from bootstrap.refusals import PrerequisiteRefused
from bootstrap.run_plan import plan_run
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.plan import TaskPlan
from fleet.evals.request import ModelSpec
from fleet.evals.secrets import SecretsRefused
from tests.checkouts import made
from tests.job_environment import kit_request


def test_a_key_that_this_process_does_not_have_can_be_given_to_the_planner(
    environment: JobEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Worker Secrets block may be the only place that has it, and some providers want theirs as soon as they are built."""
    monkeypatch.setattr("bootstrap.run_plan.resolve", lambda *_: environment.spec)
    monkeypatch.setattr("bootstrap.run_plan.build", lambda *_, **__: environment)
    request = kit_request("plain", models=[ModelSpec(name="kit/m", args={"needs_key": "KIT_KEY"})])
    with pytest.raises(PrerequisiteRefused, match="KIT_KEY not set"):
        plan_run(request, tmp_path / "without", slots=1)
    plan = plan_run(request, tmp_path / "with", slots=1, env={**os.environ, "KIT_KEY": "only-in-memory"})
    assert plan.evals[0].manifest.jobs
    assert "KIT_KEY" not in os.environ
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"only-in-memory" in path.read_bytes()]


def test_the_planner_finds_the_values_of_settings_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = made(tmp_path / "linux", {"a.txt": "1"})
    (tmp_path / "linux.env").write_text("KEY=sk-secret")
    folder = tmp_path / "environment"
    (folder / "source").mkdir(parents=True)
    spec = EnvironmentSpec(python="3.11", lock="")
    made_of_it = JobEnvironment(spec=spec, python=folder / "venv" / "bin" / "python", source=folder / "source")
    seen: list[tuple[str, int]] = []

    def plan_tasks(_: Any, environment: JobEnvironment, *__: Any, **___: Any) -> list[TaskPlan]:
        file = environment.working_folder / ".settings" / "linux.env"
        seen.append((file.read_text(), stat.S_IMODE(file.stat().st_mode)))
        return []

    monkeypatch.setattr("bootstrap.run_plan.resolve", lambda *_: spec)
    monkeypatch.setattr("bootstrap.run_plan.build", lambda *_, **__: made_of_it)
    monkeypatch.setattr("bootstrap.run_plan.plan_tasks", plan_tasks)
    plan = plan_run(kit_request("plain", settings=[str(checkout)]), tmp_path / "plan", slots=1)
    assert seen == [("KEY=sk-secret", 0o600)]
    assert not list(folder.rglob("*.env"))
    assert "sk-secret" not in repr(plan)


def test_values_that_can_not_be_read_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "linux.env").write_bytes(b"\xff")
    with pytest.raises(SecretsRefused, match=r"setting linux aren't UTF-8 text: .*/linux\.env"):
        plan_run(kit_request("plain", settings=[str(tmp_path / "linux")]), tmp_path / "plan", slots=1)
    assert not (tmp_path / "plan").exists()
