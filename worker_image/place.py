"""Where images are built: one account and region, with what every part of a build needs of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fleet.aws.failures import AwsRefused, Denied
from fleet.aws.objects import Objects
from fleet.aws.session import Aws

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """Time, as a build waits: handed in, so that tests wait for nothing."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    every: float = 5.0
    """Seconds between two looks."""


@dataclass(frozen=True)
class Place:
    """The AWS side of a build."""

    aws: Aws
    objects: Objects
    prefix: str
    """Of every key in the bucket."""
    owner: str
    """Who builds, for tags."""
    instance_profile: str
    subnets: tuple[str, ...] = ()
    """Empty: the default VPC's."""
    security_groups: tuple[str, ...] = ()
    """Empty: the workers' own, which is made where it isn't there."""
    image_parameter: str = "/inspect-fleet/worker-image"
    patience: Patience = field(default_factory=Patience)
    made: list[str] = field(default_factory=list)
    """Ids of what this build has made: EC2 shows a thing by its tags some seconds after it shows it by its id."""
    say: Callable[[str], None] = log.info
    """Who is told of progress, a line at a time."""

    @property
    def region(self) -> str:
        """The region."""
        return self.aws.region


def denied_words(refusal: AwsRefused) -> tuple[str, str] | None:
    """(the call, AWS's words) where the refusal is a missing permission; else None."""
    if not isinstance(refusal, Denied):
        return None
    return f"{refusal.service}:{refusal.operation}", refusal.why or refusal.code
