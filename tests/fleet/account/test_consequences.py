"""A change that ends the control plane says so, with what becomes of evals and of the history, before anybody says yes."""

from __future__ import annotations

from typing import Literal

import pytest

from fleet.account.consequences import GROUP, REPLACES, TEMPLATE, VOLUME, consequences
from fleet.account.rendering import Rendering
from fleet.account.stack import ResourceChange

AT_ONCE = "The control plane is replaced at once"
ENDS = "The control plane's instance ends"
STAYS = "The history of runs stays"
EMPTY = "with an empty history"


def change(
    resource: str, *properties: str, action: Literal["Add", "Modify", "Remove"] = "Modify", replaced: bool = False
) -> ResourceChange:
    return ResourceChange(action, resource, "AWS::X::Y", properties=properties, replaced=replaced)


@pytest.mark.parametrize(
    ("now", "wanted", "changes", "told"),
    [
        ("running", "running", [change(TEMPLATE, "LaunchTemplateData")], [AT_ONCE, STAYS]),
        ("running", "running", [change(GROUP, "LaunchTemplate")], [AT_ONCE, STAYS]),
        ("running", "running", [change(GROUP, "VPCZoneIdentifier")], [AT_ONCE, STAYS]),
        ("running", "running", [change(GROUP, "Tags")], []),
        ("running", "running", [change("WorkerRole", "Policies")], []),
        ("running", "running", [change(VOLUME, "Size")], []),
        (
            "running",
            "running",
            [change(GROUP, "AvailabilityZones"), change(VOLUME, "AvailabilityZone", replaced=True)],
            [AT_ONCE, EMPTY],
        ),
        ("running", "paused", [change(GROUP, "DesiredCapacity")], [ENDS, STAYS]),
        ("running", "no", [change(GROUP, action="Remove"), change(VOLUME, action="Remove")], [ENDS, EMPTY]),
        ("paused", "no", [change(VOLUME, action="Remove")], [EMPTY]),
        ("paused", "running", [change(TEMPLATE, "LaunchTemplateData"), change(GROUP, "DesiredCapacity")], []),
        ("no", "running", [change(TEMPLATE, action="Add"), change(VOLUME, action="Add")], []),
    ],
    ids=[
        "another script",
        "another version",
        "another subnet",
        "other tags",
        "nothing of it",
        "a larger volume",
        "another zone",
        "paused",
        "removed",
        "removed while paused",
        "brought back",
        "the first one",
    ],
)
def test_what_happens_to_the_control_plane_is_said(
    now: str, wanted: str, changes: list[ResourceChange], told: list[str]
) -> None:
    said = consequences({"ControlPlane": now}, {"ControlPlane": wanted}, changes)
    assert [words in line for words, line in zip(told, said, strict=True)] == [True] * len(told)


def test_what_breaks_off_is_said_with_the_way_to_spare_it() -> None:
    (line, _) = consequences({"ControlPlane": "running"}, {"ControlPlane": "running"}, [change(TEMPLATE)])
    assert "Evals that are on their way break off" in line
    assert "the same request, started again, goes on" in line


def test_the_template_has_what_the_words_are_about() -> None:
    """The volume outlives the stack and its own replacement, and the group replaces its instance instead of waiting."""
    resources = Rendering("123456789012", "us-east-1").template["Resources"]
    assert (resources[VOLUME]["DeletionPolicy"], resources[VOLUME]["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert resources[GROUP]["UpdatePolicy"] == {
        "AutoScalingRollingUpdate": {"MinInstancesInService": 0, "MaxBatchSize": 1}
    }
    assert resources[GROUP]["Properties"].keys() >= REPLACES
    assert resources[TEMPLATE]["Type"] == "AWS::EC2::LaunchTemplate"
