"""What a build leaves when it fails: nothing. Instances end, images and snapshots of the build go, whatever stopped it.

Found by the build's tag, which is on each of them from its first moment, so that also what was made by a call whose answer was
lost is found. Each step is on its own; what couldn't be removed is named, and `sweep` removes it at a later build.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

from fleet.aws.instances import LEAVING, Instances
from fleet.errors import FleetError
from worker_image.amis import Amis, OwnImage
from worker_image.machines import Machine, Machines
from worker_image.names import BuildNames
from worker_image.place import Place
from worker_image.publish import named_images

STALE = timedelta(hours=6)
"""Longer than any build takes: what a build of this age has left is nobody's any more."""
END_SECONDS = 300.0


@contextmanager
def nothing_left(
    place: Place, names: BuildNames, *, undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """A build: its instances are gone when this ends, and after an error its image and snapshots too.

    `undisturbed` keeps signals from a clean-up that is under way.
    """
    try:
        yield
    except BaseException:  # cancellation too: nobody else knows what this build has made
        with undisturbed():
            _tell(place, clear(place, names.id, images=True))
        raise
    with undisturbed():
        _tell(place, clear(place, names.id, images=False))


def clear(place: Place, build: str, *, images: bool) -> list[str]:
    """Remove what a build has made, its images and snapshots only if asked; what is left, with the reason."""
    machines, amis = Machines(place), Amis(place)
    left: list[str] = []
    steps: list[tuple[str, Callable[[], None]]] = [("instances", lambda: _end(place, machines, build))]
    if images:
        steps += [
            ("images", lambda: _remove_all(place, amis, build)),
            ("snapshots", lambda: amis.delete_snapshots(amis.snapshots_of(build))),
        ]
    for what, step in steps:
        try:
            step()
        except FleetError as error:
            left.append(f"{what} of the image build {build} in {place.region} may be left: {error}")
    return left


def sweep(place: Place, *, now: datetime | None = None) -> list[str]:
    """Remove what builds that were killed hours ago have left, published images never; a line for each."""
    oldest = (now or datetime.now(UTC)) - STALE
    machines, amis = Machines(place), Amis(place)
    done: list[str] = []
    stale = [one for one in machines.of_builds() if is_stale(one, oldest)]
    Instances(place.aws).terminate([one.id for one in stale])
    done += [f"terminated {one.id} of the build {one.build}" for one in stale]
    for image in stale_images(amis.own(), named_images(place), oldest):
        amis.remove(image)
        done.append(f"removed {image.id} of the build {image.build} ({image.role or 'no state'})")
    return done


def stale_images(images: Iterable[OwnImage], named: Collection[str], oldest: datetime) -> list[OwnImage]:
    """The images of builds that never came to publish them, older than any build."""
    return [
        image
        for image in images
        if image.build and image.role != "published" and image.id not in named and _moment(image.created) < oldest
    ]


def is_stale(machine: Machine, oldest: datetime) -> bool:
    """Whether a build's instance is older than any build."""
    return machine.launched is not None and machine.launched < oldest


def _end(place: Place, machines: Machines, build: str) -> None:
    """Terminate the build's instances and see them go."""
    patience = place.patience
    until = patience.clock() + END_SECONDS
    known = [machine for machine in place.made if machine.startswith("i-")]
    while True:
        found = dict.fromkeys([*known, *(one.id for one in machines.of_builds(build))])
        left = [machine for machine in found if machines.see(machine).state not in LEAVING]
        if not left or patience.clock() > until:
            return
        Instances(place.aws).terminate(left)
        patience.sleep(patience.every)


def _remove_all(place: Place, amis: Amis, build: str) -> None:
    """Remove the build's images, save one that fleets boot from: the pointer's move may count later than it was asked for."""
    known = [amis.get(image) for image in place.made if image.startswith("ami-")]
    found = {image.id: image for image in [*amis.own(build), *(image for image in known if image is not None)]}
    named = named_images(place) if found else set()
    for image in found.values():
        if image.id in named:
            place.say(f"{image.id} stays: a parameter names it")
        else:
            amis.remove(image)


def _moment(text: str) -> datetime:
    """EC2's time of an image; one that can't be read is young."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC)


def _tell(place: Place, left: list[str]) -> None:
    for line in left:
        place.say(line)
