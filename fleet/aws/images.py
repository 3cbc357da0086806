"""The worker image of a run: which AMI it is, and whether it can be launched on the instance types that will be tried.

Called before anything is created. Looking is apart from judging: the `judge_…` functions decide from what was found, and
every refusal names the parameter, the AMI, the region, the reason, and the command that builds an image.

An image says by two tags what it is: `CONTRACT_TAG`, the number of the agreement between image and boot code, and
`VERSION_TAG`, the version of this project that built it. EC2 shows an image's tags to nobody but the account that wrote them,
so that an image which another account shares comes without: it isn't refused for that, and `WorkerImage.doubt` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet import __version__
from fleet.aws.commands import fleet_command
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.identity import caller
from fleet.aws.session import Aws
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType
    from mypy_boto3_ec2.type_defs import ImageTypeDef

CONTRACT = 1
"""What this version's boot code expects of an image: the programs on its PATH, the engine's settings, the boot unit. Raised by one
with each change that an older image can't serve."""
CONTRACT_TAG = "inspect-fleet:contract"
VERSION_TAG = "inspect-fleet:version"

UNKNOWN_AMI = frozenset({"InvalidAMIID.Malformed", "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"})
"""EC2 knows no such AMI in this region; Unavailable is what it says of some deregistered ones."""
UNKNOWN_PARAMETER = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})
MALFORMED_PARAMETER = "ValidationException"
"""SSM's answer for a name that no parameter can have."""
UNKNOWN_TYPE = "InvalidInstanceType"
ARCHITECTURES = ("x86_64", "arm64")
"""Those that worker images are built for."""
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
    contract: int | None = None
    """The number that its tag says; None: another account's image, whose tags EC2 doesn't show."""
    version: str = ""
    """The version of this project that built it, by its tag; empty: it has none, or none that is shown."""
    created: str = ""
    """When it was made, as EC2 writes it (ISO 8601, UTC)."""
    owner: str = ""
    """Number of the account that owns it."""
    root_device: str = "/dev/xvda"
    """Its own name of its root volume."""
    snapshot_gb: int = 0
    """Size of the snapshot behind its root volume, in GiB; 0: EC2 didn't say."""

    @property
    def doubt(self) -> str:
        """What couldn't be checked, in one line; empty: nothing."""
        if self.contract is not None:
            return ""
        return (
            f"{self.label} belongs to account {self.owner}, whose tags EC2 doesn't show: whether it keeps contract {CONTRACT} "
            f"isn't known. Tag it in this account to have it checked ({CONTRACT_TAG}={CONTRACT})"
        )

    def line(self) -> str:
        """What it is, in one line."""
        contract = f"contract {self.contract}" if self.contract is not None else "contract not shown"
        built = f", built by version {self.version}" if self.version else ""
        made = f", made {self.created}" if self.created else ""
        return f"worker image {self.label} in {self.region}: {self.architecture}, {contract}{built}{made}"


class AmiRejected(RequestRefused):
    """The worker image can't be launched; raised before anything is created. The person builds one, or names another.

    Children: AmiParameterMissing, AmiAbsent, AmiNotReady, AmiWrongContract, AmiWrongArchitecture.
    """

    parameter: str
    """The parameter that names the image; empty where it was named by id."""
    ami: str
    """Empty where the parameter is missing."""
    region: str
    why: str

    def message(self) -> str:
        """One line: image, parameter, region, reason, and what helps."""
        label = label_of(self.ami, self.parameter)
        return f"worker image {label} refused in {self.region}: {self.why}. {self.helps()}"

    def helps(self) -> str:
        """The command that builds an image, or what else to change."""
        return f"Build one: {fleet_command(self.region, 'image', 'build')}"


class AmiParameterMissing(AmiRejected):
    """The parameter that should name the image doesn't exist in the region, or can't."""


class AmiAbsent(AmiRejected):
    """No such AMI in the region: malformed, never there, deregistered, or another account's own."""


class AmiNotReady(AmiRejected):
    """The AMI is there, in a state from which nothing can be launched."""

    state: str
    reason: str
    """EC2's own words; empty where it gave none."""


class AmiWrongContract(AmiRejected):
    """The AMI was built for another version of this project, or isn't a worker image at all."""

    contract: str
    """What its tag says; empty: it has no such tag."""
    version: str
    """The version that built it, by its tag; empty: it has no such tag."""
    needs: int
    """The contract that this version needs."""


class AmiWrongArchitecture(AmiRejected):
    """The AMI doesn't fit some of the instance types that the run would try."""

    architecture: str
    misfits: tuple[str, ...]
    """The instance types that it doesn't fit."""
    fitting: str
    """The architecture that all of the instance types support; empty: there is none, so that no image fits them all."""
    pointer: str
    """The parameter that names this account's image of it."""

    def helps(self) -> str:
        """Which image to name and how it is built; or that the types need one architecture."""
        if not self.fitting:
            return (
                "No image fits all of these instance types: name types of one architecture (here without "
                f"{', '.join(self.misfits)}), among instance types and fallbacks alike"
            )
        build = fleet_command(self.region, "image", "build", "--architecture", self.fitting)
        return f"Name an image for {self.fitting}: ami={self.pointer}, which `{build}` makes; or types of {self.architecture}"


class VolumeTooSmall(RequestRefused):
    """The root volume that is asked for is smaller than the image's own; raised before anything is created."""

    ami: str
    """As people are shown it."""
    region: str
    volume_gb: int
    snapshot_gb: int

    def message(self) -> str:
        """One line: image, region, both sizes, and what to set."""
        return (
            f"a root volume of {self.volume_gb} GB is too small for the worker image {self.ami} in {self.region}, whose snapshot "
            f"has {self.snapshot_gb} GB: set volume_gb to {self.snapshot_gb} or more"
        )


class InstanceTypeUnknown(RequestRefused):
    """EC2 has no such instance type in the region; raised before anything is created. The person names others."""

    instance_types: tuple[str, ...]
    region: str
    why: str

    def message(self) -> str:
        """One line: the types that were asked for, and EC2's words on which of them it doesn't know."""
        return f"instance types {', '.join(self.instance_types)} refused in {self.region}: {self.why}"


def check_image(
    aws: Aws,
    *,
    requested: str | None,
    default_parameter: str,
    instance_types: Sequence[str],
    volume_gb: int | None = None,
) -> WorkerImage:
    """The image that `requested` names (an AMI id, or a parameter beginning with `/`; else `default_parameter`), fit to launch.

    `volume_gb`: the root volume that will be asked for. AmiRejected, VolumeTooSmall and InstanceTypeUnknown say what to
    change; AwsRefused: EC2 or SSM couldn't be asked.
    """
    name = _name(aws, (requested or "").strip() or default_parameter)
    found = judge_state(name, _found(aws, name))
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
    # Who asks matters only where the tag isn't seen, which spares the question for every image that has it.
    owned = CONTRACT_TAG in tags or found.get("OwnerId") == caller(aws).account
    image = _seen(name, found, contract=judge_contract(name, tags, owned=owned), version=tags.get(VERSION_TAG, ""))
    judge_architecture(name, image.architecture, _architectures(aws, instance_types), default_parameter)
    if volume_gb is not None:
        judge_volume(image, volume_gb)
    return image


def label_of(ami: str, parameter: str) -> str:
    """`id`, `id (from parameter)`, or where the parameter holds no id, `parameter`."""
    if ami and parameter:
        return f"{ami} (from {parameter})"
    return ami or parameter


def judge_state(name: AmiName, found: ImageTypeDef | None) -> ImageTypeDef:
    """EC2's description of the image, if it says that it can be launched. AmiAbsent, AmiNotReady."""
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
    return found


def judge_contract(name: AmiName, tags: Mapping[str, str], *, owned: bool) -> int | None:
    """The contract that the image keeps, by its tags; None: its tags aren't shown, since it isn't `owned`. AmiWrongContract."""
    said = tags.get(CONTRACT_TAG, "").strip()
    if said == str(CONTRACT):
        return CONTRACT
    if CONTRACT_TAG not in tags and not owned:
        return None
    version = tags.get(VERSION_TAG, "").strip()
    has = f"its tag {CONTRACT_TAG} is {said!r}" if CONTRACT_TAG in tags else f"it has no tag {CONTRACT_TAG}"
    by = f" (built by version {version})" if version else ""
    newer = said.isdecimal() and int(said) > CONTRACT
    raise AmiWrongContract(
        parameter=name.parameter,
        ami=name.ami,
        region=name.region,
        contract=said,
        version=version,
        needs=CONTRACT,
        why=f"{has}{by}, and this version ({__version__}) needs {CONTRACT}"
        f"{', so the image is for a newer one' if newer else ''}",
    )


def judge_volume(image: WorkerImage, volume_gb: int) -> None:
    """VolumeTooSmall: EC2 makes no volume that is smaller than the snapshot it begins with."""
    if volume_gb < image.snapshot_gb:
        raise VolumeTooSmall(ami=image.label, region=image.region, volume_gb=volume_gb, snapshot_gb=image.snapshot_gb)


def pointer_for(parameter: str, architecture: str) -> str:
    """The parameter that names the image of an architecture: the account's own for x86_64, with a suffix for others."""
    return parameter if architecture == "x86_64" else f"{parameter}-{architecture}"


def judge_architecture(
    name: AmiName, architecture: str, supported: Mapping[str, Sequence[str]], default_parameter: str
) -> None:
    """AmiWrongArchitecture: some of the instance types, given with the architectures each supports, can't boot this one."""
    misfits = {kind: takes for kind, takes in supported.items() if architecture not in takes}
    if misfits:
        fitting = next((one for one in ARCHITECTURES if all(one in takes for takes in supported.values())), "")
        takes = "; ".join(f"{kind} takes {' or '.join(takes)}" for kind, takes in misfits.items())
        raise AmiWrongArchitecture(
            parameter=name.parameter,
            ami=name.ami,
            region=name.region,
            architecture=architecture,
            misfits=tuple(misfits),
            fitting=fitting,
            pointer=pointer_for(default_parameter, fitting) if fitting else "",
            why=f"its architecture is {architecture}, but {takes}",
        )


def _seen(name: AmiName, found: ImageTypeDef, *, contract: int | None, version: str) -> WorkerImage:
    root = found.get("RootDeviceName") or "/dev/xvda"
    volumes = {volume.get("DeviceName"): volume.get("Ebs", {}) for volume in found.get("BlockDeviceMappings", [])}
    return WorkerImage(
        id=name.ami,
        label=name.label,
        architecture=found.get("Architecture", "unknown"),
        region=name.region,
        contract=contract,
        version=version,
        created=found.get("CreationDate", ""),
        owner=found.get("OwnerId", ""),
        root_device=root,
        snapshot_gb=volumes.get(root, {}).get("VolumeSize", 0),
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
        if refusal.code == MALFORMED_PARAMETER:
            raise AmiParameterMissing(
                parameter=source, ami="", region=aws.region, why=f"no parameter can have this name ({refusal.why})"
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
