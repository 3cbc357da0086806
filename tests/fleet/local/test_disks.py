"""Volumes of instances, on the real host: what one holds outlives the instance. And addresses by which instances meet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local.corrections_network import loopback_address
from tests.fleet.local.conftest import Host, describe, state_of, wait_until

TOOLS = """
until [ "$(lsblk --json --output PATH,SERIAL,FSTYPE,MOUNTPOINT | grep -c vol)" = 1 ]; do sleep 0.05; done
device=$(lsblk --json --output PATH | sed -E 's/.*"path":"([^"]+)".*/\\1/')
"""
"""Waits for the one volume."""


@pytest.fixture
def volume(ec2: Any) -> Iterator[str]:
    """A new volume in the first zone."""
    made: str = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3", Encrypted=True)["VolumeId"]
    yield made
    if ec2.describe_volumes(VolumeIds=[made])["Volumes"][0]["Attachments"]:
        ec2.detach_volume(VolumeId=made)
    ec2.delete_volume(VolumeId=made)


def attach(ec2: Any, instance: str, volume: str) -> None:
    wait_until(lambda: state_of(ec2, instance) == "running")
    ec2.attach_volume(InstanceId=instance, VolumeId=volume, Device="/dev/sdf")


def placed(launch: Callable[..., str], script: str = "") -> str:
    return launch(script, Placement={"AvailabilityZone": "us-east-1a"})


def test_a_volume_keeps_its_files_when_its_instance_ends(
    host: Host, ec2: Any, launch: Callable[..., str], volume: str
) -> None:
    """New, it has no file system (blkid: 2). The next instance finds the one that was made, with what it holds."""
    first = placed(
        launch,
        TOOLS
        + """
        blkid -p -o value -s TYPE "$device"; echo "blkid: $?" >said
        mkfs.ext4 -q "$device"; mkdir disk; mount -o noatime "$device" disk
        echo hello >disk/letter; lsblk --json --output PATH,SERIAL,FSTYPE,MOUNTPOINT >seen; mv seen done
        """,
    )
    attach(ec2, first, volume)
    home = host.home_of(first)
    wait_until(lambda: (home / "done").exists())
    assert (home / "said").read_text() == "blkid: 2\n"
    (found,) = json.loads((home / "done").read_text())["blockdevices"]
    assert (found["fstype"], found["mountpoint"]) == ("ext4", "disk")
    assert found["serial"] == volume.replace("-", "")
    ec2.terminate_instances(InstanceIds=[first])
    wait_until(lambda: ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]["State"] == "available")

    second = placed(launch, TOOLS + 'blkid -p "$device"; mkdir disk; mount "$device" disk; cat disk/letter >read')
    attach(ec2, second, volume)
    wait_until(lambda: (host.home_of(second) / "read").exists() and (host.home_of(second) / "read").read_text() != "")
    assert (host.home_of(second) / "read").read_text() == "hello\n"
    ec2.detach_volume(VolumeId=volume)
    assert list((host.folder_of(second) / "devices").iterdir()) == []


def test_a_volume_is_on_one_instance_in_its_own_zone(ec2: Any, launch: Callable[..., str], volume: str) -> None:
    here, there, elsewhere = (
        placed(launch),
        placed(launch),
        launch(Placement={"AvailabilityZone": "us-east-1b"}),
    )
    attach(ec2, here, volume)
    with pytest.raises(ClientError) as refused:
        attach(ec2, there, volume)
    assert refused.value.response["Error"]["Code"] == "VolumeInUse"
    ec2.detach_volume(VolumeId=volume)
    with pytest.raises(ClientError) as refused:
        attach(ec2, elsewhere, volume)
    assert refused.value.response["Error"]["Code"] == "InvalidVolume.ZoneMismatch"


def test_each_instance_has_a_loopback_address_of_its_own_that_the_others_reach(
    host: Host, ec2: Any, launch: Callable[..., str]
) -> None:
    """Metadata and DescribeInstances say the same; two instances serve the same port."""
    server = "until grep -q 127 address; do sleep 0.05; done\nfleet-python -m http.server 4200 --bind $(cat address)"
    one, other = launch(server), launch(server)
    for instance in (one, other):
        address = host.imds(instance, "meta-data/local-ipv4")
        assert address == describe(ec2, instance)["PrivateIpAddress"] == loopback_address(instance)
        wait_until(host.home_of(instance).exists)
        (host.home_of(instance) / "address").write_text(address)
    told = f"until curl -sf --noproxy '*' http://{loopback_address(other)}:4200/address >read; do sleep 0.1; done; mv read got"
    reader = launch(told)
    wait_until(lambda: (host.home_of(reader) / "got").exists())
    assert (host.home_of(reader) / "got").read_text() == loopback_address(other)


def test_a_session_begins_with_an_instance_that_runs_and_has_a_role(
    host: Host, ec2: Any, ssm: Any, launch: Callable[..., str]
) -> None:
    instance = launch("sleep 60")
    wait_until(lambda: state_of(ec2, instance) == "running")
    opened = ssm.start_session(
        Target=instance,
        DocumentName="AWS-StartPortForwardingSessionToRemoteHost",
        Parameters={"host": ["127.0.0.1"], "portNumber": ["4200"], "localPortNumber": ["4201"]},
    )
    assert opened["SessionId"]
    assert opened["TokenValue"]
    assert ssm.terminate_session(SessionId=opened["SessionId"])["SessionId"] == opened["SessionId"]
    with pytest.raises(ClientError) as refused:
        ssm.start_session(Target="i-0123456789abcdef0")
    assert refused.value.response["Error"]["Code"] == "TargetNotConnected"
