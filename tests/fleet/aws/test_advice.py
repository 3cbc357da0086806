"""Every class of EC2's error codes has one sentence that says what to do."""

from __future__ import annotations

import re

import botocore.session
import pytest

import fleet.aws.advice
from fleet.aws import capacity, failures
from fleet.aws.advice import BAD_PARAMETERS, OVER_QUOTA, QUOTAS, UNKNOWN, advice, quota_name
from fleet.aws.capacity import FLEET_UNFIT, NOT_SEEN_YET, Next, after_refusal

DENIED = "User: arn:aws:iam::1:user/x is not authorized to perform: iam:PassRole on resource: role/y because no policy allows it"
ROWS = [
    ("VcpuLimitExceeded", "", r"quota 'Running On-Demand Standard .*' is used up: .*//eu-west-1\..*servicequotas"),
    ("VolumeLimitExceeded", "", r"gp3 volumes.*services/ebs/quotas.*volume_gb"),
    ("PendingVerification", "", r"can't launch in eu-west-1 yet: AWS verifies"),
    ("OptInRequired", "", r"switched on under Account, AWS Regions"),
    ("UnauthorizedOperation", DENIED, r"lacks iam:PassRole"),
    ("UnauthorizedOperation", "You are not authorized", r"lacks ec2:RunInstances.*inspect-fleet-launcher"),
    (
        "AuthFailure",
        "AWS was not able to validate",
        r"can't validate.*another account's.*aws sso login.*clock.*region that isn't switched on",
    ),
    ("SignatureDoesNotMatch", "", r"aws sso login.*wrong clock"),
    ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", r"create-service-linked-role --aws-service-name spot\."),
    ("ExpiredToken", "", r"aws sso login"),
    ("NoCredentialsError", "", r"aws sso login"),
    ("InvalidAMIID.NotFound", "", r"job variable image.*fleet image build --region eu-west-1"),
    ("InvalidGroup.NotFound", "", r"job variable security_groups"),
    ("InvalidSubnetID.NotFound", "", r"job variable subnets"),
    ("InvalidKeyPair.NotFound", "", r"no key pair"),
    ("InvalidIamInstanceProfileName", "", r"job variable instance_profile"),
    ("InvalidParameterValue", "", r"job variable that EC2 names"),
    ("InvalidBlockDeviceMapping", "", r"volume_gb.*fleet image build --region eu-west-1"),
    ("InvalidLaunchTemplateName.AlreadyExistsException", "", r"launch template.*run it again.*fleet reap"),
    ("InvalidLaunchTemplateId.NotFound", "", r"launch template.*run it again.*fleet reap"),
    ("TagLimitExceeded", "", r"job variable tags"),
    ("InvalidKMSKey.InvalidState", "", r"KMS key that EBS uses.*kms:CreateGrant"),
    ("IdempotentParameterMismatch", "", r"run it again"),
    ("A code of next year", "", r"isn't tried again"),
]


@pytest.mark.parametrize(("code", "why", "said"), ROWS, ids=[f"{code} {why[:5]}".strip() for code, why, _ in ROWS])
def test_a_code_s_class_says_what_to_do(code: str, why: str, said: str) -> None:
    found = advice(code, why, "eu-west-1", "c7i.large", "on-demand")
    assert re.search(said, found), found
    assert "\n" not in found


def named_codes() -> set[str]:
    """Every code in a named set of the launch's rules, whatever the set is for."""
    sets = [each for room in (fleet.aws.advice, capacity, failures) for each in vars(room).values()]
    return {code for each in sets if isinstance(each, frozenset) for code in each} | {*BAD_PARAMETERS}


OF_FLEETS_ALONE = {
    "InvalidFleetConfig",
    "InvalidFleetConfiguration",
    "MaxFleetCountExceeded",
    "MaxTemplateLimitExceeded",
}
"""What RunInstances never says: no hunt ends with it."""


@pytest.mark.parametrize(
    "code", sorted(code for code in named_codes() - OF_FLEETS_ALONE if after_refusal(code) is Next.STOP)
)
def test_what_no_other_place_would_change_ends_the_hunt_with_advice(code: str) -> None:
    assert advice(code, "", "r", "t", "spot") != UNKNOWN


def test_what_no_advice_is_for_sends_the_hunt_from_fleets_to_single_places() -> None:
    assert OF_FLEETS_ALONE <= FLEET_UNFIT


@pytest.mark.parametrize("code", sorted(NOT_SEEN_YET))
def test_what_is_still_not_seen_in_the_end_has_advice(code: str) -> None:
    assert after_refusal(code) is Next.SAME_LATER
    assert advice(code, "", "r", "t", "spot") != UNKNOWN


def test_a_group_may_have_been_made_a_moment_ago_and_has_advice_for_where_it_was_not() -> None:
    assert after_refusal("InvalidGroup.NotFound") is Next.SAME_LATER
    assert "security_groups" in advice("InvalidGroup.NotFound", "", "r", "t", "spot")


@pytest.mark.parametrize("code", sorted(OVER_QUOTA))
def test_a_quota_is_another_place_s_chance(code: str) -> None:
    """Limits count by family and market."""
    assert after_refusal(code) is Next.CANDIDATE


@pytest.mark.parametrize(
    ("kind", "market", "name"),
    [
        ("c7i.4xlarge", "on-demand", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        ("im4gn.large", "spot", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
        ("g5.xlarge", "on-demand", "Running On-Demand G and VT instances"),
        ("p5.48xlarge", "on-demand", "Running On-Demand P instances"),
        ("p5.48xlarge", "spot", "All P5 Spot Instance Requests"),
        ("p5en.48xlarge", "spot", "All P5 Spot Instance Requests"),
        ("p4d.24xlarge", "spot", "All P4, P3 and P2 Spot Instance Requests"),
        ("p6-b200.48xlarge", "on-demand", "Running On-Demand P instances"),
        ("p6-b200.48xlarge", "spot", ""),
        ("gr6.4xlarge", "spot", "All G and VT Spot Instance Requests"),
        ("vt1.3xlarge", "on-demand", "Running On-Demand G and VT instances"),
        ("trn2.48xlarge", "spot", "All Trn Spot Instance Requests"),
        ("dl2q.24xlarge", "spot", "All DL Spot Instance Requests"),
        ("f2.6xlarge", "spot", "All F Spot Instance Requests"),
        ("is4gen.large", "on-demand", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        ("hpc7a.12xlarge", "spot", ""),
        ("u7i-12tb.224xlarge", "on-demand", "Running On-Demand High Memory instances"),
        ("mac2.metal", "on-demand", ""),
        ("inf2.xlarge", "spot", "All Inf Spot Instance Requests"),
        ("dl1.24xlarge", "on-demand", "Running On-Demand DL instances"),
        ("d3.xlarge", "on-demand", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        ("hpc7a.12xlarge", "on-demand", "Running On-Demand HPC instances"),
        ("h1.2xlarge", "on-demand", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
        ("u-6tb1.metal", "on-demand", "Running On-Demand High Memory instances"),
        ("x2idn.16xlarge", "spot", "All X Spot Instance Requests"),
        ("", "on-demand", ""),
    ],
)
def test_a_quota_is_named_as_its_page_names_it(kind: str, market: str, name: str) -> None:
    assert quota_name(kind, market) == name


RETIRED = {"cc", "cg", "cr", "hi", "hs"}
ON_DEDICATED_HOSTS = {"mac"}


def test_every_family_that_ec2_has_is_in_the_table() -> None:
    model = botocore.session.Session().get_service_model("ec2")
    kinds = model.shape_for("InstanceType").enum  # type: ignore[attr-defined]
    families = {re.match("[a-z]+", kind)[0] for kind in kinds}  # type: ignore[index]
    assert families - RETIRED - ON_DEDICATED_HOSTS == set(QUOTAS)


def test_a_quota_whose_name_is_not_known_is_said_by_its_family() -> None:
    said = advice("MaxSpotInstanceCountExceeded", "", "eu-west-1", "p6-b200.48xlarge", "spot")
    assert said.startswith(
        "The account's quota of vCPUs for spot instances of p6-b200.48xlarge's family is used up: ask for more at"
    )
