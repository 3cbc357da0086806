"""Values that workers need and nobody may see: kept by Prefect, encrypted, and handed to each instance by its own parameter."""

from __future__ import annotations

import os
from typing import cast

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import Field

from fleet.evals.request import EvalRequest
from fleet.evals.secrets import ParameterPlace, RunSecrets, SecretsRefused, chosen
from fleet.evals.setting_values import setting_values


class WorkerSecrets(Block):
    """Secret environment variables of the workers, by name."""

    _block_type_name = "Worker Secrets"
    _block_type_slug = "worker-secrets"
    _description = "Secret environment variables for fleet workers, such as model API keys."

    values: SecretDict = Field(description="Value by environment variable name, such as OPENAI_API_KEY.")


def run_secrets(request: EvalRequest, block: str | None, place: ParameterPlace | None) -> RunSecrets:
    """What a request's instances are given: its secrets, from the block, else from this process's environment, and the values
    of its settings.

    SecretsRefused: all that is wrong with them, such as what would not fit at `place` (None: they travel in no parameter).
    """
    kept: dict[str, str] = {}
    if block:
        loaded = cast("WorkerSecrets", WorkerSecrets.load(block))
        kept = {name: str(value) for name, value in loaded.values.get_secret_value().items()}
    settings, problems = {}, []
    try:
        settings = setting_values(request.settings)
    except SecretsRefused as refused:  # named together with what else is wrong
        problems = refused.problems
    return chosen(
        request.secrets, os.environ, kept=kept, block=block, settings=settings, place=place, problems=problems
    )
