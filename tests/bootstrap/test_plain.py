from __future__ import annotations

from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bootstrap.environment import JobEnvironment
from bootstrap.plain import run_plain
from bootstrap.refusals import ConfigKeyUnknown
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
