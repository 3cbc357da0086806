"""A table of prices from the request to the costs in a job's result; without one nothing is priced."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from bootstrap.environment import JobEnvironment
from bootstrap.planner import plan_tasks
from bootstrap.runners import RunnerPool
from fleet.evals.plan import make_manifest
from fleet.evals.rates import FIELDS, rates_file
from tests.job_environment import kit_request

MODEL = "kit/known"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Dollars for a million tokens, in a person's own file."""
    file = tmp_path / "prices.yaml"
    file.write_text(json.dumps({MODEL: dict.fromkeys(FIELDS, 1_000_000)}))
    return str(file)


@pytest.mark.parametrize("priced", [True, False])
def test_runners_price_by_the_runs_own_table(
    environment: JobEnvironment, tmp_path: Path, table: str, priced: bool
) -> None:
    request = kit_request(
        "plain", models=[MODEL], eval_config={"limit": 1}, model_cost_config=table if priced else None
    )
    rates = rates_file(request.model_cost_config, tmp_path)
    (plan,) = plan_tasks(request, environment, tmp_path / "plan", env=os.environ, rates=rates)
    content = rates.read_bytes() if rates else None
    manifest = make_manifest(plan, request, environment.spec, slots=1, rates=content)
    assert ("model_cost_config" in manifest.identity) == priced

    async def main() -> dict[str, object]:
        async with RunnerPool(environment, tmp_path / "runners", os.environ, rates=rates) as pool:
            answer = await (await pool.spawn()).run(manifest, manifest.jobs[0], tmp_path / "job")
            return answer.result.model_usage[MODEL]

    usage = asyncio.run(main())
    assert usage.get("total_cost") == (usage["total_tokens"] if priced else None)
