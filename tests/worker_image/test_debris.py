"""What a build has left goes, whatever else of it may not: answers are given to the real client, without sending a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import boto3
import pytest

from fleet.aws.failures import AwsRefused
from fleet.aws.instances import Instances
from fleet.aws.objects import Objects
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail, reply
from worker_image.amis import DELETE_TRIES, Amis, OwnImage
from worker_image.names import BUILD_TAG
from worker_image.place import Patience, Place

THREE = ["i-1", "i-2", "i-3"]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing is sent
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
    aws = Aws("us-east-1", session=session)
    return Place(aws, Objects(aws, "bucket"), "p", "me", "profile", patience=Patience(sleep=lambda seconds: None))


REMOVALS: list[tuple[str, str, Callable[[Place], object]]] = [
    ("TerminateInstances", "InstanceIds", lambda place: Instances(place.aws).terminate(THREE)),
    ("DeleteSnapshot", "SnapshotId", lambda place: Amis(place).delete_snapshots(THREE)),
]


@pytest.mark.parametrize(("operation", "field", "remove"), REMOVALS, ids=[name for name, *_ in REMOVALS])
def test_one_that_may_not_be_removed_is_named_and_the_others_go(
    place: Place, operation: str, field: str, remove: Callable[[Place], object]
) -> None:
    asked: list[object] = []
    place.aws.ec2.meta.events.register(
        f"provide-client-params.ec2.{operation}", lambda params, **_: asked.append(params[field])
    )
    fail(place.aws.ec2, operation, "UnauthorizedOperation", "not this one", about="i-1")
    reply(place.aws.ec2, operation, {})
    with pytest.raises(AwsRefused) as caught:
        remove(place)
    assert str(caught.value) == f"ec2 {operation} of i-1 in us-east-1 failed: UnauthorizedOperation: not this one"
    assert asked[-2:] in (["i-2", "i-3"], [["i-2"], ["i-3"]])


@pytest.fixture
def image() -> OwnImage:
    return OwnImage("ami-1", "n", "available", "x86_64", "", ("snap-1", "snap-2"), {BUILD_TAG: "b"})


@pytest.mark.parametrize("times", [2, DELETE_TRIES], ids=["for a while", "for long"])
def test_a_snapshot_whose_deletion_is_throttled_is_tried_again_or_named(
    place: Place, image: OwnImage, times: int
) -> None:
    """Once its image is deregistered, nothing leads to it any more."""
    said: list[str] = []
    deleted: list[str] = []
    place = dataclasses.replace(place, say=said.append)
    place.aws.ec2.meta.events.register(
        "provide-client-params.ec2.DeleteSnapshot", lambda params, **_: deleted.append(params["SnapshotId"])
    )
    reply(place.aws.ec2, "DeregisterImage", {})
    fail(place.aws.ec2, "DeleteSnapshot", "RequestLimitExceeded", about="snap-1", times=times)
    reply(place.aws.ec2, "DeleteSnapshot", {})
    Amis(place).remove(image)
    named = (
        "snap-1 of the removed image ami-1 is left, since EC2 didn't delete it (RequestLimitExceeded): "
        "`aws ec2 delete-snapshot --snapshot-id snap-1 --region us-east-1`"
    )
    assert deleted == [*["snap-1"] * min(times + 1, DELETE_TRIES), "snap-2"]
    assert said == ([named] if times == DELETE_TRIES else [])
