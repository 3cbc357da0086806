"""What an image build calls what it makes, so that each is found again: by whoever waits, prunes, or cleans up after a crash."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from fleet import __version__
from fleet.aws.images import CONTRACT_TAG, VERSION_TAG
from worker_image.recipe import Architecture, Recipe

BUILD_TAG = "inspect-fleet:image-build"
"""On everything that a build creates, from its first moment: instances, volumes, image, snapshots. The build's id."""
RECIPE_TAG = "inspect-fleet:recipe"
ARCHITECTURE_TAG = "inspect-fleet:architecture"
STATE_TAG = "inspect-fleet:image"
"""candidate, published or rejected."""
REASON_TAG = "inspect-fleet:reason"
"""Why an image is rejected."""
OWNER_TAG = "LaunchedBy"
LONGEST_TAG = 256
PIPELINE = "inspect-fleet-worker"
"""Begins the name of the account's Image Builder pipelines: one for each architecture."""


@dataclass(frozen=True, slots=True)
class BuildNames:
    """The names of one build."""

    recipe: Recipe
    base: str
    """The base image's id."""
    owner: str
    prefix: str
    """The deployment's prefix in the bucket."""
    id: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid4().hex[:6]}")

    @property
    def recipe_hash(self) -> str:
        """Of all that decides the image."""
        return self.recipe.hash(self.base)

    @property
    def image_name(self) -> str:
        """Unique in the account, EC2's rule."""
        return f"inspect-fleet-worker-{self.recipe.architecture.replace('_', '-')}-{self.id}"

    @property
    def folder(self) -> str:
        """Key of the folder for logs and reports. Under `runs/`, where a worker's role may write, and from where it expires."""
        return f"{self.prefix}/runs/image-{self.id}"

    def machine_tags(self, role: str) -> dict[str, str]:
        """Of a builder or canary and its volume."""
        return {BUILD_TAG: self.id, OWNER_TAG: self.owner[:LONGEST_TAG], "Name": f"inspect-fleet image {role}"}

    def image_tags(self) -> dict[str, str]:
        """Of the image and its snapshots until it is published."""
        return {
            BUILD_TAG: self.id,
            OWNER_TAG: self.owner[:LONGEST_TAG],
            "Name": self.image_name,
            CONTRACT_TAG: str(self.recipe.contract),
            VERSION_TAG: __version__,
            RECIPE_TAG: self.recipe_hash,
            ARCHITECTURE_TAG: self.recipe.architecture,
            STATE_TAG: "candidate",
        }


def pipeline_name(architecture: Architecture) -> str:
    """The pipeline's name, as its ARN has it: small letters, digits and hyphens."""
    return f"{PIPELINE}-{architecture.replace('_', '-')}"
