"""What is read of this machine before a request is mapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.evals.rates import FIELDS
from fleet.evals.request import EvalRequest
from fleet.hawk.refused import HawkRefused
from fleet.hawk.sending import to_send

PRICES = {"openai/gpt-5": dict.fromkeys(FIELDS, 1.5)}


def request(**more: Any) -> EvalRequest:
    asked = {"tasks": ["inspect_evals/gpqa"], "models": ["openai/gpt-5"], "packages": ["inspect-evals==0.20.0"]}
    return EvalRequest.model_validate({**asked, **more})


def test_the_table_of_prices_is_read_where_the_run_starts(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(json.dumps(PRICES))
    sent = to_send(request(model_cost_config=str(tmp_path / "prices.yaml")), {})
    assert sent.config["model_cost_config"] == PRICES
    assert "model_cost_config" not in to_send(request(), {}).config


def test_a_table_that_cant_be_used_is_named_with_all_else(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("openai/gpt-5: {input: 1}")
    with pytest.raises(HawkRefused) as refused:
        to_send(request(model_cost_config=str(tmp_path / "prices.yaml"), python="3.12"), {})
    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [
        "python 3.12",
        f"model_cost_config {tmp_path}/prices.yaml refused",
    ]
    assert "openai/gpt-5 has no output" in str(refused.value)
