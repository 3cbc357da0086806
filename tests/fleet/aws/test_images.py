from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import boto3
import pytest

from fleet.aws.failures import AwsRefused, CredentialsBad, Denied, Throttled
from fleet.aws.images import (
    AmiAbsent,
    AmiNotReady,
    AmiParameterMissing,
    AmiRejected,
    AmiWrongArchitecture,
    InstanceTypeUnknown,
    WorkerImage,
    check_image,
)
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail, reply

DEFAULT = "/inspect-fleet/worker-image"
UNKNOWN = "ami-0123456789abcdef0"
BUILD = f"fleet image build --region {REGION}"
X86 = ["c7i.4xlarge", "m5.large"]
ARM = "c7g.large"


@pytest.fixture(scope="session")
def images(moto_endpoint: str) -> dict[str, str]:
    """An image of the emulator's by architecture, looked up once: it takes seconds to list its hundreds."""
    ec2 = boto3.client(
        "ec2", REGION, endpoint_url=moto_endpoint, aws_access_key_id="testing", aws_secret_access_key="testing"
    )
    return {image["Architecture"]: image["ImageId"] for image in ec2.describe_images(Owners=["amazon"])["Images"]}


@pytest.fixture
def x86(images: dict[str, str]) -> str:
    return images["x86_64"]


def copied(aws: Aws, image: str) -> str:
    return aws.ec2.copy_image(SourceImageId=image, SourceRegion=REGION, Name="copy")["ImageId"]


def name(aws: Aws, parameter: str, value: str) -> None:
    aws.ssm.put_parameter(Name=parameter, Value=value, Type="String", Overwrite=True)


def described_as(state: str, **more: Any) -> Callable[[Aws, str], str]:
    """EC2 describes the image in this state: the emulator has only available ones."""

    def arrange(aws: Aws, image: str) -> str:
        found = {"ImageId": image, "State": state, "Architecture": "x86_64", **more}
        reply(aws.ec2, "DescribeImages", {"Images": [found]})
        return image

    return arrange


def unchanged(_: Aws, image: str) -> str:
    return image


def says(value: str) -> Callable[[Aws, str], str]:
    return lambda _aws, _image: value


def deregistered(aws: Aws, image: str) -> str:
    copy = copied(aws, image)
    aws.ec2.deregister_image(ImageId=copy)
    return copy


def empty(aws: Aws, image: str) -> str:
    reply(aws.ec2, "DescribeImages", {"Images": []})
    return image


def gone_by_code(aws: Aws, image: str) -> str:
    fail(aws.ec2, "DescribeImages", "InvalidAMIID.Unavailable", f"The image ID '{image}' is no longer available")
    return image


def built_for_arm(aws: Aws, image: str) -> str:
    reply(aws.ec2, "DescribeImages", {"Images": [{"ImageId": image, "State": "available", "Architecture": "arm64"}]})
    return image


@dataclass(frozen=True)
class Row:
    name: str
    arrange: Callable[[Aws, str], str]
    """Gives the AMI id that the run names, and sees to what EC2 says of it."""
    error: type[AmiRejected]
    why: tuple[str, ...]
    """All of these are in the message."""
    types: tuple[str, ...] = tuple(X86)


ROWS = [
    Row("malformed id", says("my-image"), AmiAbsent, ("InvalidAMIID.Malformed", 'expecting "ami-..."')),
    Row("unknown id", says(UNKNOWN), AmiAbsent, ("InvalidAMIID.NotFound", "does not exist")),
    Row("no longer available", gone_by_code, AmiAbsent, ("InvalidAMIID.Unavailable", "no longer available")),
    Row("deregistered, described by nothing", deregistered, AmiAbsent, ("describes no AMI", "deregistered")),
    Row("empty answer", empty, AmiAbsent, ("describes no AMI",)),
    Row("pending", described_as("pending"), AmiNotReady, ("its state is pending, not available",)),
    Row(
        "failed, with the state's reason",
        described_as("failed", StateReason={"Code": "Client.InternalError", "Message": "Snapshot could not be copied"}),
        AmiNotReady,
        ("its state is failed (Snapshot could not be copied), not available",),
    ),
    Row(
        "failed, with a code for a reason",
        described_as("failed", StateReason={"Code": "Client.InternalError"}),
        AmiNotReady,
        ("its state is failed (Client.InternalError), not available",),
    ),
    Row("deregistered", described_as("deregistered"), AmiNotReady, ("its state is deregistered, not available",)),
    Row("disabled", described_as("disabled"), AmiNotReady, ("its state is disabled",)),
    Row(
        "wrong architecture for every type",
        built_for_arm,
        AmiWrongArchitecture,
        ("its architecture is arm64", "c7i.4xlarge takes x86_64", "m5.large takes x86_64"),
    ),
    Row(
        "wrong architecture for the first type",
        unchanged,
        AmiWrongArchitecture,
        ("its architecture is x86_64", "c7g.large takes arm64"),
        types=(ARM, *X86),
    ),
    Row(
        "wrong architecture for the last fallback",
        unchanged,
        AmiWrongArchitecture,
        ("its architecture is x86_64", "c7g.large takes arm64"),
        types=(*X86, ARM),
    ),
    Row(
        "wrong architecture for a type that takes two",
        built_for_arm,
        AmiWrongArchitecture,
        ("its architecture is arm64", "t2.micro takes i386 or x86_64"),
        types=("t2.micro",),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
def test_an_image_that_cannot_be_launched_is_refused(aws: Aws, x86: str, unique: str, row: Row) -> None:
    """The message names parameter and AMI as people see them, region, reason, and the command that builds an image."""
    ami = row.arrange(aws, x86)
    parameter = f"/{unique}/image"
    name(aws, parameter, ami)
    for requested, default, label in [
        (ami, DEFAULT, ami),
        (parameter, DEFAULT, f"{ami} (from {parameter})"),
        (None, parameter, f"{ami} (from {parameter})"),
    ]:
        with pytest.raises(row.error) as caught:
            check_image(aws, requested=requested, default_parameter=default, instance_types=row.types)
        message = str(caught.value)
        for part in (f"worker image {label} refused in {REGION}: ", BUILD, *row.why):
            assert part in message
        assert "\n" not in message
        assert (caught.value.ami, caught.value.region) == (ami, REGION)
        assert caught.value.parameter == ("" if requested == ami else parameter)


@pytest.mark.parametrize("by_default", [True, False])
def test_a_missing_parameter_is_refused(aws: Aws, unique: str, by_default: bool) -> None:
    parameter = f"/{unique}/missing"
    with pytest.raises(AmiParameterMissing) as caught:
        check_image(
            aws,
            requested=None if by_default else parameter,
            default_parameter=parameter if by_default else DEFAULT,
            instance_types=X86,
        )
    for part in (parameter, REGION, "doesn't exist", BUILD):
        assert part in str(caught.value)


def test_a_parameter_that_holds_nothing_of_use_is_named(aws: Aws, unique: str) -> None:
    parameter = f"/{unique}/image"
    name(aws, parameter, " ")
    with pytest.raises(AmiAbsent, match=f"worker image {parameter} refused .*Malformed"):
        check_image(aws, requested=parameter, default_parameter=DEFAULT, instance_types=X86)


@pytest.mark.parametrize("requested", [None, "", "  "])
def test_no_wish_means_the_default_parameter(aws: Aws, x86: str, unique: str, requested: str | None) -> None:
    parameter = f"/{unique}/image"
    name(aws, parameter, f"{x86}\n")
    found = check_image(aws, requested=requested, default_parameter=parameter, instance_types=X86)
    assert found == WorkerImage(id=x86, label=f"{x86} (from {parameter})", architecture="x86_64", region=REGION)


def test_an_image_by_id_needs_no_parameter(aws: Aws, x86: str) -> None:
    found = check_image(aws, requested=x86, default_parameter="/no/such", instance_types=[*X86, X86[0]])
    assert found == WorkerImage(id=x86, label=x86, architecture="x86_64", region=REGION)


def test_an_arm_image_fits_arm_types(aws: Aws, images: dict[str, str]) -> None:
    assert (
        check_image(aws, requested=images["arm64"], default_parameter=DEFAULT, instance_types=[ARM]).architecture
        == "arm64"
    )


def test_an_image_of_another_region_is_unknown_in_this_one(aws: Aws, x86: str) -> None:
    with pytest.raises(AmiAbsent, match="eu-central-1"):
        check_image(Aws("eu-central-1"), requested=copied(aws, x86), default_parameter=DEFAULT, instance_types=X86)


def test_an_unknown_instance_type_is_named(aws: Aws, x86: str) -> None:
    with pytest.raises(InstanceTypeUnknown, match=r"nope\.large") as caught:
        check_image(aws, requested=x86, default_parameter=DEFAULT, instance_types=["c7i.4xlarge", "nope.large"])
    assert REGION in str(caught.value)


def test_a_type_that_ec2_leaves_out_is_unknown(aws: Aws, x86: str) -> None:
    reply(aws.ec2, "DescribeInstanceTypes", {"InstanceTypes": []})
    with pytest.raises(InstanceTypeUnknown, match=r"c7i\.4xlarge"):
        check_image(aws, requested=x86, default_parameter=DEFAULT, instance_types=["c7i.4xlarge"])


@pytest.mark.parametrize(
    ("service", "operation", "code", "kind"),
    [
        ("ssm", "GetParameter", "AccessDeniedException", Denied),
        ("ssm", "GetParameter", "ThrottlingException", Throttled),
        ("ssm", "GetParameter", "ExpiredTokenException", CredentialsBad),
        ("ec2", "DescribeImages", "UnauthorizedOperation", Denied),
        ("ec2", "DescribeImages", "RequestLimitExceeded", Throttled),
        ("ec2", "DescribeInstanceTypes", "UnauthorizedOperation", Denied),
        ("ec2", "DescribeInstanceTypes", "InternalError", AwsRefused),
    ],
)
def test_a_question_that_was_not_answered_is_no_verdict_on_the_image(
    aws: Aws, x86: str, unique: str, service: str, operation: str, code: str, kind: type[AwsRefused]
) -> None:
    """A throttled or denied look must not say that an image is missing: nobody should build one for that."""
    parameter = f"/{unique}/image"
    name(aws, parameter, x86)
    fail(getattr(aws, service), operation, code)
    with pytest.raises(AwsRefused) as caught:
        check_image(aws, requested=parameter, default_parameter=DEFAULT, instance_types=X86)
    assert type(caught.value) is kind
    assert REGION in str(caught.value)
