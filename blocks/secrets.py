"""Values that workers need and nobody may see: kept by Prefect, encrypted, and handed to each instance by its own parameter."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import cast

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import Field

from fleet.evals.secrets import chosen


class WorkerSecrets(Block):
    """Secret environment variables of the workers, by name."""

    _block_type_name = "Worker Secrets"
    _block_type_slug = "worker-secrets"
    _description = "Secret environment variables for fleet workers, such as model API keys."

    values: SecretDict = Field(description="Value by environment variable name, such as OPENAI_API_KEY.")


def secret_values(names: Sequence[str], block: str | None) -> dict[str, str]:
    """The values of the secrets a request names: from the block, else from this process's environment. SecretNotSet."""
    kept: dict[str, str] = {}
    if block:
        loaded = cast("WorkerSecrets", WorkerSecrets.load(block))
        kept = {name: str(value) for name, value in loaded.values.get_secret_value().items()}
    return chosen(names, os.environ, kept=kept, block=block)
