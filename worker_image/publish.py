"""Making a new image the one that fleets boot from, and removing old ones.

The parameter moves last, and only after the canary: whatever fails before leaves fleets with the image they had. SSM keeps the
parameter's earlier values (its history), and the images behind the last ones stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.images import UNKNOWN_PARAMETER, pointer_for
from worker_image.amis import Amis, OwnImage
from worker_image.failures import NotAllowed, PointerNotMoved
from worker_image.names import STATE_TAG
from worker_image.place import Place, denied_words
from worker_image.recipe import Architecture

KEEP = 3
"""Images of an architecture that stay: the newest one and two to go back to."""
POINTER_SECONDS = 120.0
"""SSM checks a value of type aws:ec2:image on its own time before it counts; seconds, as a rule."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A parameter and the image it names."""

    parameter: str
    image: str
    """Empty: there is no such parameter yet."""


def read_pointer(place: Place, architecture: Architecture) -> Pointer:
    """What fleets of this architecture boot from. AwsRefused."""
    parameter = pointer_for(place.image_parameter, architecture)
    try:
        with calling("ssm", f"{parameter} in {place.region}"):
            found = place.aws.ssm.get_parameter(Name=parameter)["Parameter"]["Value"].strip()
    except AwsRefused as refusal:
        if refusal.code in UNKNOWN_PARAMETER:
            return Pointer(parameter, "")
        raise
    return Pointer(parameter, found)


def publish(place: Place, architecture: Architecture, image: OwnImage) -> Pointer:
    """Let the parameter name the image; what it named before. NotAllowed, PointerNotMoved, AwsRefused."""
    before = read_pointer(place, architecture)
    # First, so that no published image is ever without the word: an image that carries it and isn't named is one of the last.
    Amis(place).tag(image, {STATE_TAG: "published"})
    try:
        with calling("ssm", f"{before.parameter} in {place.region}"):
            place.aws.ssm.put_parameter(
                Name=before.parameter,
                Description="The worker image that fleets boot from (fleet image build)",
                Value=image.id,
                Type="String",
                DataType="aws:ec2:image",
                Overwrite=True,
            )
    except AwsRefused as refusal:
        if words := denied_words(refusal):
            raise NotAllowed(what=words[0], why=words[1]) from refusal
        raise
    _await_move(place, architecture, image.id)
    return before


def named_images(place: Place) -> set[str]:
    """The images that a pointer names, of every architecture. AwsRefused."""
    return {read_pointer(place, each).image for each in _ARCHITECTURES} - {""}


def _await_move(place: Place, architecture: Architecture, image: str) -> None:
    """Return when the pointer names the image. PointerNotMoved."""
    patience = place.patience
    until = patience.clock() + POINTER_SECONDS
    while (pointer := read_pointer(place, architecture)).image != image:
        if patience.clock() >= until:
            raise PointerNotMoved(parameter=pointer.parameter, image=image, seconds=POINTER_SECONDS)
        patience.sleep(min(patience.every, 2.0))


def to_drop(images: Iterable[OwnImage], pointed: Collection[str], used: Collection[str]) -> list[OwnImage]:
    """Of one architecture's published images, those to remove: all but the newest KEEP, and none that is named or in use."""
    published = sorted(
        (image for image in images if image.role == "published" and image.build),
        key=lambda image: (image.created, image.id),
        reverse=True,
    )
    return [image for image in published[KEEP:] if image.id not in pointed and image.id not in used]


def prune(place: Place, architecture: Architecture) -> list[OwnImage]:
    """Remove the images that are too old to go back to; which those were. AwsRefused: nothing more is removed."""
    amis = Amis(place)
    ours = [image for image in amis.own() if image.architecture == architecture]
    pointed = named_images(place)
    maybe = to_drop(ours, pointed, used=())
    dropped = to_drop(ours, pointed, used=amis.used_by_instances(image.id for image in maybe))
    for image in dropped:
        amis.remove(image)
        place.say(f"removed the image {image.id} of {image.created}")
    return dropped


def unchanged(images: Sequence[OwnImage], pointer: Pointer, recipe_hash: str) -> OwnImage | None:
    """The published image that the pointer names, if it was made of this recipe."""
    return next(
        (
            image
            for image in images
            if image.id == pointer.image and image.state == "available" and image.recipe == recipe_hash
        ),
        None,
    )


_ARCHITECTURES: tuple[Architecture, ...] = ("x86_64", "arm64")
