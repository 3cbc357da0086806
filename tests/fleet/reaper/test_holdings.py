"""What a deployment holds, on the emulator: found by tags and nothing else, marked, removed, and looked for again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from fleet.aws.failures import Denied
from fleet.aws.fleets import template_arguments
from fleet.aws.instances import Instances, LaunchOrder
from fleet.aws.parameters import INSTANCE_TAG, Parameters
from fleet.aws.session import Aws
from fleet.evals.lock import EvalLock
from fleet.evals.preparation import EVAL_TAG, OWNER_TAG, RUN_TAG, create_queues, tags_of
from fleet.evals.site import Site
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from fleet.reaper import holdings as holdings_room
from fleet.reaper.holdings import AwsHoldings
from fleet.reaper.ownership import facts_of
from fleet.reaper.things import Thing
from fleet.reaper.verdict import Life, Patience, standing
from tests.fleet.aws.conftest import REGION, fail

RUN = str(uuid4())


@pytest.fixture
def site(aws: Aws, unique: str) -> Site:
    aws.s3.create_bucket(Bucket=unique)
    found = Site(region=REGION, bucket=unique, bucket_region=REGION, prefix="p", parameter_path=f"/{unique}/instances")
    found.__dict__["aws"] = aws  # the session's own, which the tests share
    return found


@pytest.fixture
def run() -> str:
    return str(uuid4())


@contextmanager
def instance(aws: Aws, tags: dict[str, str]) -> Iterator[str]:
    """An instance with these tags, for as long as the block lasts."""
    image = aws.ec2.describe_images()["Images"][0]["ImageId"]
    launched = aws.ec2.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        InstanceType="c7i.large",
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )["Instances"][0]["InstanceId"]
    try:
        yield launched
    finally:
        aws.ec2.terminate_instances(InstanceIds=[launched])


def of_run(holdings: AwsHoldings, run: str) -> list[Thing]:
    return [one for one in holdings.look().things if one.run == run]


@pytest.mark.fault("leftovers")
def test_an_instance_is_found_by_its_pools_tag_marked_and_ended(site: Site, aws: Aws, run: str) -> None:
    holdings = AwsHoldings([site])
    tags = {POOL_TAG: "pool", RUN_TAG: run, FLOW_RUN_TAG: "worker", OWNER_TAG: "ada"}
    with instance(aws, tags) as ours, instance(aws, {RUN_TAG: run, "Name": "without a pool"}) as theirs:
        (found,) = of_run(holdings, run)
        assert (found.kind, found.id, found.flow_run, found.pool, found.owner) == (
            "instance",
            ours,
            "worker",
            "pool",
            "ada",
        )
        assert found.detail == "on-demand c7i.large, running"
        assert found.marked is None
        assert found.born == pytest.approx(time.time(), abs=120)

        holdings.mark(found, 1_900_000_000.0)
        (marked,) = of_run(holdings, run)
        assert marked.marked == 1_900_000_000.0
        holdings.mark(found, None)
        assert [one.marked for one in of_run(holdings, run)] == [None]

        assert not holdings.gone(found)
        holdings.remove(found)
        assert holdings.gone(found)
        assert of_run(holdings, run) == []
        holdings.remove(found)  # again
        assert not Instances(aws).get(theirs).leaving  # type: ignore[union-attr]


@pytest.mark.fault("leftovers")
def test_queues_count_by_their_tag_not_by_their_name(site: Site, run: str) -> None:
    holdings = AwsHoldings([site])
    create_queues(site, run, tags=tags_of(run, ["e"], "ada"), lease_seconds=60, made=lambda _: None)
    other = site.queues.create(f"inspect-fleet-{run}-x-work", tags={"whose": "theirs"}, lease_seconds=60)
    found = of_run(holdings, run)
    assert sorted(one.id.rsplit("-", 1)[-1] for one in found) == ["dead", "events", "work"]
    assert {one.home for one in found} == {f"s3://{site.bucket}/p"} == {holdings.look().home}
    holdings.mark(found[0], 1_900_000_000.0)
    assert {one.id for one in of_run(holdings, run) if one.marked == 1_900_000_000.0} == {found[0].id}
    for one in found:
        assert not holdings.gone(one)
        holdings.remove(one)
        holdings.remove(one)
        assert holdings.gone(one)
    assert of_run(holdings, run) == []
    assert site.queues.tags(other) == {"whose": "theirs"}
    site.queues.delete(other)


@pytest.mark.fault("leftovers")
def test_parameters_count_by_their_tag_not_by_their_path(site: Site, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a later attempt have its number in their path, and the run's id in their tag."""
    holdings = AwsHoldings([site])
    for key, tag in ((run, run), (f"{run}-2", run), (run, str(uuid4()))):
        tags = {RUN_TAG: tag, INSTANCE_TAG: "arn"}
        site.parameters.put_secret(f"{site.secrets_of(key)}/i-{tag[:4]}{key[36:]}", {"KEY": "v"}, tags)
    found = of_run(holdings, run)
    assert sorted(one.id for one in found) == sorted(
        [f"{site.secrets_of(run)}/i-{run[:4]}", f"{site.secrets_of(run)}-2/i-{run[:4]}-2"]
    )
    # One is looked for by its name: there is one for each instance, and a listing of all for each of them takes minutes.
    monkeypatch.delattr(Parameters, "tagged")
    for one in found:
        assert not holdings.gone(one)
        holdings.remove(one)
        assert holdings.gone(one)
    assert len(site.parameters.find(site.parameter_path)) == 1


@pytest.mark.fault("leftovers")
def test_a_lock_is_found_in_each_evals_folder_and_goes_only_as_it_was_seen(site: Site, run: str) -> None:
    holdings = AwsHoldings([site])
    site.objects.put("p/evals/without/jobs/1.eval", b"")
    site.objects.put("p/evals/broken/lock.json", b"{}")
    mine = EvalLock(site.objects, site.layout, "e-1", run=run, owner="ada", since="now")
    mine.take(1_000.0)
    (found,) = of_run(holdings, run)
    assert (found.kind, found.id, found.owner, found.expires) == ("lock", "p/evals/e-1/lock.json", "ada", 1_300.0)
    mine.take(2_000.0)  # renewed since
    holdings.remove(found)
    assert not holdings.gone(found)
    (found,) = of_run(holdings, run)
    holdings.remove(found)
    assert holdings.gone(found)
    assert site.objects.exists("p/evals/broken/lock.json")


@pytest.mark.parametrize("version", [0, 1, 7], ids=["older", "with a field too many", "newer"])
def test_a_lock_of_another_release_is_its_runs_all_the_same(site: Site, run: str, version: int) -> None:
    """Else the things of a live run would count as nobody's."""
    content = {"version": version, "run": run, "owner": "ada", "expires": 1_300, "more": {"a": 1}}
    site.objects.put("p/evals/e-1/lock.json", json.dumps(content).encode())
    (found,) = of_run(AwsHoldings([site]), run)
    assert (found.kind, found.owner, found.expires, found.born) == ("lock", "ada", 1_300.0, 1_000.0)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff", b'{"run": 5, "expires": 1}', b'{"run": "r"}', b'{"run": "r", "expires": "x"}'],
)
def test_a_lock_that_says_nothing_protects_every_run_of_its_eval(site: Site, run: str, content: bytes) -> None:
    site.objects.put("p/evals/e-1/lock.json", content)
    other = str(uuid4())
    for each, evals in ((run, ["e-0", "e-1"]), (other, ["e-10"])):
        create_queues(site, each, tags=tags_of(each, evals, "ada"), lease_seconds=60, made=lambda _: None)
    holdings = AwsHoldings([site])
    seen = holdings.look()
    (lock,) = seen.locks(run)
    assert seen.locks(other) == []
    assert any(what.startswith("the lock p/evals/e-1/lock.json (") for what in seen.unseen)
    assert [one for one in holdings.locks(seen.things) if one.run == run] == [lock]
    facts = facts_of(run, of_run(holdings, run), None, frozenset(), now=time.time())
    assert standing(facts, Patience.of(0)).life is Life.ALIVE
    for one in (*of_run(holdings, run), *of_run(holdings, other)):
        if one.kind == "queue":
            holdings.remove(one)


@pytest.mark.parametrize(
    ("evals", "keys"),
    [
        (["e-1", "e-2"], {"p/evals/e-1/lock.json", "p/evals/e-2/lock.json"}),
        (["e" * 255, "e-2"], {f"p/evals/{name}/lock.json" for name in ("e-1", "e-2", "e-3")}),
        ([], {f"p/evals/{name}/lock.json" for name in ("e-1", "e-2", "e-3")}),
    ],
    ids=["named", "too many to name", "none named"],
)
@pytest.mark.fault("reaper-meets-the-living")
def test_only_locks_that_a_run_may_hold_are_read_again(
    site: Site, evals: list[str], keys: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all evals that ever ran there may be thousands, and of dead runs hundreds. All are read where their names had no room."""
    for name in ("e-1", "e-2", "e-3"):
        EvalLock(site.objects, site.layout, name, run="r", owner="ada", since="now").take(1_000.0)
    read: list[str] = []
    monkeypatch.setattr(holdings_room, "_lock", lambda _, key: read.append(key))
    queue = Thing("queue", "url", REGION, run="r", evals=tags_of("r", evals, "ada")[EVAL_TAG])
    AwsHoldings([site]).locks([queue, Thing("parameter", "name", REGION, run="r")])
    assert set(read) == keys


def test_a_lock_that_is_another_runs_by_now_counts_as_gone(site: Site, run: str) -> None:
    holdings = AwsHoldings([site])
    EvalLock(site.objects, site.layout, "e-2", run=run, owner="ada", since="now").take(1_000.0)
    (found,) = of_run(holdings, run)
    EvalLock(site.objects, site.layout, "e-2", run="another", owner="bob", since="now").take(9_000.0)
    assert holdings.gone(found)
    assert [one.run for one in holdings.locks([]) if one.id == found.id] == ["another"]


@pytest.mark.fault("leftovers")
def test_volumes_and_templates_that_launches_left_are_found_by_the_pools_tag(site: Site, aws: Aws, unique: str) -> None:
    holdings = AwsHoldings([site])
    order = LaunchOrder(unique, "ami-1", "/dev/xvda", "#!/bin/bash", {POOL_TAG: unique, RUN_TAG: "r"})
    aws.ec2.create_launch_template(**template_arguments(order, f"inspect-fleet-{unique}"))
    untagged = aws.ec2.create_launch_template(
        LaunchTemplateName=f"inspect-fleet-x-{unique}", LaunchTemplateData={"InstanceType": "c7i.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    tags: Any = [{"ResourceType": "volume", "Tags": [{"Key": POOL_TAG, "Value": unique}]}]
    aws.ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=8, TagSpecifications=tags)
    found = [one for one in holdings.look().things if one.pool == unique]
    assert [(one.kind, one.detail) for one in found] == [
        ("volume", "8 GB"),
        ("launch template", f"inspect-fleet-{unique}"),
    ]
    for one in found:
        assert not holdings.gone(one)
        holdings.remove(one)
        holdings.remove(one)
        assert holdings.gone(one)
    aws.ec2.delete_launch_template(LaunchTemplateId=untagged)  # still there


def test_a_region_that_refuses_is_named_and_the_others_are_looked_at(site: Site, run: str) -> None:
    """The reaper looks wherever runs have asked for a fleet, and one may have asked for a region that there isn't."""
    nowhere = Site(region="eu-west-1", bucket=site.bucket, bucket_region=REGION, prefix="p", parameter_path="/x")
    blind = Aws("eu-west-1")
    fail(blind.ec2, "DescribeInstances", "AuthFailure")
    nowhere.__dict__["aws"] = blind
    EvalLock(site.objects, site.layout, "e-3", run=run, owner="ada", since="now").take(1_000.0)
    seen = AwsHoldings([site, nowhere]).look()
    assert [one.kind for one in seen.things if one.run == run] == ["lock"]
    assert any(what.startswith("eu-west-1: ") for what in seen.unseen)
    assert (seen.regions, seen.own_region) == ((REGION,), REGION)
    with pytest.raises(Denied):
        AwsHoldings([nowhere, site]).look()


def test_an_older_policy_that_shows_no_volumes_keeps_nothing_from_being_reaped(
    site: Site, aws_environment: None, run: str
) -> None:
    blind = Aws(REGION)
    fail(blind.ec2, "DescribeVolumes", "UnauthorizedOperation")
    site.__dict__["aws"] = blind
    seen = AwsHoldings([site]).look()
    assert len(seen.unseen) == 1
    assert "volumes in us-east-1" in seen.unseen[0]
    fail(blind.ec2, "DescribeInstances", "UnauthorizedOperation")
    with pytest.raises(Denied):  # what is removed hangs on this
        AwsHoldings([site]).look()
