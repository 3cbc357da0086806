"""Session Manager: a way to a port of an instance that lets nothing in, through AWS and with the person's own permissions.

AWS opens the session; the program `session-manager-plugin`, AWS's own, carries its bytes. Nothing here waits for either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.aws.commands import fleet_command
from fleet.aws.failures import calling
from fleet.aws.session import Aws
from fleet.errors import FleetError

PLUGIN = "session-manager-plugin"
DOCUMENT = "AWS-StartPortForwardingSessionToRemoteHost"
"""To an address as the instance sees it: its own private one. The plain port forwarding document knows the instance's loopback
alone, and a server that listens on that can't be reached by other instances."""
ANSWER_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
LAST_WITHOUT_VARIABLE = (1, 2, 497, 0)
"""The last release of the plugin that takes the session's token as an argument only, which every process list shows."""


class InstanceAbsent(FleetError):
    """No running instance has the tag."""

    tag: str
    region: str

    def message(self) -> str:
        """One line: what was looked for, and the ways out."""
        setup = fleet_command(self.region, "setup", "--param", "ControlPlane=running")
        return (
            f"no running instance in {self.region} has the tag {self.tag}: is this the control plane's region (--region), has it "
            f"booted, and is it part of the account's stack, and not paused (`{setup}`)?"
        )


@dataclass(frozen=True, slots=True)
class Target:
    """An instance to reach."""

    instance: str
    address: str
    """Its private address."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session that AWS has opened. Its token is a secret."""

    id: str
    answer: str
    """AWS's answer as the plugin takes it, token included."""
    request: str

    def __repr__(self) -> str:
        return f"Session({self.id!r})"


def find_tagged(aws: Aws, tag: str) -> Target:
    """The running instance with this tag, the newest of several. InstanceAbsent, AwsRefused."""
    filters = [
        {"Name": "tag-key", "Values": [tag]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    with calling("ec2", f"{aws.region}, tag {tag}"):
        pages = aws.ec2.get_paginator("describe_instances").paginate(Filters=filters)  # type: ignore[arg-type]
        found = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
    if not found:
        raise InstanceAbsent(tag=tag, region=aws.region)
    newest = max(found, key=lambda one: one["LaunchTime"])
    return Target(newest["InstanceId"], newest["PrivateIpAddress"])


def open_session(aws: Aws, target: Target, *, port: int, local_port: int) -> Session:
    """A session from `local_port` here to `port` of the instance; it waits for the plugin. AwsRefused."""
    parameters = {"host": [target.address], "portNumber": [str(port)], "localPortNumber": [str(local_port)]}
    with calling("ssm", target.instance):
        answer = aws.ssm.start_session(Target=target.instance, DocumentName=DOCUMENT, Parameters=parameters)
    kept = {name: answer[name] for name in ("SessionId", "TokenValue", "StreamUrl")}
    request = {"Target": target.instance, "DocumentName": DOCUMENT, "Parameters": parameters}
    return Session(answer["SessionId"], json.dumps(kept), json.dumps(request))


def close_session(aws: Aws, session: Session) -> None:
    """End a session; one that has ended is none. AwsRefused."""
    with calling("ssm", session.id):
        aws.ssm.terminate_session(SessionId=session.id)


def plugin_command(
    session: Session, *, version: str, region: str, endpoint: str
) -> tuple[list[str], Mapping[str, str]]:
    """How the plugin (of this version, by its own word) is called for a session: its arguments, and variables for it.

    As AWS's own command does it: the token goes by a variable where the plugin knows that.
    """
    by_variable = _parts(version) > LAST_WITHOUT_VARIABLE
    answer = ANSWER_VARIABLE if by_variable else session.answer
    # Between the two: the name of a profile, which the plugin only needs to open a session anew by itself.
    arguments = [PLUGIN, answer, region, "StartSession", "", session.request, endpoint]
    return arguments, {ANSWER_VARIABLE: session.answer} if by_variable else {}


def _parts(version: str) -> tuple[int, ...]:
    found = re.fullmatch(r"\d+(?:\.\d+)*", version.strip())
    return tuple(int(part) for part in version.strip().split(".")) if found else ()
