"""How a fleet is launched: the options a person sets with `--ec2-arg key=value`, in the UI's form, or in a schedule."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fleet.aws.tags import key_of, value_of
from fleet.evals.documents import LONGEST_LEASE

OUR_PREFIX = "inspect-fleet:"
OURS = frozenset({"LaunchedBy", "Name"})
"""Keys that the fleet's own tags have."""
MOST_OWN_TAGS = 20
"""Of EC2's 50, with Prefect's labels and the fleet's own beside them."""


class Ec2Config(BaseModel):
    """Options of the fleet. A new knob is a field here and never a flag of the command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance_type: str = Field(default="c7i.4xlarge", description="EC2 instance type that is tried first.")
    instance_type_fallbacks: list[str] = Field(
        default=[], description="Types tried next, in order, where there is no capacity (a list, or comma-separated)."
    )
    region: str = Field(default="us-east-1", description="AWS region of the fleet.")
    max_workers: int = Field(default=24, ge=1, description="Most instances at a time.")
    concurrency_per_worker: int = Field(
        default=32,
        ge=1,
        description=(
            "Most jobs at a time on one instance; starts at 10, or where the last run had settled, and follows the rate limits."
        ),
    )
    estimate: bool = Field(default=False, description="Say what the run would cost, and end there.")
    auto_confirm: bool = Field(default=False, description="Launch without waiting for a person to approve.")
    new_fleet: bool = Field(default=False, description="Start over: use no result of an earlier run of this request.")
    spot: bool = Field(default=False, description="Use spot capacity, on-demand where there is none.")
    ami: str | None = Field(
        default=None,
        description="Worker image: an AMI id, or an SSM parameter that names one; empty: the account's own.",
    )
    volume_gb: int = Field(
        default=100,
        ge=8,
        le=16_384,
        description="Size of each instance's encrypted root volume in GB; at least that of the image.",
    )
    tags: dict[str, str] = Field(
        default={},
        description="AWS tags of the fleet's instances and volumes, such as a cost centre (a mapping, or `key=value, key=value`).",
    )
    worker_user: str = Field(default="root", min_length=1, description="User that runs the jobs on an instance.")
    worker_setup: str | None = Field(
        default=None, description="Local script that each instance runs as root before it takes jobs."
    )
    lease_seconds: int = Field(
        default=60,
        ge=5,
        le=LONGEST_LEASE,
        description="Seconds after which a silent instance's jobs go to another one.",
    )
    idle_seconds: int = Field(
        default=60, ge=1, description="Seconds without a job after which an instance ends; sooner if none is left."
    )
    boot_seconds: int = Field(
        default=900, ge=10, description="Seconds an instance may take from launch to its first step."
    )
    max_hours: float = Field(
        default=24.0, gt=0, description="Hours after which an instance powers itself off, come what may."
    )
    stall_hours: float = Field(
        default=4.0, ge=0, description="Hours without a finished job after which the run stops; 0: no limit."
    )
    max_cost: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Dollars after which the run stops: its instances so far, and the model calls of its finished jobs where "
            "model_cost_config prices them; empty: no limit."
        ),
    )
    deadline_hours: float | None = Field(
        default=None, gt=0, description="Hours after the launch at which the run stops; empty: no limit."
    )

    @field_validator("tags", mode="before")
    @classmethod
    def _from_pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        if any(not equals for _, equals, _ in parts):
            raise ValueError("write key=value, key=value")
        return {key.strip(): text.strip() for key, _, text in parts}

    @field_validator("tags")
    @classmethod
    def _legal(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if key != key_of(key) or key in OURS or key.startswith(OUR_PREFIX):
                raise ValueError(
                    f"{key!r} can't be a tag's key: letters, digits and -_+=,.@: only, and none that is the fleet's own"
                )
            if text != value_of(text):
                raise ValueError(
                    f"the value of {key!r} can't be a tag's: 256 letters, digits, spaces and -_+=.:/@ at most"
                )
        if len(value) > MOST_OWN_TAGS:
            raise ValueError(f"{len(value)} tags: a person can give {MOST_OWN_TAGS}")
        return value

    @field_validator("instance_type_fallbacks", mode="before")
    @classmethod
    def _from_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
