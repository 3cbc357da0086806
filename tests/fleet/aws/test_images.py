from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import boto3
import pytest

from fleet import __version__
from fleet.aws.failures import AwsRefused, CredentialsBad, Denied, Throttled
from fleet.aws.images import (
    CONTRACT,
    CONTRACT_TAG,
    VERSION_TAG,
    AmiAbsent,
    AmiNotReady,
    AmiParameterMissing,
    AmiRejected,
    AmiWrongArchitecture,
    AmiWrongContract,
    InstanceTypeUnknown,
    VolumeTooSmall,
    WorkerImage,
    check_image,
)
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import REGION, fail, reply

ACCOUNT = "123456789012"
DEFAULT = "/inspect-fleet/worker-image"
UNKNOWN = "ami-0123456789abcdef0"
BUILD = f"fleet image build --region {REGION}"
BUILD_X86 = f"`fleet image build --architecture x86_64 --region {REGION}`"
BUILD_ARM = f"`fleet image build --architecture arm64 --region {REGION}`"
NONE_FITS = "No image fits all of these instance types: name types of one architecture (here without c7g.large)"
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


def tagged(**tags: str) -> Callable[[Aws, str], str]:
    """An image of this account, with these tags: `contract` and `version`."""

    def arrange(aws: Aws, image: str) -> str:
        copy = copied(aws, image)
        given = {CONTRACT_TAG: tags.get("contract"), VERSION_TAG: tags.get("version")}
        named = [{"Key": key, "Value": value} for key, value in given.items() if value is not None]
        if named:
            aws.ec2.create_tags(Resources=[copy], Tags=named)  # type: ignore[arg-type]
        return copy

    return arrange


def strange_copy(aws: Aws, image: str) -> str:
    """Another account's image that was tagged in this one, with another number."""
    return described_as("available", OwnerId="999999999999", Tags=[{"Key": CONTRACT_TAG, "Value": "7"}])(aws, image)


def built_for_arm(aws: Aws, image: str) -> str:
    return described_as("available", Architecture="arm64")(aws, image)


@dataclass(frozen=True)
class Row:
    name: str
    arrange: Callable[[Aws, str], str]
    """Gives the AMI id that the run names, and sees to what EC2 says of it."""
    error: type[AmiRejected]
    why: tuple[str, ...]
    """All of these are in the message."""
    types: tuple[str, ...] = tuple(X86)
    build: str = BUILD


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
    Row("no contract", tagged(), AmiWrongContract, (f"it has no tag {CONTRACT_TAG}, and this version", "needs 1")),
    Row(
        "an older contract",
        tagged(contract="0", version="0.0.9"),
        AmiWrongContract,
        (f"its tag {CONTRACT_TAG} is '0' (built by version 0.0.9), and this version ({__version__}) needs 1.",),
    ),
    Row(
        "a newer contract",
        tagged(contract="2", version="3.0"),
        AmiWrongContract,
        ("is '2' (built by version 3.0)", "so the image is for a newer one"),
    ),
    Row("a contract that is no number", tagged(contract="one"), AmiWrongContract, ("is 'one', and this version",)),
    Row("an empty contract", tagged(contract=""), AmiWrongContract, ("is '', and this version",)),
    Row("another account's with a wrong contract", strange_copy, AmiWrongContract, ("is '7'",)),
    Row(
        "wrong architecture for every type",
        built_for_arm,
        AmiWrongArchitecture,
        ("its architecture is arm64", "c7i.4xlarge takes x86_64", "m5.large takes x86_64"),
        build=BUILD_X86,
    ),
    Row("arm64 alone", unchanged, AmiWrongArchitecture, ("image-arm64, which", "or types of x86"), (ARM,), BUILD_ARM),
    Row(
        "wrong architecture for the first type",
        unchanged,
        AmiWrongArchitecture,
        ("its architecture is x86_64", "c7g.large takes arm64"),
        types=(ARM, *X86),
        build=NONE_FITS,
    ),
    Row(
        "wrong architecture for the last fallback",
        unchanged,
        AmiWrongArchitecture,
        ("its architecture is x86_64", "c7g.large takes arm64"),
        types=(*X86, ARM),
        build=NONE_FITS,
    ),
    Row(
        "wrong architecture for a type that takes two",
        built_for_arm,
        AmiWrongArchitecture,
        ("its architecture is arm64", "t2.micro takes i386 or x86_64"),
        types=("t2.micro",),
        build=BUILD_X86,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
@pytest.mark.fault("ami-unfit")
def test_an_image_that_cannot_be_launched_is_refused(aws: Aws, x86: str, unique: str, row: Row) -> None:
    """The message names parameter and AMI as people see them, region, reason, and what helps: the build command, as a rule."""
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
        for part in (f"worker image {label} refused in {REGION}: ", row.build, *row.why):
            assert part in message
        assert "\n" not in message
        assert (caught.value.ami, caught.value.region) == (ami, REGION)
        assert caught.value.parameter == ("" if requested == ami else parameter)


@pytest.mark.parametrize("by_default", [True, False])
@pytest.mark.fault("ami-unfit")
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


@pytest.mark.fault("ami-unfit")
def test_a_parameter_whose_name_cannot_be_one_is_refused(aws: Aws) -> None:
    fail(aws.ssm, "GetParameter", "ValidationException", "Parameter name must be a fully qualified name")
    with pytest.raises(
        AmiParameterMissing, match=r"no parameter can have this name .*fully qualified.*fleet image build"
    ):
        check_image(aws, requested="/in valid", default_parameter=DEFAULT, instance_types=X86)


@pytest.mark.fault("ami-unfit")
def test_a_parameter_that_holds_nothing_of_use_is_named(aws: Aws, unique: str) -> None:
    parameter = f"/{unique}/image"
    name(aws, parameter, " ")
    with pytest.raises(AmiAbsent, match=f"worker image {parameter} refused .*Malformed"):
        check_image(aws, requested=parameter, default_parameter=DEFAULT, instance_types=X86)


@pytest.mark.parametrize("requested", [None, "", "  "])
def test_no_wish_means_the_default_parameter(aws: Aws, x86: str, unique: str, requested: str | None) -> None:
    image = tagged(contract="1", version="0.1.0")(aws, x86)
    parameter = f"/{unique}/image"
    name(aws, parameter, f"{image}\n")
    found = check_image(aws, requested=requested, default_parameter=parameter, instance_types=X86)
    assert found == WorkerImage(
        id=image,
        label=f"{image} (from {parameter})",
        architecture="x86_64",
        region=REGION,
        contract=CONTRACT,
        version="0.1.0",
        created=found.created,
        owner=ACCOUNT,
        root_device="/dev/sda1",
        snapshot_gb=15,
    )
    assert found.created.startswith("20")
    assert found.line() == (
        f"worker image {image} (from {parameter}) in {REGION}: x86_64, contract 1, built by version 0.1.0, "
        f"made {found.created}"
    )
    assert found.doubt == ""


def test_an_image_by_id_needs_no_parameter(aws: Aws, x86: str) -> None:
    image = tagged(contract="1")(aws, x86)
    found = check_image(aws, requested=image, default_parameter="/no/such", instance_types=[*X86, X86[0]])
    assert (found.id, found.label, found.version) == (image, image, "")


def test_an_image_whose_tags_are_not_shown_is_not_refused_for_that(aws: Aws, x86: str) -> None:
    """EC2 shows tags to the account that wrote them: an image that another account shares comes without, and the doubt is said."""
    reply(
        aws.ec2,
        "DescribeImages",
        {"Images": [{"ImageId": x86, "State": "available", "Architecture": "x86_64", "OwnerId": "999999999999"}]},
    )
    found = check_image(aws, requested=x86, default_parameter=DEFAULT, instance_types=X86)
    assert found.contract is None
    assert "contract not shown" in found.line()
    assert found.doubt.startswith(f"{x86} belongs to account 999999999999, whose tags EC2 doesn't show")
    assert f"{CONTRACT_TAG}={CONTRACT}" in found.doubt


def test_who_asks_is_looked_up_only_for_an_image_without_the_tag(aws: Aws, x86: str) -> None:
    """The identity service isn't asked for the usual image: it may fail here."""
    image = tagged(contract="1")(aws, x86)
    fail(aws.sts, "GetCallerIdentity", "InternalFailure", status=500)
    assert check_image(aws, requested=image, default_parameter=DEFAULT, instance_types=X86).contract == CONTRACT
    with pytest.raises(AwsRefused):
        check_image(aws, requested=tagged()(aws, x86), default_parameter=DEFAULT, instance_types=X86)


@pytest.mark.parametrize("volume", [None, 15, 100])
def test_a_volume_that_holds_the_image_is_taken(aws: Aws, x86: str, volume: int | None) -> None:
    image = tagged(contract="1")(aws, x86)
    found = check_image(aws, requested=image, default_parameter=DEFAULT, instance_types=X86, volume_gb=volume)
    assert found.snapshot_gb == 15


def test_a_volume_smaller_than_the_image_is_refused_with_both_sizes(aws: Aws, x86: str) -> None:
    image = tagged(contract="1")(aws, x86)
    with pytest.raises(VolumeTooSmall) as caught:
        check_image(aws, requested=image, default_parameter=DEFAULT, instance_types=X86, volume_gb=14)
    assert str(caught.value) == (
        f"a root volume of 14 GB is too small for the worker image {image} in {REGION}, whose snapshot has 15 GB: "
        "set volume_gb to 15 or more"
    )


def test_the_root_volume_is_the_one_that_is_compared(aws: Aws, x86: str) -> None:
    """An image's second volume may be larger than what is asked for the first."""
    disks = [
        {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 500}},
        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 30}},
        {"DeviceName": "/dev/sdc", "VirtualName": "ephemeral0"},
    ]
    described_as(
        "available",
        RootDeviceName="/dev/xvda",
        BlockDeviceMappings=disks,
        Tags=[{"Key": CONTRACT_TAG, "Value": "1"}],
    )(aws, x86)
    found = check_image(aws, requested=x86, default_parameter=DEFAULT, instance_types=X86, volume_gb=30)
    assert (found.root_device, found.snapshot_gb) == ("/dev/xvda", 30)


def test_an_arm_image_fits_arm_types(aws: Aws, images: dict[str, str]) -> None:
    arm = images["arm64"]
    assert check_image(aws, requested=arm, default_parameter=DEFAULT, instance_types=[ARM]).architecture == "arm64"


@pytest.mark.fault("ami-unfit")
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
        ("sts", "GetCallerIdentity", "Throttling", Throttled),
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
    assert service == "sts" or REGION in str(caught.value)
