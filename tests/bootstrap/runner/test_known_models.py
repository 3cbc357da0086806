"""What Inspect knows of models: read ahead, and the same as when Inspect reads it itself."""

from __future__ import annotations

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
    monkeypatch.delattr(yaml, "CSafeLoader")
    known_models.read()
    assert _model_info._model_info_cache
