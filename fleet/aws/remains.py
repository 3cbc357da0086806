"""What launches may leave beside instances, found by a tag: volumes that nothing is attached to, and launch templates.

A root volume goes with its instance, and a template when its group of launches is done: what is here is left by an end that
nobody saw.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.fleets import NO_TEMPLATE
from fleet.aws.session import Aws

NO_VOLUME = frozenset({"InvalidVolume.NotFound"})


@dataclass(frozen=True, slots=True)
class Remnant:
    """A volume or a launch template."""

    id: str
    tags: Mapping[str, str]
    born: datetime.datetime
    detail: str
    """Its size, or its name."""


class Remains:
    """Of one account and region. Every method raises AwsRefused where EC2 refuses or doesn't answer."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws

    def volumes(self, tag: str) -> list[Remnant]:
        """The volumes with this tag key that are attached to nothing."""
        with calling("ec2", f"volumes in {self.aws.region}"):
            pages = self.aws.ec2.get_paginator("describe_volumes").paginate(
                Filters=[{"Name": "tag-key", "Values": [tag]}, {"Name": "status", "Values": ["available"]}]
            )
            return [
                Remnant(
                    found["VolumeId"],
                    {pair["Key"]: pair["Value"] for pair in found.get("Tags", [])},
                    found["CreateTime"],
                    f"{found['Size']} GB",
                )
                for page in pages
                for found in page["Volumes"]
            ]

    def templates(self, tag: str) -> list[Remnant]:
        """The launch templates with this tag key."""
        with calling("ec2", f"launch templates in {self.aws.region}"):
            pages = self.aws.ec2.get_paginator("describe_launch_templates").paginate(
                Filters=[{"Name": "tag-key", "Values": [tag]}]
            )
            return [
                Remnant(
                    found["LaunchTemplateId"],
                    {pair["Key"]: pair["Value"] for pair in found.get("Tags", [])},
                    found["CreateTime"],
                    found["LaunchTemplateName"],
                )
                for page in pages
                for found in page["LaunchTemplates"]
            ]

    def delete_volume(self, volume: str) -> None:
        """Delete one; an absent one is success."""
        try:
            with calling("ec2", f"{volume} in {self.aws.region}"):
                self.aws.ec2.delete_volume(VolumeId=volume)
        except AwsRefused as refused:
            if refused.code not in NO_VOLUME:
                raise

    def delete_template(self, template: str) -> None:
        """Delete one; an absent one is success."""
        try:
            with calling("ec2", f"{template} in {self.aws.region}"):
                self.aws.ec2.delete_launch_template(LaunchTemplateId=template)
        except AwsRefused as refused:
            if refused.code not in NO_TEMPLATE:
                raise
