"""What a worker image is made of: the recipe, and the bundle of everything that a machine needs to become one.

The bundle is deterministic: the same inputs give the same bytes. Its hash and the base image make the recipe's hash, a tag of the
image, so that an image which would come out the same isn't built again.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fleet.aws.images import CONTRACT

Architecture = Literal["x86_64", "arm64"]

BAKE = Path(__file__).parent / "bake"
PYTHON = "3.11"
"""Minor version of `fleet-python`: the one that the project's own tests run with."""
RELEASE = "24.04"
CANONICAL_NAME: dict[Architecture, str] = {"x86_64": "amd64", "arm64": "arm64"}
BUILD_TYPES: dict[Architecture, tuple[str, ...]] = {
    "x86_64": ("c7i.xlarge", "c6i.xlarge", "m7i.xlarge", "m6i.xlarge"),
    "arm64": ("c7g.xlarge", "c6g.xlarge", "m7g.xlarge", "m6g.xlarge"),
}
"""Tried in order; 4 processors, since unpacking and compiling byte code are most of the time."""
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold."""


class Recipe(BaseModel):
    """What is asked for. Frozen; its fields, the files of `bake/` and the base image are all that decides the image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    architecture: Architecture = "x86_64"
    gpu: bool | None = None
    """NVIDIA's driver and container toolkit. None: yes on x86_64, where nearly all of EC2's NVIDIA machines are, so that a
    fallback type may have a GPU; no on arm64, where it would be dead weight of some gigabytes."""
    pull: tuple[str, ...] = ()
    """Container images that are in the image already when an instance boots."""
    python: str = PYTHON
    contract: int = CONTRACT
    volume_gb: int = Field(default=30, ge=10)
    """Of the builder's root volume, and so of the image's snapshot: no instance can have a smaller one."""
    instance_types: tuple[str, ...] = ()
    """Types that build and try it, in order; empty: BUILD_TYPES. They don't change what comes out."""

    @field_validator("pull")
    @classmethod
    def _one_word_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in value if not name or name.startswith("-") or name != "".join(name.split())]:
            raise ValueError(f"{wrong[0]!r} is no name of a container image")
        return value

    @property
    def with_gpu(self) -> bool:
        """Whether NVIDIA's software is baked."""
        return self.architecture == "x86_64" if self.gpu is None else self.gpu

    @property
    def types(self) -> tuple[str, ...]:
        """The types that build and try it."""
        return self.instance_types or BUILD_TYPES[self.architecture]

    @property
    def base_parameter(self) -> str:
        """Canonical's public parameter that names its newest server image of the release."""
        arch = CANONICAL_NAME[self.architecture]
        return f"/aws/service/canonical/ubuntu/server/{RELEASE}/stable/current/{arch}/hvm/ebs-gp3/ami-id"

    @cached_property
    def bundle(self) -> bytes:
        """A zip of `bake/` with `recipe.json`; what a builder fetches."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, content in sorted(_inputs().items()):
                _add(archive, name, content)
            _add(archive, "recipe.json", self.document())
        return packed.getvalue()

    @property
    def bundle_sha256(self) -> str:
        """The bundle's name as an artifact."""
        return hashlib.sha256(self.bundle).hexdigest()

    def hash(self, base: str) -> str:
        """Of all that decides the image built on the base image `base`: 16 hexadecimal digits."""
        inputs = hashlib.sha256()
        for name, content in sorted(_inputs().items()):
            inputs.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\0".encode())
        inputs.update(self.document())
        inputs.update(f"{base}\0{self.volume_gb}".encode())
        return inputs.hexdigest()[:16]

    def document(self) -> bytes:
        """What the machine is told, and says of itself in /etc/inspect-fleet/image.json."""
        told = {
            "contract": self.contract,
            "architecture": self.architecture,
            "gpu": self.with_gpu,
            "pull": list(self.pull),
            "python": self.python,
            "release": RELEASE,
        }
        return (json.dumps(told, indent=2, sort_keys=True) + "\n").encode()


def _inputs() -> dict[str, bytes]:
    """The files of `bake/`, by their path in the bundle."""
    found = sorted(path for path in BAKE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(BAKE).as_posix(): path.read_bytes() for path in found}


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, date_time=LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3  # Unix, wherever it is packed
    member.external_attr = 0o100644 << 16  # steps are run by bash, files installed with their own mode
    archive.writestr(member, content)
