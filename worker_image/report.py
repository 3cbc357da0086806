"""What became of a build, and the list of images, as data that a flow returns and a command prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from worker_image.amis import OwnImage
from worker_image.publish import Pointer


class ImageRow(BaseModel):
    """One image, for a person's table and for `--json`."""

    model_config = ConfigDict(frozen=True)

    id: str
    version: str
    contract: str
    architecture: str
    created: str
    state: str
    """EC2's own where the image can't be launched; else ours: published, candidate, rejected."""
    recipe: str
    pointer: str = ""
    """The parameter that names it."""


class BuildReport(BaseModel):
    """What became of a build."""

    model_config = ConfigDict(frozen=True)

    outcome: Literal["built", "unchanged"]
    image: str
    architecture: str
    region: str
    recipe: str
    base: str
    parameter: str
    previous: str = ""
    """The image that the parameter named before; empty: none."""
    builder: str = ""
    checks: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Older images that were removed."""
    minutes: float = 0.0

    def line(self) -> str:
        """One line for a person."""
        if self.outcome == "unchanged":
            return (
                f"{self.image} is up to date: {self.parameter} in {self.region} names it, and neither recipe nor base image has "
                "changed (--force builds all the same)"
            )
        gone = f"; removed {', '.join(self.removed)}" if self.removed else ""
        before = f", before {self.previous}" if self.previous else ""
        return (
            f"{self.image} passed its {len(self.checks)} checks and is published: {self.parameter} in {self.region} names it"
            f"{before} ({self.minutes:.0f} min by {self.builder}){gone}"
        )

    def markdown(self) -> str:
        """For the flow run's page."""
        rows = [
            ("image", self.image),
            ("architecture", self.architecture),
            ("region", self.region),
            ("named by", self.parameter),
            ("before", self.previous or "none"),
            ("base image", self.base),
            ("recipe", self.recipe),
            ("built by", self.builder or "an earlier build"),
            ("removed", ", ".join(self.removed) or "none"),
        ]
        lines = [
            f"## Worker image: {self.outcome}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {k} | `{v}` |" for k, v in rows),
            "",
        ]
        return "\n".join([*lines, *(f"- {check}" for check in self.checks), ""])


def rows(images: Sequence[OwnImage], pointers: Iterable[Pointer]) -> list[ImageRow]:
    """The table of images, newest first."""
    named = {pointer.image: pointer.parameter for pointer in pointers if pointer.image}
    return [
        ImageRow(
            id=image.id,
            version=image.version,
            contract=image.contract,
            architecture=image.architecture,
            created=image.created,
            state=image.role or image.state if image.state == "available" else image.state,
            recipe=image.recipe,
            pointer=named.get(image.id, ""),
        )
        for image in images
    ]
