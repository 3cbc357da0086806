"""Launching obeys the failure rules, and no instance runs that nobody knows."""

from __future__ import annotations

import asyncio
import datetime
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.aws.capacity import Candidate, LaunchFailed, LaunchRefused, LaunchTooSlow, NoCapacity, client_token
from fleet.aws.failures import AwsRefused
from fleet.aws.instances import LAUNCH_TAG, Instance, Instances, LaunchOrder, launch, launch_arguments
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail

ORDER = LaunchOrder(
    attempt="attempt-1",
    image="ami-1",
    root_device="/dev/sda1",
    user_data="#!/bin/bash\n",
    tags={"Name": "worker 1"},
    security_groups=("sg-1", "default"),
    instance_profile="inspect-fleet-worker",
    volume_gb=40,
)
PLACES = [Candidate("a", "s1", "spot"), Candidate("a", "s2", "spot"), Candidate("a", "s1", "on-demand")]


def test_the_launch_arguments_of_an_on_demand_candidate() -> None:
    place = Candidate("c7i.large", "subnet-1", "on-demand")
    tags = [{"Key": "Name", "Value": "worker 1"}, {"Key": LAUNCH_TAG, "Value": "attempt-1"}]
    assert launch_arguments(ORDER, place) == {
        "ImageId": "ami-1",
        "InstanceType": "c7i.large",
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": client_token("attempt-1", place),
        "UserData": "#!/bin/bash\n",
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {"VolumeType": "gp3", "VolumeSize": 40, "Encrypted": True, "DeleteOnTermination": True},
            }
        ],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
        "SubnetId": "subnet-1",
        "SecurityGroupIds": ["sg-1"],
        "SecurityGroups": ["default"],
        "IamInstanceProfile": {"Name": "inspect-fleet-worker"},
    }


def test_a_spot_instance_is_asked_for_once_and_ends_when_it_is_taken_back() -> None:
    arguments = launch_arguments(
        replace(ORDER, security_groups=(), instance_profile=None), Candidate("a", None, "spot")
    )
    assert arguments["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }
    assert not {"SubnetId", "SecurityGroupIds", "SecurityGroups", "IamInstanceProfile"} & arguments.keys()


def test_a_profile_may_be_named_by_its_arn() -> None:
    order = replace(ORDER, instance_profile="arn:aws:iam::123456789012:instance-profile/x")
    assert launch_arguments(order, PLACES[0])["IamInstanceProfile"] == {"Arn": order.instance_profile}


OK, DRY, SLOW, BAD = "", "InsufficientInstanceCapacity", "RequestLimitExceeded", "UnauthorizedOperation"
LOST = "ReadTimeoutError"
"""The instance was launched; the answer never came."""
BUG = "a bug of ours, after the launch"


@dataclass
class FakeEc2:
    """EC2 with instances in it: tokens are idempotent, tags are kept, answers are scripted (then: as the last)."""

    answers: Sequence[str]
    region: str = "us-east-1"
    calls: list[Candidate] = field(default_factory=list)
    running: dict[str, Instance] = field(default_factory=dict)
    tokens: dict[str, Instance] = field(default_factory=dict)
    before_answer: Callable[[], None] = lambda: None

    def run(self, order: LaunchOrder, candidate: Candidate) -> Instance:
        answer = self.answers[min(len(self.calls), len(self.answers) - 1)]
        self.calls.append(candidate)
        self.before_answer()
        if answer not in (OK, LOST, BUG):
            raise self._refused(answer)
        token = launch_arguments(order, candidate)["ClientToken"]
        if token not in self.tokens:
            self.tokens[token] = Instance(
                id=f"i-{len(self.tokens)}",
                region=self.region,
                state="pending",
                instance_type=candidate.instance_type,
                market=candidate.market,
                launched_at=datetime.datetime.now(datetime.UTC),
                tags={**order.tags, LAUNCH_TAG: order.attempt},
            )
            self.running[self.tokens[token].id] = self.tokens[token]
        if answer == LOST:
            raise self._refused(LOST)
        if answer == BUG:
            raise KeyError("InstanceId")
        return self.tokens[token]

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        return [each for each in self.running.values() if tags.items() <= each.tags.items()]

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        return frozenset(each for each in ids if self.running.pop(each, None) is None)

    def _refused(self, code: str) -> AwsRefused:
        return AwsRefused(service="ec2", operation="RunInstances", code=code, target="", why="as scripted")


@dataclass
class Clock:
    """Time that passes only by waiting."""

    now: float = 0.0
    waited: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()


@dataclass(frozen=True)
class Row:
    name: str
    answers: list[str]
    asked: list[int]
    """Places that were asked, by number, in order."""
    error: type[LaunchFailed] | None = None
    waited: tuple[float, ...] = ()


ROWS = [
    Row("the first has one", [OK], [0]),
    Row("the next is asked, once each", [DRY, OK], [0, 1]),
    Row("spot is dry, on-demand is not", [DRY, DRY, OK], [0, 1, 2]),
    Row("all are dry", [DRY], [0, 1, 2], error=NoCapacity),
    Row("throttled twice, the same again", [SLOW, SLOW, OK], [0, 0, 0], waited=(1.0, 2.0)),
    Row("waits begin anew with each place", [SLOW, DRY, SLOW, OK], [0, 0, 1, 1], waited=(1.0, 1.0)),
    Row("throttled to the end", [SLOW], [0] * 5, error=LaunchTooSlow, waited=(1.0, 2.0, 4.0, 8.0)),
    Row("a permission is missing", [DRY, BAD, OK], [0, 1], error=LaunchRefused),
    Row("an answer was lost", [LOST, OK], [0, 0], waited=(1.0,)),
    Row("an answer was lost, then it is dry", [LOST, DRY, OK], [0, 0, 1], waited=(1.0,)),
    Row("answers are lost to the end", [LOST], [0] * 5, error=LaunchTooSlow, waited=(1.0, 2.0, 4.0, 8.0)),
]


def look(ec2: FakeEc2, clock: Clock, deadline: float = 20.0) -> Instance:
    async def go() -> Instance:
        return await launch(
            ec2, ORDER, PLACES, deadline_seconds=deadline, clock=clock, sleep=clock.sleep, draw=lambda: 1.0
        )

    return anyio.run(go)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_launching_obeys_the_failure_rules(row: Row) -> None:
    """Each row on a clock that records waits instead of waiting; what is left in the world is one instance or none."""
    ec2, clock = FakeEc2(row.answers), Clock()
    if row.error:
        with pytest.raises(row.error):
            look(ec2, clock)
        assert ec2.running == {}
    else:
        launched = look(ec2, clock)
        assert set(ec2.running) == {launched.id}
    assert [PLACES.index(place) for place in ec2.calls] == row.asked
    assert tuple(clock.waited) == row.waited


@given(st.lists(st.sampled_from([OK, DRY, SLOW, BAD, LOST, BUG]), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_no_instance_runs_unrecorded(answers: list[str]) -> None:
    """Whatever EC2 answers, what runs afterwards is what the launch returned."""
    ec2, known = FakeEc2(answers), set()
    with suppress(LaunchFailed, KeyError):
        known = {look(ec2, Clock()).id}
    assert set(ec2.running) == known


@pytest.mark.parametrize("how", ["scope", "task"])
def test_a_launch_that_is_cancelled_while_ec2_answers_hands_its_instance_over_or_ends_it(how: str) -> None:
    """A cancelled scope still gets what the thread returns; a cancelled task loses it, so that the instance must go."""
    known: set[str] = set()
    asked, answer = threading.Event(), threading.Event()
    ec2 = FakeEc2([OK])

    def hold() -> None:
        asked.set()
        assert answer.wait(10)

    ec2.before_answer = hold

    async def until_asked(cancel: Callable[[], Any]) -> None:
        while not asked.is_set():  # noqa: ASYNC110  a thread sets it
            await anyio.sleep(0.001)
        cancel()
        answer.set()

    async def keep() -> None:
        known.add((await launch(ec2, ORDER, PLACES)).id)

    async def by_scope() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(keep)
            await until_asked(group.cancel_scope.cancel)

    async def by_task() -> None:
        task = asyncio.create_task(keep())
        await until_asked(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    anyio.run(by_scope if how == "scope" else by_task)
    assert len(ec2.calls) == 1
    assert set(ec2.running) == known


def test_an_instance_that_cannot_be_terminated_does_not_hide_why_the_launch_failed() -> None:
    class Stubborn(FakeEc2):
        def terminate(self, ids: Sequence[str]) -> frozenset[str]:
            raise self._refused(BAD)

    with pytest.raises(KeyError):
        look(Stubborn([BUG]), Clock())


# On the emulator


@pytest.fixture
def order(aws: Aws, unique: str) -> LaunchOrder:
    image = aws.ec2.describe_images(Filters=[{"Name": "name", "Values": ["amzn2-ami-hvm*"]}])["Images"][0]
    return replace(
        ORDER,
        attempt=unique,
        image=image["ImageId"],
        root_device=Instances(aws).root_device(image["ImageId"]),
        tags={"Name": "w", "run": unique},
        security_groups=(),
        instance_profile=None,
    )


def test_an_instance_is_launched_described_and_terminated(aws: Aws, order: LaunchOrder, unique: str) -> None:
    ec2 = Instances(aws)
    launched = anyio.run(launch, ec2, order, [Candidate("c5.large", None, "on-demand")])
    assert launched.identifier == f"{REGION}::{launched.id}"
    assert [each.id for each in ec2.find({"run": unique, LAUNCH_TAG: unique})] == [launched.id]
    seen = ec2.get(launched.id)
    assert seen is not None
    assert (seen.state, seen.tags["Name"], seen.market, seen.leaving) == ("running", "w", "on-demand", False)
    assert ec2.terminate([launched.id]) == frozenset()
    gone = ec2.find({"run": unique})[0]
    assert gone.leaving
    assert gone.reason_code == "Client.UserInitiatedShutdown"


def test_volume_and_metadata_are_as_ordered(aws: Aws, order: LaunchOrder) -> None:
    launched = Instances(aws).run(order, Candidate("c5.large", None, "spot"))
    found = aws.ec2.describe_instances(InstanceIds=[launched.id])["Reservations"][0]["Instances"][0]
    assert found["InstanceLifecycle"] == "spot"
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    volume = aws.ec2.describe_volumes(VolumeIds=[found["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"][0]
    assert (volume["Size"], volume["Encrypted"], volume["VolumeType"]) == (40, True, "gp3")


def test_all_pages_of_instances_are_read(aws: Aws, order: LaunchOrder, unique: str) -> None:
    ec2 = Instances(aws)
    ids = {
        ec2.run(replace(order, attempt=f"{unique}-{n}"), Candidate("t3.micro", None, "on-demand")).id for n in range(7)
    }
    paginate = aws.ec2.get_paginator("describe_instances").paginate
    pages = list(paginate(Filters=[{"Name": "tag:run", "Values": [unique]}], PaginationConfig={"PageSize": 5}))
    assert len(pages) == 2
    assert {each.id for each in ec2.find({"run": unique})} == ids


def test_unknown_instances_are_named_and_the_known_ones_still_go(aws: Aws, order: LaunchOrder) -> None:
    ec2 = Instances(aws)
    known = ec2.run(order, Candidate("t3.micro", None, "on-demand")).id
    unknown = "i-0123456789abcdef0"
    assert ec2.terminate([unknown, known]) == {unknown}
    assert (seen := ec2.get(known)) is not None
    assert seen.leaving
    assert ec2.get(unknown) is None


def test_a_launch_asks_once_even_where_capacity_is_answered_as_a_server_error(aws: Aws, order: LaunchOrder) -> None:
    """EC2 sends InsufficientInstanceCapacity as HTTP 500, which botocore would retry by itself."""
    sent = []
    aws.ec2_once.meta.events.register("before-call.ec2.RunInstances", lambda **_: sent.append(1))
    fail(aws.ec2_once, "RunInstances", DRY, status=500)
    with pytest.raises(NoCapacity):
        anyio.run(launch, Instances(aws), order, [Candidate("a", None, "spot"), Candidate("a", None, "on-demand")])
    assert len(sent) == 2
