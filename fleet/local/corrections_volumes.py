"""EBS volumes: when one may be attached, and word to `Disks` of each that comes, goes or is deleted."""

from __future__ import annotations

from typing import Any, cast

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_block_store import EBSBackend, Volume
from moto.ec2.responses.elastic_block_store import ElasticBlockStore

from fleet.local.corrections import replace
from fleet.local.disks import Disks

ATTACHABLE = frozenset({"running", "stopped"})


def correct_volumes(disks: Disks) -> None:
    """Put the corrections in place, once."""

    def attach(self: Any) -> Any:
        """A volume is attached to one instance at a time, in its own zone, that runs or is stopped (moto: to any, at any time)."""
        self.error_on_dryrun()
        volume = self.ec2_backend.get_volume(self._get_param("VolumeId"))
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        device = self._get_param("Device")
        if instance.state not in ATTACHABLE:
            raise EC2ClientError("IncorrectState", f"Instance '{instance.id}' is not 'running'.")
        if volume.attachment is not None:
            raise EC2ClientError("VolumeInUse", f"{volume.id} is already attached to an instance")
        if volume.availability_zone != instance.availability_zone:
            raise EC2ClientError(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume.id}' is not in the same availability zone as instance '{instance.id}'",
            )
        if device in instance.block_device_mapping:
            raise EC2ClientError(
                "InvalidParameterValue",
                f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
            )
        answer = attach_original(self)
        disks.attached(instance.id, volume.id)
        return answer

    def detach(self: Any, volume_id: str, instance_id: str | None, device_path: str) -> Any:
        """The instance need not be named, as it can be only one (moto: 500). The end of an instance comes by here too."""
        held = self.get_volume(volume_id).attachment
        attachment = detach_original(self, volume_id, instance_id or (held.instance.id if held else ""), device_path)
        disks.detached(attachment.instance.id, volume_id)
        return attachment

    def delete(self: Any, volume_id: str) -> Any:
        """With what it held."""
        volume = delete_original(self, volume_id)
        disks.deleted(volume_id)
        return volume

    def create_of_stack(
        cls: Any, /, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        """A stack's volume is as the template says: encrypted, of its type, tagged (moto: its size and zone alone)."""
        told = cloudformation_json["Properties"]
        made = ec2_backends[account_id][region_name].create_volume(
            size=told.get("Size"),
            zone_name=told.get("AvailabilityZone"),
            encrypted=str(told.get("Encrypted")).lower() == "true",
            volume_type=told.get("VolumeType"),
        )
        made.add_tags({tag["Key"]: tag["Value"] for tag in told.get("Tags", [])})
        return made

    replace(Volume, create_from_cloudformation_json=cast("Any", classmethod(create_of_stack)))
    attach_original = replace(ElasticBlockStore, attach_volume=attach)["attach_volume"]
    own = replace(EBSBackend, detach_volume=detach, delete_volume=delete)
    detach_original, delete_original = own["detach_volume"], own["delete_volume"]
