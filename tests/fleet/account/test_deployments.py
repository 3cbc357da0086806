from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleet.account import deployments
from fleet.account.deployments import DeploymentRefused, deploy


@pytest.mark.timeout(30)
def test_a_deploy_that_hangs_is_ended_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(deployments, "LONGEST_S", 0.2)
    with pytest.raises(DeploymentRefused, match=r"run-eval was not made: `prefect deploy` didn't end within 0\.2 s"):
        deploy(tmp_path / "prefect.yaml", ["run-eval"])
