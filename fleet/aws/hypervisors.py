"""Which instance types see their tags change while they run.

"For instances built on the Nitro System, when you add, edit or remove a tag, the instance metadata is updated while the instance
is running. For all other instances" it has to be stopped and started (EC2's user guide, on tags in instance metadata).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleet.aws.failures import AwsRefused, calling

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType

    from fleet.aws.session import Aws

OLD = "xen"

log = logging.getLogger(__name__)


class Hypervisors:
    """What EC2 said of each type, asked once. Safe between threads."""

    def __init__(self) -> None:
        # Held while EC2 is asked: launches of one moment need one answer.
        self._lock = threading.Lock()
        self._known: dict[tuple[Aws, str], bool] = {}

    def tags_are_live(self, aws: Aws, instance_types: Sequence[str]) -> bool:
        """Whether all of these see tags that are written after their launch. False where EC2 can't be asked."""
        with self._lock:
            wanted: list[InstanceTypeType] = [
                kind  # type: ignore[misc]  # EC2 knows newer ones
                for kind in dict.fromkeys(instance_types)
                if (aws, kind) not in self._known
            ]
            if wanted:
                try:
                    with calling("ec2", f"{', '.join(wanted)} in {aws.region}"):
                        answer = aws.ec2.describe_instance_types(InstanceTypes=wanted)["InstanceTypes"]
                except AwsRefused as refused:
                    log.warning("instances are launched one by one: their hypervisor isn't known: %s", refused)
                    return False
                # Metal has no hypervisor, and is built on Nitro.
                self._known |= {(aws, found["InstanceType"]): found.get("Hypervisor") != OLD for found in answer}
            return all(self._known.get((aws, kind), False) for kind in instance_types)
