"""What a person may set for an instance: the job variables of a work pool of type `ec2`, and the configuration they become.

The fields stand once, in `_InstanceFields`. Nothing is refused here, so that a configuration that can't be launched can
still be resolved to terminate what it launched; `order` refuses.
"""

from __future__ import annotations

from typing import Any, Literal

from prefect.settings import PREFECT_API_URL
from prefect.workers.base import BaseJobConfiguration, BaseVariables
from prefect_aws.credentials import AwsCredentials
from pydantic import BaseModel, Field

from fleet.pool.user_data import LONGEST_PARAMETER

DEFAULT_COMMAND = "fleet-python -m prefect.engine"
"""One interpreter: cancellation and crashes are the pool worker's duty, so that no runner has to stand beside the engine.
`fleet-python` is on the PATH of every worker image: a Python that has this project's dependencies."""
IMAGE_PARAMETER = "/inspect-fleet/worker-image"


class _InstanceFields(BaseModel):
    """The fields that variables and configuration share."""

    image: str = Field(
        default=IMAGE_PARAMETER,
        title="Image",
        description="AMI id, or the SSM parameter (starting with /) that holds one.",
    )
    instance_types: list[str] = Field(
        default=["c7i.4xlarge"],
        min_length=1,
        title="Instance types",
        description="Types in the order they are tried; the next one where there is no capacity.",
    )
    region: str = Field(default="us-east-1", title="Region", description="AWS region of the instance.")
    market: Literal["on-demand", "spot"] = Field(
        default="on-demand", title="Market", description="spot: on-demand where there is no spot capacity."
    )
    subnets: list[str] = Field(
        default=[], title="Subnets", description="Subnet ids in the order they are tried; empty: the default VPC's."
    )
    security_groups: list[str] = Field(
        default=[],
        title="Security groups",
        description="Ids (names in the default VPC only); none needs to allow inbound traffic.",
    )
    instance_profile: str | None = Field(
        default=None, title="Instance profile", description="Name or ARN of the instance profile."
    )
    volume_gb: int = Field(default=100, ge=8, title="Volume (GB)", description="Size of the encrypted root volume.")
    tags: dict[str, str] = Field(default={}, title="Tags", description="AWS tags of the instance and its volume.")
    max_hours: float = Field(
        default=24.0, gt=0, title="Lifetime (hours)", description="The instance powers off after this, come what may."
    )
    boot_seconds: int = Field(
        default=900,
        ge=1,
        title="Boot deadline (seconds)",
        description="An instance whose flow run hasn't started by then is terminated, and the flow run Crashed.",
    )
    api_key_parameter: str | None = Field(
        default=None,
        max_length=LONGEST_PARAMETER,
        title="Prefect API key parameter",
        description="SSM parameter that holds a Prefect Cloud API key; empty: the API takes none.",
    )
    api_auth_parameter: str | None = Field(
        default=None,
        max_length=LONGEST_PARAMETER,
        title="Prefect auth string parameter",
        description="SSM parameter that holds the auth string of a Prefect server of your own; empty: the API takes none.",
    )
    code: str | None = Field(
        default=None,
        title="Code archive",
        description="s3:// address of the code that the instance runs; empty: what is in the image.",
    )
    code_sha256: str | None = Field(default=None, title="Code SHA-256", description="The archive's SHA-256, as hex.")
    log_folder: str | None = Field(
        default=None,
        title="Log folder",
        description="s3:// address under which each instance puts its boot log.",
    )


class EC2Variables(BaseVariables, _InstanceFields):
    """The form of a work pool of type ec2."""

    aws_credentials: AwsCredentials = Field(
        default_factory=AwsCredentials,
        title="AWS credentials",
        description="Credentials of the pool worker; empty: what boto3 finds.",
    )


class EC2JobConfiguration(BaseJobConfiguration, _InstanceFields):
    """Everything about one instance. `env` holds, once prepared, the plain variables, the API's address and the run's id."""

    aws_credentials: AwsCredentials | None = Field(default=None)

    @classmethod
    def _base_environment(cls) -> dict[str, str]:
        # Prefect's own hands over all settings: home, database address and API credentials among them.
        url = PREFECT_API_URL.value()
        return {"PREFECT_API_URL": str(url)} if url else {}

    @staticmethod
    def _base_attribution_environment(*_: Any, **__: Any) -> dict[str, str]:
        return {}

    @staticmethod
    def _base_flow_run_command() -> str:
        return DEFAULT_COMMAND
