"""Values that workers need and nobody may see: kept by Prefect, encrypted, and handed to each instance by its own parameter."""

from __future__ import annotations

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import Field


class WorkerSecrets(Block):
    """Secret environment variables of the workers, by name."""

    _block_type_name = "Worker Secrets"
    _block_type_slug = "worker-secrets"
    _description = "Secret environment variables for fleet workers, such as model API keys."

    values: SecretDict = Field(description="Value by environment variable name, such as OPENAI_API_KEY.")
