from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bootstrap.environment import JobEnvironment
from bootstrap.plain import run_plain
from bootstrap.refusals import ConfigKeyUnknown
from fleet.evals.documents import EnvironmentSpec
from tests.job_environment import kit_request


def test_a_request_runs_as_plain_inspect_would(environment: JobEnvironment, tmp_path: Path) -> None:
    """One log for each task and model, by the user's own settings; a failed eval is a log, not an exception."""
    lines: list[str] = []
    request = kit_request("epochal", "failing", eval_config={"message_limit": 9}, tags=["local"])
    good, bad = run_plain(request, environment, str(tmp_path / "logs"), tmp_path / "work", say=lines.append)
    assert (good.task, good.model, good.status) == ("evalkit/epochal", "kit/model", "success")
    log = read_eval_log(good.log)
    assert Path(good.log).parent == tmp_path / "logs"
    assert log.eval.config.message_limit == 9
    assert log.eval.tags == ["local"]
    assert log.samples is not None
    assert len(log.samples) == 8
    assert bad.status == "error"
    assert "doesn't work" in bad.error
    assert any("epochal (4 x 2 samples)" in line for line in lines)


def test_a_bad_request_is_refused_as_on_a_fleet(environment: JobEnvironment, tmp_path: Path) -> None:
    request = kit_request("plain", eval_config={"mesage_limit": 9})
    with pytest.raises(ConfigKeyUnknown, match="did you mean message_limit"):
        run_plain(request, environment, str(tmp_path / "logs"), tmp_path / "work", say=lambda line: None)


@pytest.mark.timeout(30)
def test_what_a_task_leaves_running_holds_nobody_up(tmp_path: Path) -> None:
    """A service that it started may keep its output open, silent or not."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    left = "(while sleep 0.05; do echo I live; done) & echo $! > $0.left; sleep 300 & echo $! >> $0.left"
    answer = '{"result": []}'
    python.write_text(f"#!/bin/sh\n{left}\nprintf 'the last word'\necho '{answer}' > $4\n")
    python.chmod(0o755)
    (tmp_path / "empty").mkdir()
    environment = JobEnvironment(EnvironmentSpec(python="3.11", lock=""), python, None)
    lines: list[str] = []
    try:
        assert run_plain(kit_request("plain"), environment, str(tmp_path), tmp_path / "work", say=lines.append) == []
    finally:
        for pid in Path(f"{python}.left").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    assert any("the last word" in line for line in lines)
    assert "the last word" in (tmp_path / "work" / "whole.log").read_text()
