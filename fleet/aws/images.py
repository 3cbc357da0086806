"""The worker image of a run: which AMI it is, and whether it can be launched on the instance types that will be tried.

Called before anything is created. Looking is apart from judging: the `judge_…` functions decide from what was found, and
every refusal names the parameter, the AMI, the region, the reason, and the command that builds an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType
    from mypy_boto3_ec2.type_defs import ImageTypeDef

UNKNOWN_AMI = frozenset({"InvalidAMIID.Malformed", "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"})
"""EC2 knows no such AMI in this region; Unavailable is what it says of some deregistered ones."""
UNKNOWN_PARAMETER = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})
UNKNOWN_TYPE = "InvalidInstanceType"
TYPES_A_CALL = 100
"""Of DescribeInstanceTypes, EC2's limit."""


@dataclass(frozen=True, slots=True)
class AmiName:
    """An AMI as a run names it: by its id, or by the parameter that holds the id."""

    ami: str
    parameter: str
    """Empty: named by id."""
    region: str

    @property
    def label(self) -> str:
        """What people are shown."""
        return label_of(self.ami, self.parameter)


@dataclass(frozen=True, slots=True)
class WorkerImage:
    """An AMI that can be launched now."""

    id: str
    label: str
    """The id, and in brackets the parameter that named it."""
    architecture: str
    """As EC2 has it: x86_64, arm64, …"""
    region: str


class AmiRejected(RequestRefused):
    """The worker image can't be launched; raised before anything is created. The person builds one, or names another.

    Children: AmiParameterMissing, AmiAbsent, AmiNotReady, AmiWrongArchitecture.
    """

    parameter: str
    """The parameter that names the image; empty where it was named by id."""
    ami: str
    """Empty where the parameter is missing."""
    region: str
    why: str

    def message(self) -> str:
        """One line: image, parameter, region, reason, and the command that builds one."""
        label = label_of(self.ami, self.parameter)
        return (
            f"worker image {label} refused in {self.region}: {self.why}. "
            f"Build one: fleet image build --region {self.region}"
        )


class AmiParameterMissing(AmiRejected):
    """The parameter that should name the image doesn't exist in the region."""


class AmiAbsent(AmiRejected):
    """No such AMI in the region: malformed, never there, deregistered, or another account's own."""


class AmiNotReady(AmiRejected):
    """The AMI is there, in a state from which nothing can be launched."""

    state: str
    reason: str
    """EC2's own words; empty where it gave none."""


class AmiWrongArchitecture(AmiRejected):
    """The AMI doesn't fit some of the instance types that the run would try."""

    architecture: str
    misfits: tuple[str, ...]
    """The instance types that it doesn't fit."""


class InstanceTypeUnknown(RequestRefused):
    """EC2 has no such instance type in the region; raised before anything is created. The person names others."""

    instance_types: tuple[str, ...]
    region: str
    why: str

    def message(self) -> str:
        """One line: the types that were asked for, and EC2's words on which of them it doesn't know."""
        return f"instance types {', '.join(self.instance_types)} refused in {self.region}: {self.why}"


def check_image(
    aws: Aws, *, requested: str | None, default_parameter: str, instance_types: Sequence[str]
) -> WorkerImage:
    """The image that `requested` names (an AMI id, or a parameter beginning with `/`; else `default_parameter`), fit to launch.

    AmiRejected and InstanceTypeUnknown say what to change; AwsRefused: EC2 or SSM couldn't be asked.
    """
    name = _name(aws, (requested or "").strip() or default_parameter)
    image = judge_state(name, _found(aws, name))
    judge_architecture(name, image.architecture, _architectures(aws, instance_types))
    return image


def label_of(ami: str, parameter: str) -> str:
    """`id`, `id (from parameter)`, or where the parameter holds no id, `parameter`."""
    if ami and parameter:
        return f"{ami} (from {parameter})"
    return ami or parameter


def judge_state(name: AmiName, found: ImageTypeDef | None) -> WorkerImage:
    """The image, if EC2's description of it says that it can be launched. AmiAbsent, AmiNotReady."""
    if found is None:
        raise AmiAbsent(
            parameter=name.parameter,
            ami=name.ami,
            region=name.region,
            why="EC2 describes no AMI of this id there (deregistered, or never there)",
        )
    state = found.get("State", "unknown")
    if state != "available":
        told = found.get("StateReason", {})
        reason = told.get("Message") or told.get("Code") or ""
        raise AmiNotReady(
            parameter=name.parameter,
            ami=name.ami,
            region=name.region,
            state=state,
            reason=reason,
            why=f"its state is {state}{f' ({reason})' if reason else ''}, not available",
        )
    return WorkerImage(
        id=name.ami, label=name.label, architecture=found.get("Architecture", "unknown"), region=name.region
    )


def judge_architecture(name: AmiName, architecture: str, supported: Mapping[str, Sequence[str]]) -> None:
    """AmiWrongArchitecture: some of the instance types, given with the architectures each supports, can't boot this one."""
    misfits = {kind: takes for kind, takes in supported.items() if architecture not in takes}
    if misfits:
        takes = "; ".join(f"{kind} takes {' or '.join(takes)}" for kind, takes in misfits.items())
        raise AmiWrongArchitecture(
            parameter=name.parameter,
            ami=name.ami,
            region=name.region,
            architecture=architecture,
            misfits=tuple(misfits),
            why=f"its architecture is {architecture}, but {takes}",
        )


def _name(aws: Aws, source: str) -> AmiName:
    if not source.startswith("/"):
        return AmiName(ami=source, parameter="", region=aws.region)
    try:
        with calling("ssm", f"{source} in {aws.region}"):
            ami = aws.ssm.get_parameter(Name=source)["Parameter"]["Value"].strip()
    except AwsRefused as refusal:
        if refusal.code in UNKNOWN_PARAMETER:
            raise AmiParameterMissing(
                parameter=source, ami="", region=aws.region, why="the parameter that names it doesn't exist"
            ) from refusal
        raise
    return AmiName(ami=ami, parameter=source, region=aws.region)


def _found(aws: Aws, name: AmiName) -> ImageTypeDef | None:
    try:
        with calling("ec2", f"{name.label} in {name.region}"):
            images = aws.ec2.describe_images(ImageIds=[name.ami])["Images"]
    except AwsRefused as refusal:
        if refusal.code in UNKNOWN_AMI:
            raise AmiAbsent(
                parameter=name.parameter, ami=name.ami, region=name.region, why=f"{refusal.code}: {refusal.why}"
            ) from refusal
        raise
    return images[0] if images else None


def _architectures(aws: Aws, instance_types: Sequence[str]) -> dict[str, Sequence[str]]:
    """The architectures that each type supports, in the order given."""
    wanted: list[InstanceTypeType] = list(dict.fromkeys(instance_types))  # type: ignore[arg-type]  # EC2 knows newer ones
    supported: dict[str, Sequence[str]] = {}
    for start in range(0, len(wanted), TYPES_A_CALL):
        some = wanted[start : start + TYPES_A_CALL]
        try:
            with calling("ec2", f"{', '.join(some)} in {aws.region}"):
                answer = aws.ec2.describe_instance_types(InstanceTypes=some)["InstanceTypes"]
        except AwsRefused as refusal:
            if refusal.code == UNKNOWN_TYPE:
                raise InstanceTypeUnknown(instance_types=tuple(some), region=aws.region, why=refusal.why) from refusal
            raise
        supported |= {found["InstanceType"]: found["ProcessorInfo"]["SupportedArchitectures"] for found in answer}
    if missing := tuple(kind for kind in wanted if kind not in supported):
        raise InstanceTypeUnknown(instance_types=missing, region=aws.region, why="EC2 describes no such types")
    return {kind: supported[kind] for kind in wanted}
