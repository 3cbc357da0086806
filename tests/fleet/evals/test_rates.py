from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.evals.rates import FIELDS, RatesRefused, read_rates

PRICES = dict.fromkeys(FIELDS, 1.5)


def table(path: Path, text: str) -> bytes | None:
    file = path / "prices"
    file.write_text(text)
    return read_rates(str(file))


def test_yaml_and_json_of_the_same_prices_are_the_same_artifact(tmp_path: Path) -> None:
    as_json = table(tmp_path, json.dumps({"openai/gpt-5": PRICES}))
    as_yaml = table(tmp_path, "openai/gpt-5:\n" + "".join(f"  {name}: 1.5\n" for name in reversed(FIELDS)))
    assert as_json == as_yaml
    assert json.loads(as_json or b"") == {"openai/gpt-5": PRICES}


def test_a_run_without_a_table_prices_nothing() -> None:
    assert read_rates(None) is None


ROWS = [
    pytest.param("[1, 2]", "it names no model", id="a list"),
    pytest.param("{}", "it names no model", id="empty"),
    pytest.param("a: [", "neither YAML nor JSON", id="broken"),
    pytest.param("a: 3", "a has no prices", id="a number"),
    pytest.param("3: {}", "3 is no model's name", id="a name that is none"),
    pytest.param("a: {input: 1, output: 1, input_cache_write: 1}", "a has no input_cache_read", id="one missing"),
    pytest.param(json.dumps({"a": {**PRICES, "putput": 1}}), "'putput' is no price", id="a typo"),
    pytest.param(json.dumps({"a": {**PRICES, "input": -1}}), "input is -1", id="negative"),
    pytest.param(json.dumps({"a": {**PRICES, "input": "1"}}), "input is '1'", id="a text"),
    pytest.param(json.dumps({"a": {**PRICES, "input": True}}), "input is True", id="a truth"),
    pytest.param(
        "a: {input: .nan, output: 1, input_cache_write: 1, input_cache_read: 1}", "input is nan", id="no number"
    ),
]


@pytest.mark.parametrize(("text", "why"), ROWS)
def test_a_table_that_inspect_would_not_take_is_refused_before_anything_runs(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(RatesRefused) as refused:
        table(tmp_path, text)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(RatesRefused, match=r"/no/such/prices\.yaml refused: no such file"):
        read_rates("/no/such/prices.yaml")


def test_inspect_takes_the_fields_that_are_checked_here() -> None:
    from inspect_ai.model import ModelCost

    assert tuple(ModelCost.model_fields) == FIELDS
