"""From a job configuration to a launch: pure, apart from what is passed in. Whatever can't be launched is refused here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.aws.capacity import Candidate, candidates
from fleet.aws.instances import LaunchOrder
from fleet.errors import RequestRefused
from fleet.evals.preparation import OWNER_TAG
from fleet.pool.environment import check_plain, check_reachable, instance_environment
from fleet.pool.user_data import user_data
from fleet.pool.variables import EC2JobConfiguration

POOL_TAG = "inspect-fleet:pool"
"""Tag with the work pool's id: a pool worker finds its instances by it, also after a restart."""
FLOW_RUN_TAG = "prefect.io/flow-run-id"
GIVEN_BY_PREFECT = frozenset({"PREFECT_API_URL", "PREFECT__FLOW_RUN_ID"})
_NOT_IN_TAGS = re.compile(r"[^\w\s+\-=.:/@]")


class JobVariableRefused(RequestRefused):
    """A job variable can't be launched with."""

    name: str
    why: str

    def message(self) -> str:
        """One line: which one, and why."""
        return f"job variable {self.name} refused: {self.why}"


def check(configuration: EC2JobConfiguration, *, aws_endpoint: str) -> None:
    """Refuse what can't work before AWS is asked for anything. SecretInEnvironment, ApiUnreachable, JobVariableRefused, …"""
    plain = {name: value for name, value in configuration.env.items() if name not in GIVEN_BY_PREFECT}
    check_plain(plain)
    check_reachable(configuration.env.get("PREFECT_API_URL"), aws_endpoint)
    if configuration.code and not configuration.code_sha256:
        raise JobVariableRefused(name="code", why="code_sha256 must say what the archive is")
    for name in ("code", "log_folder"):
        address = getattr(configuration, name)
        if address and not re.fullmatch(r"s3://[^/]+/.+", address):
            raise JobVariableRefused(name=name, why=f"{address!r} is no s3://bucket/key address")
    if configuration.api_key_parameter and configuration.api_auth_parameter:
        why = "api_key_parameter is set too; Prefect Cloud takes a key, and a server of your own an auth string"
        raise JobVariableRefused(name="api_auth_parameter", why=why)
    for key in configuration.tags:
        if key.lower().startswith("aws:"):
            raise JobVariableRefused(name="tags", why=f"{key!r}: keys that start with aws: are AWS's own")


def make_order(
    configuration: EC2JobConfiguration,
    *,
    attempt: str,
    flow_run_id: str,
    pool_id: str,
    image: str,
    root_device: str,
    launched_by: str,
) -> LaunchOrder:
    """The order for one instance. UserDataTooLarge, CommandRefused."""
    plain = {name: value for name, value in configuration.env.items() if name not in GIVEN_BY_PREFECT}
    environment = instance_environment(
        plain=plain,
        api_url=configuration.env.get("PREFECT_API_URL"),
        flow_run_id=flow_run_id,
        region=configuration.region,
        code=configuration.code,
        code_sha256=configuration.code_sha256,
        log_folder=configuration.log_folder,
        api_key_parameter=configuration.api_key_parameter,
        api_auth_parameter=configuration.api_auth_parameter,
    )
    return LaunchOrder(
        attempt=attempt,
        image=image,
        root_device=root_device,
        user_data=user_data(environment, configuration.command or "", max_hours=configuration.max_hours),
        tags=instance_tags(
            {**configuration.labels, **configuration.tags},
            name=configuration.name or f"flow run {flow_run_id[:8]}",
            flow_run_id=flow_run_id,
            pool_id=pool_id,
            launched_by=launched_by,
        ),
        security_groups=tuple(configuration.security_groups),
        instance_profile=configuration.instance_profile,
        volume_gb=configuration.volume_gb,
    )


def places(configuration: EC2JobConfiguration) -> tuple[Candidate, ...]:
    """Where the instance is looked for, in order."""
    return candidates(configuration.instance_types, configuration.subnets, configuration.market)


def instance_tags(
    given: Mapping[str, str], *, name: str, flow_run_id: str, pool_id: str, launched_by: str
) -> dict[str, str]:
    """All tags of an instance, as AWS takes them; what finds it again can't be overridden by what is given."""
    tags = {
        "Name": name,
        OWNER_TAG: launched_by,  # a run says who asked for it; the pool worker is meant only where nobody does
        **given,
        FLOW_RUN_TAG: flow_run_id,
        POOL_TAG: pool_id,
    }
    return {_NOT_IN_TAGS.sub("-", key)[:128]: _NOT_IN_TAGS.sub("-", value)[:256] for key, value in tags.items()}
