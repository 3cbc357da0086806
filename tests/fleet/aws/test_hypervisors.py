"""Whether an instance sees tags that come after its launch."""

from __future__ import annotations

from fleet.aws.hypervisors import Hypervisors
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail


def test_types_of_the_nitro_system_see_their_tags_change_and_older_ones_do_not(aws: Aws) -> None:
    known = Hypervisors()
    assert known.tags_are_live(aws, ["c5.large", "m5.metal"])
    assert not known.tags_are_live(aws, ["c5.large", "t2.micro"])
    assert known.tags_are_live(aws, ["c5.large"])


def test_each_type_is_asked_for_once_and_what_nobody_knows_counts_as_old(aws: Aws) -> None:
    known = Hypervisors()
    assert known.tags_are_live(aws, ["c5.large"])
    own = Aws(REGION)
    fail(own.ec2, "DescribeInstanceTypes", "UnauthorizedOperation", status=403)
    assert not known.tags_are_live(own, ["c5.large"])
    assert known.tags_are_live(aws, ["c5.large"])
