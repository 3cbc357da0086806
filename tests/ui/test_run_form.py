"""The form of the deployment `run-eval`: a person fills in a request, and the flow gets it as it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from blocks.ec2_config import Ec2Config
from fleet.evals.request import EvalRequest, ModelSpec, SolverSpec, TaskSpec
from flows.run_eval import run_eval
from tests.cloud import CloudUnderTest
from tests.ui.prefect_ui import PrefectUI

pytestmark = [pytest.mark.cloud, pytest.mark.browser]


def deploy(api: str) -> str:
    async def apply() -> str:
        deployment = await run_eval.ato_deployment(name="without-a-pool")
        return str(await deployment.aapply())

    with temporary_settings({PREFECT_API_URL: api}):
        return asyncio.run(apply())


@pytest.fixture(scope="module")
def deployment(shared_cloud: CloudUnderTest) -> Iterator[str]:
    """The id of a deployment of `run_eval` that nothing serves: its runs stay scheduled, with their parameters."""
    with ThreadPoolExecutor(1) as other:  # the browser's driver keeps an event loop in this thread
        made = other.submit(deploy, shared_cloud.local.prefect_api).result()
    yield made
    with httpx.Client(base_url=f"{shared_cloud.local.prefect_api}/", timeout=30) as client:
        for run in shared_cloud.flow_runs(deployment_id={"any_": [made]}):
            client.delete(f"flow_runs/{run['id']}").raise_for_status()
        client.delete(f"deployments/{made}").raise_for_status()


def parameters(cloud: CloudUnderTest, run: str) -> tuple[EvalRequest, Ec2Config]:
    """What the flow would be called with."""
    given = cloud.prefect(f"flow_runs/{run}")["parameters"]
    return EvalRequest.model_validate(given["request"]), Ec2Config.model_validate(given["config"])


def test_a_task_and_a_model_are_enough(ui: PrefectUI, shared_cloud: CloudUnderTest, deployment: str) -> None:
    form = ui.run_form(deployment)
    form.fill({"request": {"tasks": [{"name": "fleet_examples/elements"}], "models": [{"name": "scripted/chemist"}]}})
    request, config = parameters(shared_cloud, form.submit())
    assert request == EvalRequest(
        tasks=[TaskSpec(name="fleet_examples/elements")], models=[ModelSpec(name="scripted/chemist")]
    )
    assert config == Ec2Config()


def test_every_kind_of_field_reaches_the_flow(ui: PrefectUI, shared_cloud: CloudUnderTest, deployment: str) -> None:
    request: dict[str, Any] = {
        "tasks": [
            {"name": "fleet_examples/elements", "args": {"kinds": ["symbol", "name"]}, "sample_ids": ["symbol-Fe", 7]},
            {"name": "fleet_examples/elements_shell"},
        ],
        "models": [{"name": "scripted/student", "args": {"latency": 0.5}, "roles": {"grader": "scripted/public"}}],
        "source": "examples",
        "packages": ["inspect-ai>=0.3.278"],
        "secrets": ["OPENAI_API_KEY"],
        "eval_config": {"epochs": 2, "limit": [1, 20], "fail_on_error": 0.1},
        "generate_config": {"temperature": 0.7},
        "log_dir": "s3://bucket/logs",
        "solver": {"name": "generate"},
        "python": "3.12",
        "samples_per_job": 5,
        "tags": ["nightly", "small"],
    }
    config: dict[str, Any] = {
        "instance_type_fallbacks": ["c7a.4xlarge", "m7i.4xlarge"],
        "max_workers": 2,
        "spot": True,
        "ami": "ami-0123456789abcdef0",
        "max_hours": 1.5,
    }
    form = ui.run_form(deployment)
    form.fill({"request": request, "config": config})
    read_request, read_config = parameters(shared_cloud, form.submit())
    assert read_request == EvalRequest.model_validate(request)
    assert read_request.solver == SolverSpec(name="generate")
    assert read_config == Ec2Config(**config)


def test_the_form_asks_for_the_usual_things_first_and_names_every_field(ui: PrefectUI, deployment: str) -> None:
    titles = ui.run_form(deployment).titles()
    first = titles.index("request") + 1
    assert titles[first : first + 4] == ["Tasks", "Models", "Source", "Packages"]
    assert "Field" not in titles  # what the form calls a property without a title


def test_a_request_without_tasks_is_refused_with_what_is_missing(ui: PrefectUI, deployment: str) -> None:
    assert "'tasks' is a required property" in ui.run_form(deployment).refusal()


def test_a_started_run_has_a_page_that_shows_its_parameters(ui: PrefectUI, deployment: str, tmp_path: Path) -> None:
    form = ui.run_form(deployment)
    form.fill({"request": {"tasks": [{"name": "a"}], "models": [{"name": "b"}]}})
    run = form.submit()
    ui.flow_run(run, "Parameters")  # tabs for steps and artifacts appear once it has begun
    ui.wait_for_text("samples_per_job")
    assert ui.screenshot(tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_typo_in_a_field_is_refused_before_a_run_exists(shared_cloud: CloudUnderTest, deployment: str) -> None:
    body = {
        "parameters": {"request": {"tasks": [{"name": "a"}], "models": [{"name": "b"}], "epoch": 2}},
        "enforce_parameter_schema": True,
    }
    address = f"{shared_cloud.local.prefect_api}/deployments/{deployment}/create_flow_run"
    answer = httpx.post(address, json=body, timeout=30)
    assert answer.status_code == 409
    assert "epoch" in answer.text
