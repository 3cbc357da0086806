"""Where fleets run: the names of an account's resources, kept in one Prefect block."""

from __future__ import annotations

from prefect.blocks.core import Block
from pydantic import Field

from blocks.ec2_config import Ec2Config
from blocks.loading import BlockUnusable, loaded
from fleet.errors import RequestRefused
from fleet.evals.registry import Login, RegistryAccess
from fleet.evals.secrets import ParameterPlace
from fleet.evals.site import Site
from fleet.pool.user_data import LONGEST_BUCKET, LONGEST_PARAMETER, LONGEST_PREFIX

A_RUN = "00000000-0000-0000-0000-000000000000-9"
"""As long as the name of any run's attempt, for parameter names that are checked before there is a run."""


class AccountUnknown(RequestRefused):
    """Prefect has no block of this name, or one that can't be read."""

    account: str
    why: str

    def message(self) -> str:
        """One line: which block, the command that makes it."""
        return (
            f"no Fleet Account block {self.account!r} to use ({self.why}): make it with `fleet setup` (with PREFECT_API_URL, "
            "and --region if the account's stack isn't in your usual region; docs/account.md, step 2), or name another by --account"
        )


class FleetAccount(Block):
    """The AWS resources that every run of this deployment shares."""

    _block_type_name = "Fleet Account"
    _block_type_slug = "fleet-account"
    _description = (
        "Names of the AWS resources that Inspect Fleet uses: bucket, instance profile, network, worker image."
    )

    region: str = Field(
        default="us-east-1", description="Region of the bucket and, unless a run says otherwise, of its fleet."
    )
    bucket: str = Field(max_length=LONGEST_BUCKET, description="Bucket for artifacts, results and logs.")
    prefix: str = Field(
        default="inspect-fleet", max_length=LONGEST_PREFIX, description="Prefix of every key in the bucket."
    )
    instance_profile: str = Field(default="inspect-fleet-worker", description="Instance profile of the workers.")
    security_groups: list[str] = Field(
        default=[], description="Security groups of the workers; none may allow inbound traffic."
    )
    subnets: list[str] = Field(default=[], description="Subnets in the order they are tried; empty: the default VPC's.")
    parameter_path: str = Field(
        default="/inspect-fleet/instances", description="Path in SSM under which each instance's secrets are written."
    )
    image_parameter: str = Field(
        default="/inspect-fleet/worker-image", description="SSM parameter that names the worker image."
    )
    api_key_parameter: str = Field(
        default="",
        max_length=LONGEST_PARAMETER,
        description="SSM parameter with a Prefect Cloud API key, which instances read; empty: Prefect isn't Prefect Cloud.",
    )
    api_auth_parameter: str = Field(
        default="",
        max_length=LONGEST_PARAMETER,
        description="SSM parameter with the auth string of a Prefect server of your own; empty: it asks for none.",
    )

    advanced_parameters: bool = Field(
        default=False,
        description=(
            "Whether secrets of more than 4 KB may use SSM's advanced tier (8 KB): about $0.05 a month for each such "
            "parameter, by the hour, and each lives only while its instance boots."
        ),
    )

    docker_registry: str = Field(
        default="", description="Registry that instances log in to for container images; empty: Docker Hub."
    )
    docker_username_parameter: str = Field(
        default="",
        description="SSM parameter with the registry's user, for runs without DOCKERHUB_USERNAME among their secrets.",
    )
    docker_token_parameter: str = Field(
        default="",
        description="SSM parameter with the registry's token, for runs without DOCKERHUB_TOKEN among their secrets.",
    )
    registry_login: Login = Field(
        default="required",
        description=(
            "Whether a run that needs Docker needs a login: registries limit what one address may pull without. "
            "optional: it goes on where none is configured."
        ),
    )

    def settled(self, config: Ec2Config) -> Ec2Config:
        """The configuration with this account's region where the person named none."""
        return config if "region" in config.model_fields_set else config.model_copy(update={"region": self.region})

    def parameter_place(self, region: str) -> ParameterPlace:
        """Where a run's secrets will lie, with a stand-in for the run."""
        return ParameterPlace(
            path=self.site(region).secrets_of(A_RUN), region=region, advanced=self.advanced_parameters
        )

    def registry_access(self) -> RegistryAccess:
        """Where instances log in for container images, and by which parameters."""
        return RegistryAccess(
            registry=self.docker_registry,
            username_parameter=self.docker_username_parameter,
            token_parameter=self.docker_token_parameter,
            login=self.registry_login,
        )

    def network(self, region: str) -> tuple[list[str], list[str]]:
        """Subnets and security groups for a fleet in `region`: they belong to the account's own; elsewhere the defaults serve."""
        return (self.subnets, self.security_groups) if region == self.region else ([], [])

    def site(self, region: str | None = None) -> Site:
        """The AWS side of this deployment for a fleet in `region` (by default the account's own)."""
        return Site(
            region=region or self.region,
            bucket=self.bucket,
            bucket_region=self.region,
            prefix=self.prefix,
            parameter_path=self.parameter_path,
        )


def fleet_account(name: str) -> FleetAccount:
    """The account of this name. AccountUnknown."""
    try:
        return loaded(FleetAccount, name)
    except BlockUnusable as error:
        raise AccountUnknown(account=name, why=str(error)) from None
