"""What a change of the stack does to a control plane, in words: a list of resources doesn't say that evals break off.

Decides only; a change is shown with it before anybody is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.account.stack import ResourceChange

GROUP = "ControlPlaneGroup"
TEMPLATE = "ControlPlaneTemplate"
VOLUME = "ControlPlaneVolume"

REPLACES = frozenset({"AvailabilityZones", "LaunchTemplate", "VPCZoneIdentifier"})
"""Properties of an Auto Scaling group whose change replaces its instances (CloudFormation User Guide, UpdatePolicy)."""

BREAKS_OFF = (
    "Evals that are on their way break off: their instances lose the Prefect API and end. Results so far stay in the bucket, and "
    "the same request, started again, goes on from there. To spare them, answer no and come back when nothing runs"
)


def consequences(
    now: Mapping[str, str], wanted: Mapping[str, str], changes: Sequence[ResourceChange]
) -> tuple[str, ...]:
    """A line for each thing that a person should know before the yes. `now`, `wanted`: the stack's parameters."""
    changed = {one.resource: one for one in changes}
    runs, goes_on = now.get("ControlPlane") == "running", wanted.get("ControlPlane") == "running"
    said = []
    if runs and not goes_on:
        said.append(f"The control plane's instance ends. {BREAKS_OFF}")
    elif runs and _replaces(changed):
        said.append(
            "The control plane is replaced at once: its instance ends, and the next one serves some minutes later, at another "
            f"private address. {BREAKS_OFF}"
        )
    if _leaves_volume(changed):
        said.append(
            "The volume with the history of runs leaves the stack. It is kept, and billed, until somebody deletes it; the next "
            "control plane begins on a new one, with an empty history"
        )
    elif said:
        said.append("The history of runs stays: it is on a volume of its own, from which the next instance goes on")
    return tuple(said)


def _replaces(changed: Mapping[str, ResourceChange]) -> bool:
    group = changed.get(GROUP)
    return TEMPLATE in changed or (group is not None and (group.replaced or not REPLACES.isdisjoint(group.properties)))


def _leaves_volume(changed: Mapping[str, ResourceChange]) -> bool:
    volume = changed.get(VOLUME)
    return volume is not None and (
        volume.replaced or volume.action == "Remove" or "AvailabilityZone" in volume.properties
    )
