"""What is missing for `make hawk` is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hawk.tools import PYTHON, ToolMissing, cpython, postgres


def test_postgresql_is_debian_s_newest_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match="no PostgreSQL server here: apt-get install postgresql"):
        postgres(tmp_path)
    for release in ("9.6", "15", "17"):
        (tmp_path / release / "bin").mkdir(parents=True)
    for release in ("9.6", "15"):  # of the newest only the client is installed
        (tmp_path / release / "bin" / "initdb").touch()
    assert postgres(tmp_path) == tmp_path / "15" / "bin"


@pytest.mark.parametrize("named", ["/bin/true", "/nowhere/python3.13"])
def test_a_python_that_hawk_does_not_take_is_refused(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that doesn't say it is a 3.13, and none at all."""
    monkeypatch.setenv(PYTHON, named)
    with pytest.raises(ToolMissing, match=f"no CPython 3.13 at {named}: set {PYTHON}="):
        cpython()
