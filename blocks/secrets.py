"""Values that workers need and nobody may see: kept by Prefect, encrypted, and handed to each instance by its own parameter."""

from __future__ import annotations

import os

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import Field

from blocks.loading import BlockUnusable, loaded
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import ParameterPlace, RunSecrets, SecretsRefused, chosen
from fleet.evals.setting_values import setting_values


class WorkerSecrets(Block):
    """Secret environment variables of the workers, by name."""

    _block_type_name = "Worker Secrets"
    _block_type_slug = "worker-secrets"
    _description = "Secret environment variables for fleet workers, such as model API keys."

    values: SecretDict = Field(description="Value by environment variable name, such as OPENAI_API_KEY.")


def run_secrets(request: EvalRequest, block: str | None, place: ParameterPlace) -> RunSecrets:
    """What a request's instances are given: all of the block, its secrets that aren't there from this process's environment, and
    the values of its settings.

    SecretsRefused: all that is wrong with them, such as what would not fit at `place`.
    """
    kept = kept_values(block)
    settings, problems = {}, []
    try:
        settings = setting_values(request.settings)
    except SecretsRefused as refused:  # named together with what else is wrong
        problems = refused.problems
    return chosen(
        request.secrets, os.environ, kept=kept, block=block, settings=settings, place=place, problems=problems
    )


def named_secrets(request: EvalRequest, block: str | None) -> RunSecrets:
    """What another service is sent with a request: the secrets that it names, from the block, else from this process's
    environment, and nothing more of the block. SecretsRefused.
    """
    kept = {name: value for name, value in kept_values(block).items() if name in request.secrets}
    return chosen(request.secrets, os.environ, kept=kept, block=block)


def kept_values(block: str | None) -> dict[str, str]:
    """The values in a Worker Secrets block; without one none. SecretsRefused: there is no such block, or it can't be read."""
    if not block:
        return {}
    try:
        values = loaded(WorkerSecrets, block).values.get_secret_value()
    except BlockUnusable as error:
        why = f"the worker-secrets block {block!r} can't be used: {error}; make it in the UI, or name another"
        raise SecretsRefused(problems=[why]) from None
    return {name: str(value) for name, value in values.items()}
