"""Our images in EC2: made, awaited, tagged, listed and removed with their snapshots. Nothing is touched that lacks our tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fleet.aws.batches import each_refused, in_one
from fleet.aws.capacity import IN_DOUBT
from fleet.aws.commands import aws_command
from fleet.aws.failures import THROTTLED, AwsRefused, Denied, calling
from fleet.aws.images import CONTRACT_TAG, UNKNOWN_AMI, VERSION_TAG
from worker_image.failures import BuildFailed, BuildTimedOut, NotAllowed
from worker_image.names import ARCHITECTURE_TAG, BUILD_TAG, LONGEST_TAG, REASON_TAG, RECIPE_TAG, STATE_TAG, BuildNames
from worker_image.place import Place, denied_words

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, ImageTypeDef

UNKNOWN_SNAPSHOT = frozenset({"InvalidSnapshot.NotFound", "InvalidSnapshotID.Malformed"})
NOT_NOW = THROTTLED | IN_DOUBT | {"InvalidSnapshot.InUse"}
"""Refusals of a deletion that time mends; the last is said for some seconds after the image of a snapshot was deregistered."""
DELETE_TRIES = 6
IMAGE_MINUTES = 60.0
"""Copying a disk of some gigabytes into a snapshot takes 5 to 15 minutes."""


@dataclass(frozen=True, slots=True)
class OwnImage:
    """An image that carries our tag."""

    id: str
    name: str
    state: str
    """EC2's: pending, available, failed, …"""
    architecture: str
    created: str
    """As EC2 writes it: ISO 8601, UTC."""
    snapshots: tuple[str, ...]
    tags: Mapping[str, str]
    why: str = ""
    """EC2's reason for its state."""

    @property
    def build(self) -> str:
        """The build that made it."""
        return self.tags.get(BUILD_TAG, "")

    @property
    def role(self) -> str:
        """candidate, published or rejected."""
        return self.tags.get(STATE_TAG, "")

    @property
    def recipe(self) -> str:
        """The hash of its recipe."""
        return self.tags.get(RECIPE_TAG, "")

    @property
    def version(self) -> str:
        """The version of this project that built it."""
        return self.tags.get(VERSION_TAG, "")

    @property
    def contract(self) -> str:
        """The contract that it keeps."""
        return self.tags.get(CONTRACT_TAG, "")


class Amis:
    """Our images in one region. Raises AwsRefused for what AWS refuses."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._ec2 = place.aws.ec2

    def create(self, names: BuildNames, machine: str, root_device: str) -> str:
        """The id of a new image of a stopped instance's disk, pending. Tags are on it and its snapshot from the first moment."""
        tags: Any = [{"Key": key, "Value": value} for key, value in names.image_tags().items()]
        try:
            with calling("ec2", f"{names.image_name} in {self.place.region}"):
                made = self._ec2.create_image(
                    InstanceId=machine,
                    Name=names.image_name,
                    Description=f"Inspect Fleet worker, contract {names.recipe.contract}, on {names.base}",
                    # Its encryption is the volume's, and can't be said again here.
                    BlockDeviceMappings=[
                        {"DeviceName": root_device, "Ebs": {"VolumeType": "gp3", "DeleteOnTermination": True}}
                    ],
                    TagSpecifications=[
                        {"ResourceType": "image", "Tags": tags},
                        {"ResourceType": "snapshot", "Tags": tags},
                    ],
                )
        except AwsRefused as refusal:
            if words := denied_words(refusal):
                raise NotAllowed(what=words[0], why=words[1]) from refusal
            raise
        self.place.made.append(made["ImageId"])
        return made["ImageId"]

    def await_available(self, names: BuildNames, image: str) -> OwnImage:
        """The image, once instances can be launched from it. BuildFailed: EC2 couldn't make it. BuildTimedOut."""
        patience = self.place.patience
        until = patience.clock() + IMAGE_MINUTES * 60
        while True:
            found = self.get(image)
            if found is not None and found.state == "available":
                return found
            if found is not None and found.state != "pending":
                why = f"EC2 made no image of the disk: {image} is {found.state}{f' ({found.why})' if found.why else ''}"
                raise BuildFailed(build=names.id, why=why, log="", tail="")
            if patience.clock() >= until:
                raise BuildTimedOut(build=names.id, what=f"making the image {image}", minutes=IMAGE_MINUTES, log="")
            patience.sleep(patience.every)

    def get(self, image: str) -> OwnImage | None:
        """One image; None: EC2 knows none of this id (for some seconds after it was made, and once it is deregistered)."""
        try:
            with calling("ec2", f"{image} in {self.place.region}"):
                images = self._ec2.describe_images(ImageIds=[image])["Images"]
        except AwsRefused as refusal:
            if refusal.code in UNKNOWN_AMI:
                return None
            raise
        return _seen(images[0]) if images else None

    def own(self, build: str | None = None) -> list[OwnImage]:
        """This account's worker images (of one build, or all), newest first; also those that another way than ours made."""
        filters: list[FilterTypeDef] = [
            {"Name": "tag-key", "Values": [BUILD_TAG, CONTRACT_TAG]}
            if build is None
            else {"Name": f"tag:{BUILD_TAG}", "Values": [build]}
        ]
        with calling("ec2", f"images of this account in {self.place.region}"):
            pages = self._ec2.get_paginator("describe_images").paginate(Owners=["self"], Filters=filters)
            found = [_seen(image) for page in pages for image in page["Images"]]
        return sorted(found, key=lambda image: (image.created, image.id), reverse=True)

    def tag(self, image: OwnImage, tags: Mapping[str, str]) -> None:
        """Set tags of the image, by which all is decided; its snapshots keep those they have."""
        self._tag([image.id], tags)

    def adopt(self, image: OwnImage, tags: Mapping[str, str]) -> None:
        """Make an image that another way than ours made our own, and its snapshots, which may be told apart by no tag of ours.

        Where the image was tagged and they may not be, it is said, and the image serves all the same.
        """
        self._tag([image.id], tags)
        for snapshot in image.snapshots:
            try:
                self._tag([snapshot], tags)
            except Denied as denied:
                self.place.say(
                    f"{snapshot} of {image.id} stays without our tags, since this identity may not tag it ({denied.code}): once "
                    "the image is old and removed, it is left, and told again"
                )

    def _tag(self, resources: list[str], tags: Mapping[str, str]) -> None:
        wanted: Any = [{"Key": key, "Value": value[:LONGEST_TAG]} for key, value in tags.items()]
        with calling("ec2", f"{resources[0]} in {self.place.region}"):
            self._ec2.create_tags(Resources=resources, Tags=wanted)

    def reject(self, image: OwnImage, why: str) -> None:
        """Say on the image that it isn't fit: whatever becomes of its removal, nobody takes it for good."""
        self.tag(image, {STATE_TAG: "rejected", REASON_TAG: tag_text(why)})

    def used_by_instances(self, images: Iterable[str]) -> set[str]:
        """Those of the images from which an instance that isn't terminated was launched."""
        wanted = sorted(images)
        if not wanted:
            return set()
        with calling("ec2", f"instances in {self.place.region}"):
            pages = self._ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "image-id", "Values": wanted}]
            )
            return {
                each["ImageId"]
                for page in pages
                for reservation in page["Reservations"]
                for each in reservation["Instances"]
                if each["State"]["Name"] != "terminated"
            }

    def remove(self, image: OwnImage) -> None:
        """Deregister the image and delete its snapshots; what is gone already is success. ValueError: it isn't ours.

        A snapshot that can't be deleted is told: it is billed, and nothing leads to it any more.
        """
        if not image.build:
            raise ValueError(f"{image.id} doesn't carry our tag")
        try:
            with calling("ec2", f"{image.id} in {self.place.region}"):
                self._ec2.deregister_image(ImageId=image.id)
        except AwsRefused as refusal:
            if refusal.code not in UNKNOWN_AMI:
                raise
        for snapshot, left in each_refused(image.snapshots, self._delete_snapshot).items():
            command = aws_command(self.place.region, "ec2", "delete-snapshot", "--snapshot-id", snapshot)
            why = "this identity may not delete it" if isinstance(left, Denied) else "EC2 didn't delete it"
            self.place.say(
                f"{snapshot} of the removed image {image.id} is left, since {why} ({left.code}): `{command}`"
            )

    def delete_snapshots(self, snapshots: Sequence[str]) -> None:
        """Delete these; waits for EC2 to see that their image is gone. AwsRefused names those that stay; the others go."""
        if refusals := each_refused(snapshots, self._delete_snapshot):
            raise in_one(refusals, where=f" in {self.place.region}")

    def _delete_snapshot(self, snapshot: str) -> None:
        for left in reversed(range(DELETE_TRIES)):
            try:
                with calling("ec2", f"{snapshot} in {self.place.region}"):
                    self._ec2.delete_snapshot(SnapshotId=snapshot)
            except AwsRefused as refusal:
                if refusal.code in UNKNOWN_SNAPSHOT:
                    return
                if refusal.code not in NOT_NOW or not left:
                    raise
                self.place.patience.sleep(self.place.patience.every)
            else:
                return

    def snapshots_of(self, build: str) -> list[str]:
        """The snapshots with the tag of a build, also those whose image is gone or never came."""
        with calling("ec2", f"snapshots of this account in {self.place.region}"):
            pages = self._ec2.get_paginator("describe_snapshots").paginate(
                OwnerIds=["self"], Filters=[{"Name": f"tag:{BUILD_TAG}", "Values": [build]}]
            )
            return [found["SnapshotId"] for page in pages for found in page["Snapshots"]]


def tag_text(text: str) -> str:
    """`text` as a tag's value can hold it: EC2 takes letters, digits, spaces and a few signs, 256 characters."""
    kept = "".join(sign if sign.isalnum() or sign in " _.:/=+-@" else "-" for sign in " ".join(text.split()))
    return kept[:LONGEST_TAG]


def _seen(found: ImageTypeDef) -> OwnImage:
    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
    volumes = [volume.get("Ebs", {}) for volume in found.get("BlockDeviceMappings", [])]
    reason = found.get("StateReason", {})
    return OwnImage(
        id=found["ImageId"],
        name=found.get("Name", ""),
        state=found.get("State", "unknown"),
        architecture=found.get("Architecture") or tags.get(ARCHITECTURE_TAG, "unknown"),
        created=found.get("CreationDate", ""),
        snapshots=tuple(volume["SnapshotId"] for volume in volumes if volume.get("SnapshotId")),
        tags=tags,
        why=reason.get("Message") or reason.get("Code") or "",
    )
