"""How EC2 makes an image of an instance, held against the running emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local.corrections_images import BASE
from tests.fleet.local.conftest import Host, state_of, wait_until

Launch = Callable[..., str]
TAGS = [{"Key": "build", "Value": "one"}]


@pytest.fixture
def running(ec2: Any, launch: Launch) -> str:
    instance = launch("mkdir -p $FLEET_ROOT/etc; echo baked > $FLEET_ROOT/etc/says", ImageId=BASE["amd64"][1])
    wait_until(lambda: state_of(ec2, instance) == "running")
    return instance


@pytest.fixture
def made(ec2: Any) -> Iterator[list[str]]:
    images: list[str] = []
    yield images
    for image in images:
        ec2.deregister_image(ImageId=image)


def refused(code: str) -> Any:
    return pytest.raises(ClientError, match=rf"\({code}\)")


def image_of(ec2: Any, image: str) -> dict[str, Any]:
    found: dict[str, Any] = ec2.describe_images(ImageIds=[image])["Images"][0]
    return found


def test_an_image_is_pending_then_available_and_is_what_the_instance_is(
    ec2: Any, running: str, made: list[str], unique: str
) -> None:
    tags = [{"ResourceType": kind, "Tags": TAGS} for kind in ("image", "snapshot")]
    image = ec2.create_image(InstanceId=running, Name=f"image-{unique}", TagSpecifications=tags)["ImageId"]
    made.append(image)
    found = image_of(ec2, image)
    assert (found["State"], found["Architecture"], found["Tags"]) == ("pending", "x86_64", TAGS)
    with refused("InvalidAMIID.Unavailable"):
        ec2.run_instances(ImageId=image, InstanceType="c7i.xlarge", MinCount=1, MaxCount=1)
    wait_until(lambda: image_of(ec2, image)["State"] == "available")
    snapshot = found["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    by_tag = ec2.describe_snapshots(OwnerIds=["self"], Filters=[{"Name": "snapshot-id", "Values": [snapshot]}])
    assert by_tag["Snapshots"][0]["Tags"] == TAGS
    with refused("InvalidAMIName.Duplicate"):
        ec2.create_image(InstanceId=running, Name=f"image-{unique}")


def test_what_was_on_the_instances_disk_is_on_that_of_an_instance_of_the_image(
    ec2: Any, host: Host, running: str, launch: Launch, made: list[str], unique: str
) -> None:
    wait_until(lambda: (host.folder / "roots" / running / "etc/says").exists())
    image = ec2.create_image(InstanceId=running, Name=f"image-{unique}")["ImageId"]
    made.append(image)
    wait_until(lambda: image_of(ec2, image)["State"] == "available")
    ec2.terminate_instances(InstanceIds=[running])
    wait_until(lambda: not (host.folder / "roots" / running).exists())
    second = launch('cat "$FLEET_ROOT/etc/says" > read', ImageId=image)
    read = host.home_of(second) / "read"
    wait_until(lambda: read.is_file() and read.read_text() == "baked\n")


def test_no_image_is_made_of_an_instance_that_is_gone_or_by_a_long_name(ec2: Any, running: str) -> None:
    with refused("InvalidAMIName.Malformed"):
        ec2.create_image(InstanceId=running, Name="a" * 129)
    ec2.terminate_instances(InstanceIds=[running])
    with refused("IncorrectInstanceState"):
        ec2.create_image(InstanceId=running, Name="abc")


def test_a_snapshot_can_be_deleted_once_its_image_is_deregistered(ec2: Any, running: str, unique: str) -> None:
    image = ec2.create_image(InstanceId=running, Name=f"image-{unique}")["ImageId"]
    snapshot = image_of(ec2, image)["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    with refused("InvalidSnapshot.InUse"):
        ec2.delete_snapshot(SnapshotId=snapshot)
    ec2.deregister_image(ImageId=image)
    ec2.delete_snapshot(SnapshotId=snapshot)
    with refused("InvalidSnapshot.NotFound"):
        ec2.delete_snapshot(SnapshotId=snapshot)


@pytest.mark.parametrize("word", BASE)
def test_canonicals_parameter_names_an_image_of_its_architecture_that_isnt_ours(ec2: Any, ssm: Any, word: str) -> None:
    name = f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{word}/hvm/ebs-gp3/ami-id"
    image = image_of(ec2, ssm.get_parameter(Name=name)["Parameter"]["Value"])
    assert (image["State"], image["Architecture"]) == ("available", BASE[word][0])
    assert image["ImageId"] not in [own["ImageId"] for own in ec2.describe_images(Owners=["self"])["Images"]]


def test_several_tag_keys_of_a_filter_are_alternatives(ec2: Any, running: str, made: list[str], unique: str) -> None:
    tags = [{"ResourceType": "image", "Tags": [{"Key": unique, "Value": "1"}]}]
    made.append(ec2.create_image(InstanceId=running, Name=f"image-{unique}", TagSpecifications=tags)["ImageId"])
    filters = [{"Name": "tag-key", "Values": ["nothing-has-it", unique]}]
    assert [image["ImageId"] for image in ec2.describe_images(Filters=filters)["Images"]] == made
