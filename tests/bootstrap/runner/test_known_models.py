"""What Inspect knows of models: read ahead, and the same as when Inspect reads it itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from inspect_ai.model import _model_info, get_model_info
from inspect_ai.model._model_data.model_data import read_model_info

from bootstrap.runner import known_models


@pytest.fixture
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process is."""
    monkeypatch.setattr(_model_info, "_model_info_cache", None)
    monkeypatch.setattr(_model_info, "_lookup_index", None)
    monkeypatch.setattr(_model_info, "_result_cache", {})


@pytest.mark.usefixtures("nothing_read")
def test_what_is_read_ahead_is_what_inspect_reads_and_no_model_makes_it_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    itself, usual = read_model_info(), yaml.SafeLoader
    known_models.read()
    assert yaml.SafeLoader is usual
    monkeypatch.setattr(yaml, "safe_load", None)
    assert itself == _model_info._model_info_cache
    for name in (known_models.ANY, "anthropic/claude-3-5-sonnet-latest", "OpenAI/GPT-4o"):
        assert get_model_info(name) is not None, name


@pytest.mark.usefixtures("nothing_read")
def test_a_release_that_cant_read_it_reads_it_when_it_wants_to(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = yaml.SafeLoader
    monkeypatch.setattr(yaml, "safe_load", None)
    known_models.read()
    assert (_model_info._model_info_cache, yaml.SafeLoader) == (None, usual)


@pytest.mark.usefixtures("nothing_read")
def test_without_libyaml_it_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    known_models.read()
    assert _model_info._model_info_cache


@pytest.mark.usefixtures("nothing_read")
def test_with_libyaml_the_parser_in_python_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "SafeLoader", None)
    known_models.read()
    assert _model_info._model_info_cache


SCRIPT = """
import os, socket, sys
from inspect_ai.model import _model_info
from bootstrap.runner.zygote import Zygote
ours, theirs = socket.socketpair()
zygote = Zygote(theirs, lambda _: 0 if _model_info._model_info_cache else 7)
zygote._warm([], ["json"])
zygote._spawn(1, sys.argv[1], socket.socketpair()[0])
(pid,) = zygote._runners
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_fork_has_it_from_its_zygote(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "0"
