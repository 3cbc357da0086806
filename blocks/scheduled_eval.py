"""An eval that a schedule runs: filled in once, in the UI or from Python, and run every night as it stands."""

from __future__ import annotations

from prefect.blocks.core import Block
from pydantic import Field

from blocks.ec2_config import Ec2Config
from blocks.hawk import Place
from fleet.evals.request import EvalRequest


class ScheduledEval(Block):
    """A request and where it runs, kept for the nightly run."""

    _block_type_name = "Scheduled Eval"
    _block_type_slug = "scheduled-eval"
    _description = "An eval request and its fleet options, for the nightly deployment to run."

    request: EvalRequest = Field(description="What to run.")
    config: Ec2Config = Field(
        default=Ec2Config(auto_confirm=True), description="The fleet. Nobody is there at night to confirm a launch."
    )
    account: str = Field(default="default", description="Name of the Fleet Account block.")
    worker_secrets: str | None = Field(default=None, description="Name of a Worker Secrets block.")
    backend: Place = Field(default="fleet", description="Where it runs: on a fleet, or on a Hawk deployment.")
    hawk: str = Field(default="default", description="Name of the Hawk Deployment block, for the backend hawk.")
