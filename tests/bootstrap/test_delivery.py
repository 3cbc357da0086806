"""What one job's delivery leaves behind, whatever happens on its way. Its order and outcomes: `test_work.py`."""

from __future__ import annotations

from bootstrap.delivery import tally
from tests.bootstrap.world import manifest_of, result_of


def test_a_job_s_model_calls_have_a_cost_where_inspect_had_prices() -> None:
    result = result_of(manifest_of(1).jobs[0])
    assert "cost" not in tally(result)
    usage = {"a": {"total_tokens": 7, "total_cost": 0.5}, "b": {"total_tokens": 2, "total_cost": None}}
    counts = tally(result.model_copy(update={"model_usage": usage}))
    assert (counts["tokens"], counts["cost"]) == (9, 0.5)
