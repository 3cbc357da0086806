"""Building by Image Builder, which no emulator has: its API's answers are given to the real client, without sending a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from fleet.aws.failures import AwsRefused
from fleet.aws.images import CONTRACT_TAG
from fleet.aws.objects import Objects
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail, reply
from worker_image.amis import Amis, OwnImage
from worker_image.builder import Base, BuilderInstance
from worker_image.failures import BuildFailed, BuildTimedOut, NotAllowed
from worker_image.image_pipeline import ImagePipeline, PipelineAbsent, chosen_builder
from worker_image.names import BUILD_TAG, BuildNames
from worker_image.place import Patience, Place
from worker_image.recipe import Recipe

ARN = "arn:aws:imagebuilder:us-east-1:123456789012:image-pipeline/inspect-fleet-worker-x86-64"
IMAGE = "arn:aws:imagebuilder:us-east-1:123456789012:image/inspect-fleet-worker/1.0.0/7"


class Bucket(Objects):
    """Keeps what is put."""

    def __init__(self, aws: Aws) -> None:
        super().__init__(aws, "bucket")
        self.kept: dict[str, object] = {}

    def put(self, key: str, data: object) -> None:
        self.kept[key] = data


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing is sent
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
    aws = Aws("us-east-1", session=session)
    identity = {"Account": "123456789012", "Arn": "arn:aws:iam::123456789012:user/me", "UserId": "U"}
    reply(aws.sts, "GetCallerIdentity", identity)
    ticks = iter(range(0, 10**7, 600))
    patience = Patience(clock=lambda: float(next(ticks)), sleep=lambda _: None)
    said: list[str] = []
    return Place(aws, Bucket(aws), "p", "me", "profile", patience=patience, say=said.append)


@pytest.fixture
def tagged(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The image is there, and what it is tagged with."""
    tags: list[dict[str, str]] = []
    image = OwnImage("ami-7", "n", "available", "x86_64", "2026-01-01", ("snap-7",), {})
    monkeypatch.setattr(Amis, "get", lambda self, ami: image if ami == "ami-7" else None)
    monkeypatch.setattr(Amis, "adopt", lambda self, image, wanted: tags.append(dict(wanted)))
    return tags


def names() -> BuildNames:
    return BuildNames(recipe=Recipe(), base="ami-base", owner="me", prefix="p")


def answers(client: Any, operation: str, parsed: Iterator[dict[str, Any]]) -> None:
    event = f"before-call.{client.meta.service_model.service_name}.{operation}"
    client.meta.events.register(event, lambda **_: (SimpleNamespace(status_code=200), next(parsed)))


def states(*found: str, amis: list[dict[str, str]] | None = None, reason: str = "") -> Iterator[dict[str, Any]]:
    for state in found:
        while True:
            yield {"image": {"state": {"status": state, "reason": reason}, "outputResources": {"amis": amis or []}}}
            if state != found[-1]:
                break


def test_an_account_with_a_pipeline_gets_it_and_one_without_a_builder_instance(place: Place) -> None:
    reply(place.aws.imagebuilder, "GetImagePipeline", {"imagePipeline": {"arn": ARN}})
    found = chosen_builder(place, "x86_64")
    assert isinstance(found, ImagePipeline)
    assert found.arn == ARN
    assert isinstance(chosen_builder(place, "x86_64", "instance"), BuilderInstance)


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "UnauthorizedOperation"])
def test_who_has_no_pipeline_or_may_not_see_it_builds_with_an_instance(place: Place, code: str) -> None:
    fail(place.aws.imagebuilder, "GetImagePipeline", code)
    assert isinstance(chosen_builder(place, "x86_64"), BuilderInstance)
    with pytest.raises(
        PipelineAbsent, match=rf"inspect-fleet-worker-x86-64 in us-east-1 \({code}\).*--builder instance"
    ):
        chosen_builder(place, "x86_64", "pipeline")


def test_a_fault_of_the_service_isnt_taken_for_no_pipeline(place: Place) -> None:
    fail(place.aws.imagebuilder, "GetImagePipeline", "ServiceException", status=400)
    with pytest.raises(AwsRefused, match="ServiceException"):
        chosen_builder(place, "x86_64")


def test_an_execution_is_followed_to_its_ami_of_this_region_which_gets_our_tags(
    place: Place, tagged: list[dict[str, str]]
) -> None:
    client = place.aws.imagebuilder
    reply(client, "StartImagePipelineExecution", {"imageBuildVersionArn": IMAGE})
    amis = [{"region": "eu-west-1", "image": "ami-8"}, {"region": "us-east-1", "image": "ami-7"}]
    answers(client, "GetImage", states("BUILDING", "DISTRIBUTING", "AVAILABLE", amis=amis))
    which = names()
    found = ImagePipeline(place, ARN).build(which, Base("ami-base", "", "/dev/sda1"))
    assert found.id == "ami-7"
    assert tagged == [which.image_tags()]
    assert found.tags[CONTRACT_TAG] == "1"
    assert isinstance(place.objects, Bucket)
    assert place.objects.kept == {"p/image/x86_64/bundle.zip": which.recipe.bundle}


@pytest.mark.parametrize(
    ("found", "amis", "error", "says"),
    [
        (["BUILDING", "FAILED"], [], BuildFailed, r"ended as failed.*a component failed"),
        (["CANCELLED"], [], BuildFailed, "ended as cancelled"),
        (["AVAILABLE"], [{"region": "eu-west-1", "image": "ami-8"}], BuildFailed, "no AMI to us-east-1"),
        (["BUILDING"], [], BuildTimedOut, "more than 120 minutes"),
        (["AVAILABLE"], [{"region": "us-east-1", "image": "ami-9"}], BuildFailed, "ami-9, which EC2 doesn't know"),
    ],
    ids=["failed", "cancelled", "elsewhere", "too long", "unknown"],
)
def test_an_execution_that_comes_to_nothing_is_told(
    place: Place,
    tagged: list[dict[str, str]],
    found: list[str],
    amis: list[dict[str, str]],
    error: type[Exception],
    says: str,
) -> None:
    client = place.aws.imagebuilder
    cancelled: list[int] = []
    reply(client, "StartImagePipelineExecution", {"imageBuildVersionArn": IMAGE})
    answers(client, "GetImage", states(*found, amis=amis, reason="a component failed"))
    client.meta.events.register("before-call.imagebuilder.CancelImageCreation", lambda **_: cancelled.append(1))
    reply(client, "CancelImageCreation", {})
    with pytest.raises(error, match=says):
        ImagePipeline(place, ARN).build(names(), Base("ami-base", "", "/dev/sda1"))
    assert tagged == []
    assert cancelled or says.startswith("ami-9")  # an execution that may be under way is ended


SEEN = {
    "ImageId": "ami-7",
    "State": "available",
    "BlockDeviceMappings": [{"Ebs": {"SnapshotId": "snap-7"}}, {"Ebs": {"SnapshotId": "snap-8"}}],
    "Tags": [{"Key": BUILD_TAG, "Value": "b"}],
}


def pipeline_that_made_ami_7(place: Place, said: list[str]) -> ImagePipeline:
    place = dataclasses.replace(place, say=said.append)
    reply(place.aws.imagebuilder, "StartImagePipelineExecution", {"imageBuildVersionArn": IMAGE})
    amis = [{"region": "us-east-1", "image": "ami-7"}]
    answers(place.aws.imagebuilder, "GetImage", states("AVAILABLE", amis=amis))
    reply(place.aws.ec2, "DescribeImages", {"Images": [SEEN]})
    return ImagePipeline(place, ARN)


def test_a_snapshot_that_may_not_be_tagged_is_told_and_spoils_no_image(place: Place) -> None:
    """Image Builder's documents promise its tag, by which ours may be put, on the AMI alone."""
    said: list[str] = []
    fail(place.aws.ec2, "CreateTags", "UnauthorizedOperation", about="snap-7")
    reply(place.aws.ec2, "CreateTags", {})
    found = pipeline_that_made_ami_7(place, said).build(names(), Base("ami-base", "", "/dev/sda1"))
    assert found.tags[CONTRACT_TAG] == "1"
    assert [line for line in said if "stays without our tags" in line] == [
        "snap-7 of ami-7 stays without our tags, since this identity may not tag it (UnauthorizedOperation): once the "
        "image is old and removed, it is left, and told again"
    ]


def test_an_image_that_may_not_be_tagged_is_no_worker_image(place: Place) -> None:
    said: list[str] = []
    fail(place.aws.ec2, "CreateTags", "UnauthorizedOperation", "no", about="ami-7")
    with pytest.raises(NotAllowed, match="may not ec2:CreateTags: no"):
        pipeline_that_made_ami_7(place, said).build(names(), Base("ami-base", "", "/dev/sda1"))
    assert "ami-7, which Image Builder has made, stays without our tags: nothing of ours removes it" in said


def test_a_snapshot_that_may_not_be_deleted_is_told_with_the_command_and_the_others_go(place: Place) -> None:
    said: list[str] = []
    deleted: list[str] = []
    fail(place.aws.ec2, "DeleteSnapshot", "UnauthorizedOperation", about="snap-7")
    place.aws.ec2.meta.events.register(
        "provide-client-params.ec2.DeleteSnapshot", lambda params, **_: deleted.append(params["SnapshotId"])
    )
    for operation, parsed in (("DeleteSnapshot", {}), ("DeregisterImage", {}), ("DescribeImages", {"Images": [SEEN]})):
        reply(place.aws.ec2, operation, parsed)
    amis = Amis(dataclasses.replace(place, say=said.append))
    image = amis.get("ami-7")
    assert image is not None
    amis.remove(image)
    assert deleted == ["snap-7", "snap-8"]
    assert said == [
        "snap-7 of the removed image ami-7 is left, since this identity may not delete it (UnauthorizedOperation): "
        "`aws ec2 delete-snapshot --snapshot-id snap-7 --region us-east-1`"
    ]


def test_who_may_not_start_the_pipeline_is_told(place: Place) -> None:
    fail(place.aws.imagebuilder, "StartImagePipelineExecution", "AccessDeniedException", "no")
    with pytest.raises(NotAllowed, match="may not imagebuilder:StartImagePipelineExecution: no"):
        ImagePipeline(place, ARN).build(names(), Base("ami-base", "", "/dev/sda1"))
