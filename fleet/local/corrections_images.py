"""Images: made of an instance's disk, pending before they can be launched; gone with what they held. And the base images."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2 import utils as ec2_utils
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.amis import AmisResponse
from moto.ssm.models import Parameter, ssm_backends

from fleet.local import preset
from fleet.local.corrections import replace
from fleet.local.roots import Roots

PENDING_SECONDS = 1.0
"""How long an image is pending; on AWS minutes."""
NAME_LENGTHS = range(3, 129)
CANONICAL = "099720109477"
BASE = {"amd64": ("x86_64", "ami-0ba5e000000000001"), "arm64": ("arm64", "ami-0ba5e000000000002")}
"""Canonical's newest images by its own word for the architecture."""


def correct_images(roots: Roots) -> None:
    """Put the corrections in place, once; before those of EC2's instances, whose end passes here."""

    def create_image(self: Any) -> ActionResult:
        """What AWS does and moto doesn't:

        - Only of an instance that runs or is stopped: IncorrectInstanceState.
        - The name has 3 to 128 characters (InvalidAMIName.Malformed), and no other image of the account has it
          (InvalidAMIName.Duplicate).
        - The image is pending before it is available, and has its root device and architecture from the instance.
        - Its snapshot carries the tags that are given for snapshots (moto: not implemented), the volume's size and encryption.
        """
        self.error_on_dryrun()
        backend = self.ec2_backend
        instance = backend.get_instance(self._get_param("InstanceId"))
        if instance.state not in {"running", "stopped"}:
            raise EC2ClientError(
                "IncorrectInstanceState",
                f"The instance '{instance.id}' is not in a state from which an image can be made.",
            )
        name = self._get_param("Name") or ""
        _check_name(backend, name)
        tags = _tags(self._get_param("TagSpecifications", []))
        ami = backend.create_image(instance.id, name, self._get_param("Description", ""), [])
        ami.add_tags(tags["image"])
        ami.ebs_snapshot.add_tags(tags["snapshot"])
        _take_over(ami, instance)
        ami.state = "pending"
        vars(ami)["available_at"] = time.monotonic() + PENDING_SECONDS
        roots.copied(instance.id, ami.id)
        return ActionResult({"ImageId": ami.id})

    def describe_images(self: Any, *arguments: Any, **filters: Any) -> Any:
        for ami in self.amis.values():
            if ami.state == "pending" and time.monotonic() >= vars(ami).get("available_at", float("inf")):
                ami.state = "available"
        return original["describe_images"](self, *arguments, **filters)

    def deregister_image(self: Any, ami_id: str) -> None:
        original["deregister_image"](self, ami_id)
        roots.forgotten(ami_id)

    def terminate(self: Instance, *arguments: Any, **more: Any) -> Any:
        answer = end["terminate"](self, *arguments, **more)
        roots.forgotten(self.id)
        return answer

    def is_filter_matching(thing: Any, name: str, wanted: Any) -> bool:
        """Several values of a filter are alternatives, of tag keys too (moto: all must be there)."""
        if name == "tag-key" and isinstance(wanted, list):
            return any(matches["is_filter_matching"](thing, name, [one]) for one in wanted)
        return bool(matches["is_filter_matching"](thing, name, wanted))

    matches = replace(ec2_utils, is_filter_matching=is_filter_matching)
    replace(AmisResponse, create_image=create_image)
    original = replace(AmiBackend, describe_images=describe_images, deregister_image=deregister_image)
    end = replace(Instance, terminate=terminate)
    mappings = Ami.block_device_mappings.fget  # type: ignore[attr-defined]
    vars_of: Any = Ami
    vars_of.block_device_mappings = property(lambda ami: vars(ami).get("volumes") or mappings(ami))


def add_base_images(roots: Roots) -> None:
    """Canonical's images, and the public parameters that name them."""
    roots.clear()
    ec2 = ec2_backends[preset.ACCOUNT][preset.REGION]
    ssm = ssm_backends[preset.ACCOUNT][preset.REGION]
    for word, (architecture, image) in BASE.items():
        ec2.amis[image] = Ami(
            ec2,
            image,
            name=f"ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{word}-server-20260101",
            owner_id=CANONICAL,
            public=True,
            architecture=architecture,
            virtualization_type="hvm",
            hypervisor="xen",
            root_device_type="ebs",
            region_name=f"{preset.REGION}a",
        )
        roots.has_base(image)
        name = f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{word}/hvm/ebs-gp3/ami-id"
        # Not by put_parameter, which refuses names below /aws to everybody, as AWS does.
        ssm._parameters[name].append(  # noqa: SLF001
            Parameter(  # type: ignore[abstract]
                account_id=preset.ACCOUNT,
                name=name,
                value=image,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=datetime.now(UTC),
                version=1,
                data_type="aws:ec2:image",
            )
        )


def _check_name(backend: Any, name: str) -> None:
    if len(name) not in NAME_LENGTHS:
        raise EC2ClientError("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long")
    if any(ami.name == name and ami.owner_id == backend.account_id for ami in backend.amis.values()):
        raise EC2ClientError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by another AMI")


def _tags(specifications: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {"image": {}, "snapshot": {}}
    for one in specifications:
        kind = one.get("ResourceType", "")
        if kind not in found:
            raise EC2ClientError("InvalidParameterValue", f"'{kind}' is not a valid taggable resource type")
        found[kind] |= {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}
    return found


def _take_over(ami: Ami, instance: Instance) -> None:
    """Root device, its size and its encryption are the instance's."""
    ami.root_device_name = instance.root_device_name
    ami.root_device_type = "ebs"
    ami.hypervisor = "xen"
    ami.virtualization_type = ami.virtualization_type or "hvm"
    ami.architecture = instance.architecture or "x86_64"
    root: Any = instance.block_device_mapping.get(instance.root_device_name)
    volume = instance.ec2_backend.volumes.get(root.volume_id) if root else None
    ami.ebs_snapshot.encrypted = bool(volume and volume.encrypted)
    vars(ami)["volumes"] = [
        {
            "DeviceName": ami.root_device_name,
            "Ebs": {
                "SnapshotId": ami.ebs_snapshot.id,
                "VolumeSize": int(volume.size) if volume else 8,
                "DeleteOnTermination": True,
                "VolumeType": "gp3",
                "Encrypted": ami.ebs_snapshot.encrypted,
            },
        }
    ]
