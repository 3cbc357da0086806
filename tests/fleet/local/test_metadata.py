"""The metadata service by EC2's rules: the pure part as data, the rest through the running host."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.local import preset
from fleet.local.faults import FaultKit
from fleet.local.machines import Credentials, Machine
from fleet.local.metadata import TOKEN_HEADER, TTL_HEADER, Notice, Tokens, entries, look_up
from tests.fleet.local.conftest import Host, ask, describe

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MACHINE = Machine(
    id="i-1",
    region="us-east-1",
    zone="us-east-1b",
    state="running",
    image="ami-1",
    type="c7i.large",
    launched=NOW,
    tags={"Name": "worker", "prefect.io/flow-run-id": "f"},
    tags_in_metadata=True,
)
CREDENTIALS = Credentials("role", "AK", "SK", "T", updated=NOW, expires=NOW + timedelta(hours=6))


def status_of(method: str, url: str, headers: dict[str, str]) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(method, url, headers)
    return caught.value.code


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("meta-data/instance-id", "i-1"),
        ("meta-data/instance-type", "c7i.large"),
        ("meta-data/ami-id", "ami-1"),
        ("meta-data/placement/region", "us-east-1"),
        ("meta-data/placement/", "availability-zone\nregion"),
        ("meta-data/instance-life-cycle", "on-demand"),
        ("meta-data/tags/instance/Name", "worker"),
        ("meta-data/tags/instance/prefect.io/flow-run-id", "f"),
        ("meta-data/iam/security-credentials/", "role"),
        ("meta-data/spot/instance-action", None),
        ("meta-data/events/recommendations/rebalance", None),
        ("meta-data/nonsense", None),
    ],
)
def test_each_path_has_its_value(path: str, body: str | None) -> None:
    """A folder is listed; what isn't there is 404."""
    assert look_up(entries(MACHINE, Notice(), CREDENTIALS), path) == body


def test_the_root_lists_what_there_is() -> None:
    """Folders with a slash."""
    found = look_up(entries(MACHINE, Notice(), None), "meta-data/") or ""
    assert {"instance-id", "placement/", "tags/"} <= set(found.split("\n"))
    assert "iam/" not in found.split("\n")


def test_tags_are_there_only_where_the_launch_asked_for_them() -> None:
    """InstanceMetadataTags is off by default."""
    found = entries(replace(MACHINE, tags_in_metadata=False), Notice(), None)
    assert look_up(found, "meta-data/tags/instance/Name") is None


def test_a_spot_notice_says_what_and_when() -> None:
    """In UTC, to the second."""
    found = entries(MACHINE, Notice(ends=NOW + timedelta(minutes=2)), None)
    assert json.loads(found["meta-data/spot/instance-action"]) == {
        "action": "terminate",
        "time": "2026-01-01T00:02:00Z",
    }


def test_a_recommendation_says_since_when() -> None:
    """In UTC, to the second."""
    found = entries(MACHINE, Notice(rebalance=NOW), None)
    assert json.loads(found["meta-data/events/recommendations/rebalance"]) == {"noticeTime": "2026-01-01T00:00:00Z"}
    assert "meta-data/spot/instance-action" not in found


def test_a_token_is_for_one_instance_and_for_its_time() -> None:
    """Another instance's token, or one that has run out, is none."""
    clock = [0.0]
    tokens = Tokens(lambda: clock[0])
    token = tokens.issue("i-1", 10)
    assert tokens.good("i-1", token)
    assert not tokens.good("i-2", token)
    clock[0] = 10.0
    assert not tokens.good("i-1", token)


def test_nothing_is_answered_without_a_token(host: Host, launch: Callable[..., str]) -> None:
    """IMDSv2: 401 for none, a made-up one and another instance's; 400 for a PUT without a time, 403 through a proxy."""
    base, other = (f"{host.metadata}/{launch()}/latest" for _ in range(2))
    instance_id = f"{base}/meta-data/instance-id"
    assert status_of("GET", instance_id, {}) == 401
    assert status_of("GET", instance_id, {TOKEN_HEADER: "made up"}) == 401
    foreign = ask("PUT", f"{other}/api/token", {TTL_HEADER: "60"})
    assert status_of("GET", instance_id, {TOKEN_HEADER: foreign}) == 401
    assert status_of("PUT", f"{base}/api/token", {}) == 400
    assert status_of("PUT", f"{base}/api/token", {TTL_HEADER: "21601"}) == 400
    assert status_of("PUT", f"{base}/api/token", {TTL_HEADER: "60", "X-Forwarded-For": "10.0.0.1"}) == 403


def test_an_instance_reads_of_itself_what_ec2_says_of_it(host: Host, ec2: Any, launch: Callable[..., str]) -> None:
    """Identity, address, place, user data and tags, the latter as they are now."""
    instance = launch("exit 0")
    said = describe(ec2, instance)
    assert host.imds(instance, "meta-data/local-ipv4") == said["PrivateIpAddress"]
    assert host.imds(instance, "meta-data/placement/availability-zone") == said["Placement"]["AvailabilityZone"]
    assert host.imds(instance, "user-data") == "#!/bin/bash\nexit 0"
    document = json.loads(host.imds(instance, "dynamic/instance-identity/document"))
    assert (document["instanceId"], document["accountId"]) == (instance, preset.ACCOUNT)
    ec2.create_tags(Resources=[instance], Tags=[{"Key": "late", "Value": "yes"}])
    assert host.imds(instance, "meta-data/tags/instance/late") == "yes"


def test_credentials_are_renewed_before_they_end(host: Host, kit: FaultKit, launch: Callable[..., str]) -> None:
    """The same while they are fresh; others when their end is near."""
    instance = launch()
    path = f"meta-data/iam/security-credentials/{preset.ROLE}"
    first = json.loads(host.imds(instance, path))
    assert json.loads(host.imds(instance, path)) == first
    kit.timing(credentials=12 * 21_600)  # so that six hours are less than a twelfth
    assert json.loads(host.imds(instance, path))["AccessKeyId"] != first["AccessKeyId"]


def test_an_instance_without_a_profile_has_no_credentials(host: Host, ec2: Any) -> None:
    """404, as EC2: botocore then says that there are none."""
    answer = ec2.run_instances(ImageId=preset.IMAGE, MinCount=1, MaxCount=1, InstanceType="c7i.large")
    instance = answer["Instances"][0]["InstanceId"]
    with pytest.raises(KeyError):
        host.imds(instance, "meta-data/iam/security-credentials/")
    with pytest.raises(KeyError):
        host.imds(instance, "user-data")
    ec2.terminate_instances(InstanceIds=[instance])
