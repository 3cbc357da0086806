"""The plan of a whole request."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bootstrap.environment import JobEnvironment
from bootstrap.refusals import PrerequisiteRefused
from bootstrap.run_plan import plan_run
from fleet.evals.request import ModelSpec
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
