"""Sessions: whom they reach, and how the plugin is told, without a token in a process list."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from fleet.aws.failures import AwsRefused, Denied
from fleet.aws.session import Aws
from fleet.aws.sessions import (
    ANSWER_VARIABLE,
    DOCUMENT,
    InstanceAbsent,
    Session,
    Target,
    close_session,
    find_tagged,
    open_session,
    plugin_command,
)

TOKEN = "a-token-that-opens-the-session"
SESSION = Session("s-1", json.dumps({"SessionId": "s-1", "TokenValue": TOKEN, "StreamUrl": "wss://x"}), "{}")


class FakeAws:
    """EC2 with instances in it, and SSM that opens and ends sessions with them."""

    region = "eu-west-1"

    def __init__(self, *instances: dict[str, Any], refuses: str = "") -> None:
        self.instances = instances
        self.refuses = refuses
        self.opened: list[dict[str, Any]] = []
        self.ended: list[str] = []
        self.ec2 = SimpleNamespace(get_paginator=lambda _: self)
        self.ssm = SimpleNamespace(start_session=self._start, terminate_session=self._end)

    def paginate(self, Filters: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: N803
        assert {"Name": "instance-state-name", "Values": ["running"]} in Filters
        return [{"Reservations": [{"Instances": [one]}]} for one in self.instances]

    def _start(self, **asked: Any) -> dict[str, str]:
        if self.refuses:
            raise ClientError({"Error": {"Code": self.refuses, "Message": "no"}}, "StartSession")
        self.opened.append(asked)
        return {"SessionId": "s-1", "TokenValue": TOKEN, "StreamUrl": "wss://x", "ResponseMetadata": ""}

    def _end(self, SessionId: str) -> None:  # noqa: N803
        self.ended.append(SessionId)

    @property
    def aws(self) -> Aws:
        return cast("Aws", self)


def an_instance(name: str, hour: int) -> dict[str, Any]:
    launched = datetime(2026, 1, 1, hour, tzinfo=UTC)
    return {"InstanceId": name, "PrivateIpAddress": f"10.0.0.{hour}", "LaunchTime": launched}


def test_the_newest_of_several_is_reached() -> None:
    """While one ends and the next one boots, both may run."""
    fake = FakeAws(an_instance("i-old", 1), an_instance("i-new", 2))
    assert find_tagged(fake.aws, "the:tag") == Target("i-new", "10.0.0.2")


def test_none_is_said_with_the_region_and_the_ways_out() -> None:
    with pytest.raises(InstanceAbsent, match=r"in eu-west-1 has the tag the:tag.*--region") as absent:
        find_tagged(FakeAws().aws, "the:tag")
    assert "`fleet setup --param ControlPlane=running --region eu-west-1`" in str(absent.value)


def test_a_session_leads_to_the_instances_own_private_address() -> None:
    """A server that listened on its loopback couldn't be reached by workers, so plain port forwarding won't do."""
    fake = FakeAws()
    session = open_session(fake.aws, Target("i-1", "10.0.0.9"), port=4200, local_port=4201)
    (asked,) = fake.opened
    assert (asked["Target"], asked["DocumentName"]) == ("i-1", DOCUMENT)
    assert asked["Parameters"] == {"host": ["10.0.0.9"], "portNumber": ["4200"], "localPortNumber": ["4201"]}
    assert json.loads(session.request)["Parameters"] == asked["Parameters"]
    assert TOKEN not in repr(session)
    close_session(fake.aws, session)
    assert fake.ended == ["s-1"]


@pytest.mark.parametrize(("code", "kind"), [("TargetNotConnected", AwsRefused), ("AccessDeniedException", Denied)])
def test_a_refused_session_says_whose(code: str, kind: type[AwsRefused]) -> None:
    with pytest.raises(kind, match="i-1"):
        open_session(FakeAws(refuses=code).aws, Target("i-1", "10.0.0.9"), port=1, local_port=2)


@pytest.mark.parametrize("version", ["1.2.707.0\n", "1.2.497.1", "1.3.0.0", "2.0.0.0"])
def test_a_plugin_that_can_is_told_the_token_by_a_variable(version: str) -> None:
    arguments, variables = plugin_command(SESSION, version=version, region="r", endpoint="https://ssm")
    assert arguments == ["session-manager-plugin", ANSWER_VARIABLE, "r", "StartSession", "", "{}", "https://ssm"]
    assert TOKEN in variables[ANSWER_VARIABLE]


@pytest.mark.parametrize("version", ["1.2.497.0", "1.2.398.0", "", "unknown"])
def test_an_old_plugin_takes_it_as_an_argument_only(version: str) -> None:
    arguments, variables = plugin_command(SESSION, version=version, region="r", endpoint="https://ssm")
    assert TOKEN in arguments[1]
    assert not variables
