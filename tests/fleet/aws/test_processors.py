"""What EC2 says of the vCPUs of instance types."""

from __future__ import annotations

import pytest

from fleet.aws.failures import Throttled
from fleet.aws.processors import vcpus, vcpus_of_family
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail


def test_each_type_has_its_vcpus(aws: Aws) -> None:
    assert vcpus(aws, ["c5.large", "c5.4xlarge", "c5.large"]) == {"c5.large": 2, "c5.4xlarge": 16}


def test_a_family_has_the_vcpus_of_all_its_sizes(aws: Aws) -> None:
    found = vcpus_of_family(aws, "c5.large")
    assert {name.partition(".")[0] for name in found} == {"c5"}
    assert found["c5.large"] == 2
    assert found["c5.9xlarge"] == 36
    assert vcpus_of_family(aws, "c5x.large") == {}


def test_nothing_is_said_where_ec2_may_not_be_asked_or_knows_no_such_type() -> None:
    own = Aws(REGION)
    fail(own.ec2, "DescribeInstanceTypes", "UnauthorizedOperation", status=403)
    assert vcpus(own, ["c5.large"]) == vcpus_of_family(own, "c5.large") == {}
    unknown = Aws(REGION)
    fail(unknown.ec2, "DescribeInstanceTypes", "InvalidInstanceType", status=400)
    assert vcpus(unknown, ["c5.larger"]) == {}


def test_where_ec2_is_busy_the_step_that_asks_is_begun_again() -> None:
    own = Aws(REGION)
    fail(own.ec2, "DescribeInstanceTypes", "RequestLimitExceeded", status=503)
    with pytest.raises(Throttled):
        vcpus(own, ["c5.large"])
    assert vcpus_of_family(own, "c5.large") == {}, "a comparison is worth no other try"
