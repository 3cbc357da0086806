"""What a build has left goes, whatever else of it may not: answers are given to the real client, without sending a call."""

from __future__ import annotations

from collections.abc import Callable

import boto3
import pytest

from fleet.aws.failures import Denied
from fleet.aws.objects import Objects
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail, reply
from worker_image.amis import Amis
from worker_image.machines import Machines
from worker_image.place import Place

THREE = ["i-1", "i-2", "i-3"]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing is sent
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
    aws = Aws("us-east-1", session=session)
    return Place(aws, Objects(aws, "bucket"), "p", "me", "profile")


REMOVALS: list[tuple[str, str, Callable[[Place], None]]] = [
    ("TerminateInstances", "InstanceIds", lambda place: Machines(place).terminate(THREE)),
    ("DeleteSnapshot", "SnapshotId", lambda place: Amis(place).delete_snapshots(THREE)),
]


@pytest.mark.parametrize(("operation", "field", "remove"), REMOVALS, ids=[name for name, *_ in REMOVALS])
def test_one_that_may_not_be_removed_is_named_and_the_others_go(
    place: Place, operation: str, field: str, remove: Callable[[Place], None]
) -> None:
    asked: list[object] = []
    place.aws.ec2.meta.events.register(
        f"provide-client-params.ec2.{operation}", lambda params, **_: asked.append(params[field])
    )
    fail(place.aws.ec2, operation, "UnauthorizedOperation", "not this one", about="i-1")
    reply(place.aws.ec2, operation, {})
    with pytest.raises(Denied) as caught:
        remove(place)
    assert str(caught.value) == f"ec2 {operation} of i-1 in us-east-1 failed: UnauthorizedOperation: not this one"
    assert asked[-2:] in (["i-2", "i-3"], [["i-2"], ["i-3"]])
