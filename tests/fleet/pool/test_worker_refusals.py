"""What a pool worker refuses to launch, or AWS refuses: named in the flow run's state, and nothing is made."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import pytest

from fleet.aws.session import Aws
from fleet.pool.access import Access
from fleet.pool.order import POOL_TAG
from tests.fleet.aws.conftest import REGION, fail
from tests.fleet.pool.worker_bench import API, Bench

pytestmark = pytest.mark.usefixtures("quiet_prefect")


def test_a_network_that_cannot_be_used_is_refused_and_no_group_is_made(bench: Bench, aws: Aws) -> None:
    vpc = aws.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    here = aws.ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    bench.run(configuration=bench.configuration(subnets=[here, "subnet-0123456789abcdef0"]))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert "EC2 knows no subnet-0123456789abcdef0 there" in message
    groups = aws.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    assert bench.instances == []


@pytest.mark.fault("permission-missing")
def test_missing_permissions_are_named_in_the_runs_state_and_nothing_is_made(bench: Bench, aws: Aws) -> None:
    """Found by a dry run, before a group or an instance: a launch that is denied, and a role that can't be given."""
    bench.worker._access = Access()
    clients = bench.worker._access.of(None, REGION)
    vpc = aws.ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    here = aws.ec2.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/24", AvailabilityZone=f"{REGION}a")["Subnet"][
        "SubnetId"
    ]
    fail(clients.ec2_once, "RunInstances", "UnauthorizedOperation", "not you", status=403)
    fail(clients.ec2_once, "DescribeInstances", "UnauthorizedOperation", "not you", status=403)
    bench.run(configuration=bench.configuration(subnets=[here]))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert f"lacks 2 permissions to launch instances in {REGION}; nothing was created:" in message
    assert "\n  ec2:RunInstances: needed to launch instances" in message
    assert "\n  ec2:DescribeInstances: needed to watch instances" in message
    groups = aws.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    assert [group["GroupName"] for group in groups] == ["default"]
    assert bench.instances == []


def test_a_look_that_is_denied_names_all_that_is_missing(bench: Bench) -> None:
    bench.worker._access = Access()
    clients = bench.worker._access.of(None, REGION)
    for client in (clients.ec2, clients.ec2_once):
        fail(client, "DescribeImages", "UnauthorizedOperation", "not you", status=403)
        fail(client, "DescribeInstanceTypes", "UnauthorizedOperation", "not you", status=403)
    bench.run()
    message = bench.prefect.end[1]
    assert "lacks 2 permissions" in message
    assert "ec2:DescribeImages" in message
    assert "ec2:DescribeInstanceTypes" in message


@pytest.mark.fault("no-capacity")
def test_without_capacity_the_run_crashes_with_the_table_and_nothing_is_left(bench: Bench) -> None:
    bench.worker._access = Access()
    # An account that may not ask for several places at once: they are asked one by one.
    fail(bench.worker._access.of(None, REGION).ec2_once, "CreateFleet", "UnauthorizedOperation", status=403)
    fail(
        bench.worker._access.of(None, REGION).ec2_once,
        "RunInstances",
        "InsufficientInstanceCapacity",
        "none left",
        status=500,
    )
    result = bench.run(configuration=bench.configuration(instance_types=["c5.large", "m5.large"], market="spot"))
    assert isinstance(bench.status.values[0], Exception)
    assert result.identifier == "none"
    name, message = bench.prefect.end
    assert name == "Crashed"
    where = [line.split()[:3] for line in message.splitlines()[2:]]
    assert message.startswith(f"no capacity in {REGION}: all {len(where)} candidates were refused")
    assert message.count("InsufficientInstanceCapacity: none left") == len(where)
    # Each type in each zone that has it, on each market; all of spot first.
    markets = [market for _, _, market in where]
    assert markets == sorted(markets, reverse=True)
    assert {(kind, market) for kind, _, market in where} == {
        (kind, market) for kind in ("c5.large", "m5.large") for market in ("spot", "on-demand")
    }
    assert len({subnet for _, subnet, _ in where}) > 1
    assert bench.instances == []
    left = bench.worker._access.of(None, REGION).ec2.describe_launch_templates()["LaunchTemplates"]
    assert not [each for each in left if POOL_TAG in {tag["Key"] for tag in each.get("Tags", [])}]


REFUSED = [
    ("a secret in plain env", {"env": {"OPENAI_API_KEY": "hunter2"}}, "OPENAI_API_KEY looks like a secret"),
    ("user data too large", {"env": {"A": "x" * 17_000}}, "user data of"),
    ("code without its digest", {"code": "s3://bucket/key"}, "code_sha256"),
    ("a log folder that is no address", {"log_folder": "/logs"}, "log_folder refused"),
    ("a volume smaller than the image", {"volume_gb": 8}, "a root volume of 8 GB is too small"),
    ("a tag of AWS's own", {"tags": {"aws:x": "1"}}, "tags refused"),
    ("an image that is not there", {"image": "ami-0123456789abcdef0"}, "worker image ami-0123456789abcdef0 refused"),
    ("an API address with a password", {"env": {"PREFECT_API_URL": "http://a:hunter2@h/api"}}, "user or password"),
]


@pytest.mark.parametrize(("more", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_cannot_work_is_refused_before_anything_is_launched(bench: Bench, more: dict[str, Any], why: str) -> None:
    bench.run(configuration=bench.configuration(**more))
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert why in message
    assert "hunter2" not in message
    assert bench.instances == []


def test_user_data_that_nothing_makes_smaller_is_refused_and_aws_was_asked_to_make_nothing(
    bench: Bench, aws: Aws
) -> None:
    noise = base64.b85encode(random.Random(1).randbytes(14_000)).decode()  # noqa: S311  any noise will do
    assert len(zlib.compress(noise.encode(), 9)) > 14_000
    configuration = bench.configuration(env={"NOISE": noise})
    asked: list[str] = []

    def hear(model: Any, **_: Any) -> None:
        asked.append(model.name)

    clients: list[Any] = [aws.ec2, aws.ec2_once, aws.ssm, aws.s3, aws.sts]
    for client in clients:
        client.meta.events.register("before-call", hear)
    try:
        bench.run(configuration=configuration)
        looks = list(asked)
        assert bench.instances == []
    finally:
        for client in clients:  # they outlive the test
            client.meta.events.unregister("before-call", hear)
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert "EC2 takes 16,384. The largest variables are NOISE" in message
    assert "DescribeImages" in looks
    assert [call for call in looks if not call.startswith(("Describe", "Get"))] == []


def test_a_loopback_api_and_a_real_aws_are_refused_with_one_clear_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = bench.configuration()
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    bench.worker._access = Access()
    bench.run(configuration=configuration)
    name, message = bench.prefect.end
    assert name == "Crashed"
    assert message.startswith(f"the Prefect API address {API} won't do for an instance: it is this machine's loopback")
    assert "\n" not in message
