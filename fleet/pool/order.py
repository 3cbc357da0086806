"""From a job configuration to a launch: pure, apart from what is passed in. Whatever can't be launched is refused here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from fleet.aws.instances import LAUNCH_TAG, LaunchOrder
from fleet.aws.tags import AWS_PREFIX, MOST_TAGS, legal_tags, value_of
from fleet.errors import RequestRefused
from fleet.evals.preparation import OWNER_TAG
from fleet.pool.environment import check_plain, check_reachable, instance_environment
from fleet.pool.user_data import user_data

if TYPE_CHECKING:  # with it comes all of prefect-aws, which a controller that reads a tag has no use for
    from fleet.pool.variables import EC2JobConfiguration

POOL_TAG = "inspect-fleet:pool"
"""Tag with the work pool's id: a pool worker finds its instances by it, also after a restart."""
FLOW_RUN_TAG = "inspect-fleet:flow-run"
"""Tag with the id of the flow run that an instance is for: written right after the launch, and read by the instance itself."""
OF_ONE_RUN = frozenset({"prefect.io/flow-run-id", "prefect.io/flow-run-name"})
"""Prefect's labels that are one flow run's own: its id is a tag already, and its name is the instance's."""
GIVEN_BY_PREFECT = frozenset({"PREFECT_API_URL", "PREFECT__FLOW_RUN_ID"})
OWN_TAGS = 6
"""Tags of an instance beside those that it is given: its name, who launched it, flow run, pool, launch, and one to spare."""


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
        if key.lower().startswith(AWS_PREFIX):
            raise JobVariableRefused(name="tags", why=f"{key!r}: keys that start with aws: are AWS's own")
    count = len({**configuration.labels, **configuration.tags})
    if count > MOST_TAGS - OWN_TAGS:
        why = f"{count} tags and labels, and an instance takes {MOST_TAGS}, of which {OWN_TAGS} are the pool's own"
        raise JobVariableRefused(name="tags", why=why)


def make_order(
    configuration: EC2JobConfiguration,
    *,
    attempt: str,
    flow_run_id: str,
    pool_id: str,
    image: str,
    root_device: str,
    launched_by: str,
    alone: bool = False,
) -> LaunchOrder:
    """The order for one instance. Equal ones of other flow runs can be asked for together. UserDataTooLarge, CommandRefused.

    Without a code archive nothing on the instance can look for the flow run's tag, and where `alone` says so it would look in
    vain: then the user data names the flow run, and the order equals no other.
    """
    plain = {name: value for name, value in configuration.env.items() if name not in GIVEN_BY_PREFECT}
    named = alone or not configuration.code
    environment = instance_environment(
        plain=plain,
        api_url=configuration.env.get("PREFECT_API_URL"),
        flow_run_id=flow_run_id if named else None,
        flow_run_tag=None if named else FLOW_RUN_TAG,
        region=configuration.region,
        code=configuration.code,
        code_sha256=configuration.code_sha256,
        log_folder=configuration.log_folder,
        api_key_parameter=configuration.api_key_parameter,
        api_auth_parameter=configuration.api_auth_parameter,
    )
    labels = {key: value for key, value in configuration.labels.items() if key not in OF_ONE_RUN}
    return LaunchOrder(
        attempt=attempt,
        image=image,
        root_device=root_device,
        user_data=user_data(environment, configuration.command or "", max_hours=configuration.max_hours),
        tags=common_tags({**labels, **configuration.tags}, pool_id=pool_id, launched_by=launched_by),
        security_groups=tuple(configuration.security_groups),
        instance_profile=configuration.instance_profile,
        volume_gb=configuration.volume_gb,
    )


def common_tags(given: Mapping[str, str], *, pool_id: str, launched_by: str) -> dict[str, str]:
    """The tags from the first moment, as AWS takes them; what finds an instance again can't be overridden by what is given."""
    # A run says who asked for it; the pool worker is meant only where nobody does.
    tags = legal_tags({OWNER_TAG: launched_by, **given})
    return {key: value for key, value in tags.items() if key not in (FLOW_RUN_TAG, LAUNCH_TAG)} | {
        POOL_TAG: value_of(pool_id)
    }


def own_tags(configuration: EC2JobConfiguration, flow_run_id: str) -> dict[str, str]:
    """The tags of one flow run's instance, beside those in common."""
    named = configuration.tags.get("Name") or configuration.name or f"flow run {flow_run_id[:8]}"
    return {"Name": value_of(named), FLOW_RUN_TAG: value_of(flow_run_id)}


def as_uuid(text: str) -> UUID | None:
    """The flow run's id; None: a tag that somebody else wrote."""
    try:
        return UUID(text)
    except ValueError:
        return None
