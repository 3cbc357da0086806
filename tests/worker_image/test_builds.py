"""Whole builds on the local cloud's EC2, and the failure table: whatever goes wrong, one line says it and nothing is left.

The canary's Docker is a stand-in here; tests/docker builds with a real engine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fleet.aws.failures import AwsRefused
from fleet.errors import FleetError
from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.worker_image.conftest import World
from worker_image.amis import Amis, OwnImage
from worker_image.builder import BuilderInstance, find_base
from worker_image.canary import try_image
from worker_image.debris import nothing_left
from worker_image.failures import BaseMissing, BuildFailed, CanaryFailed, NotAllowed, PointerNotMoved
from worker_image.machines import NoMachine
from worker_image.names import STATE_TAG, BuildNames
from worker_image.publish import publish, read_pointer, unchanged
from worker_image.recipe import Recipe

Bake = Callable[[str], None]
GOOD = "echo good\n"


def names_of(world: World, recipe: Recipe | None = None) -> BuildNames:
    recipe = recipe or Recipe(gpu=False, instance_types=("c7i.xlarge", "m7i.xlarge"))
    return BuildNames(recipe=recipe, base=find_base(world.place, recipe).id, owner="tests", prefix="inspect-fleet")


def build_and_publish(world: World, names: BuildNames, *, canary: bool = True) -> OwnImage:
    """As the flow does it; without the `canary` where a row is about what comes after it."""
    base = find_base(world.place, names.recipe)
    with nothing_left(world.place, names):
        image = BuilderInstance(world.place).build(names, base)
        if canary:
            try_image(world.place, names, image, base.root_device)
        publish(world.place, "x86_64", image)
    return image


def test_a_build_ends_as_an_image_that_passed_and_is_named(world: World, bake: Bake) -> None:
    """Only the image and its encrypted snapshot stay. Its tags say contract, version, recipe; the same recipe isn't built again."""
    bake(GOOD)
    before, names = world.pointer(), names_of(world)
    image = build_and_publish(world, names)
    try:
        assert world.pointer() == image.id != before
        found = world.place.aws.ec2.describe_images(ImageIds=[image.id])["Images"][0]
        tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]}
        assert tags["inspect-fleet:contract"] == "1"
        assert tags["inspect-fleet:recipe"] == names.recipe_hash
        assert tags[STATE_TAG] == "published"
        snapshot = found["BlockDeviceMappings"][0]["Ebs"]
        assert snapshot["Encrypted"] is True
        assert sorted(world.left(names.id)) == sorted([image.id, snapshot["SnapshotId"]])
        assert "step 1 of 1: only" in world.said
        own = Amis(world.place).own()
        pointer = read_pointer(world.place, "x86_64")
        kept = unchanged(own, pointer, names.recipe_hash)
        assert kept is not None
        assert kept.id == image.id
        assert unchanged(own, pointer, names_of(world, Recipe(gpu=False, pull=("alpine",))).recipe_hash) is None
    finally:
        put_back(world, before)
        Amis(world.place).remove(image)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    error: type[FleetError]
    says: str
    bake: str = GOOD
    faults: tuple[Mapping[str, Any], ...] = ()
    launches: int = 1
    images: int = 0
    canary: bool = True


def refusing(operation: str, code: str, **more: Any) -> Mapping[str, Any]:
    return {"operation": operation, "code": code, "times": None, **more}


ROWS = [
    Row(
        "no instance anywhere",
        NoMachine,
        r"no builder instance in us-east-1: c7i\.xlarge: InsufficientInstanceCapacity",
        faults=(refusing("RunInstances", "InsufficientInstanceCapacity", status=500),),
        launches=2,
    ),
    Row(
        "instances may not be launched",
        NotAllowed,
        r"may not ec2:RunInstances",
        faults=(refusing("RunInstances", "UnauthorizedOperation", status=403),),
    ),
    Row(
        "the launch's answer is lost each time",
        NoMachine,
        "no builder instance",
        faults=({"operation": "RunInstances", "lost": True, "times": None},),
        launches=12,  # each of two types six times, by one client token: one instance each
    ),
    Row(
        "a step fails",
        BuildFailed,
        r"exit code 3.*build\.log.*Its last line: bake ended with exit code 3",
        bake="echo no space left; exit 3\n",
    ),
    Row(
        "the builder powers off without a word",
        BuildFailed,
        "stopped without a report",
        bake="trap '' TERM; shutdown -h now; sleep 30\n",
    ),
    Row(
        "no image may be made",
        NotAllowed,
        r"may not ec2:CreateImage",
        faults=(refusing("CreateImage", "UnauthorizedOperation", status=403),),
        images=1,
    ),
    Row(
        "the image's answer is lost",
        AwsRefused,
        "CreateImage",
        faults=({"operation": "CreateImage", "lost": True, "times": 1}, refusing("CreateImage", "InvalidRequest")),
        images=2,
    ),
    Row(
        "the canary finds the engine broken",
        CanaryFailed,
        r"rejected and removed: docker: .*the engine is broken.*canary\.json",
        bake="touch $FLEET_ROOT/broken\n",
        launches=2,
        images=1,
    ),
    Row(
        "no canary can be launched",
        NoMachine,
        "no canary instance",
        faults=(refusing("RunInstances", "InsufficientInstanceCapacity", status=500, match="canary"),),
        launches=3,
        images=1,
    ),
    Row(
        "the parameter may not be written",
        NotAllowed,
        r"may not ssm:PutParameter",
        faults=(refusing("PutParameter", "AccessDeniedException"),),
        images=1,
        canary=False,
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.fault("image-build-fails")
def test_a_build_that_fails_says_why_and_leaves_nothing(row: Row, world: World, bake: Bake, kit: FaultKit) -> None:
    bake(row.bake)
    names, before = names_of(world), world.pointer()
    world = dataclasses.replace(
        world, place=dataclasses.replace(world.place, patience=dataclasses.replace(world.place.patience, sleep=short))
    )
    kit.clear()
    for fault in row.faults:
        kit.fault(**fault)
    with pytest.raises(row.error, match=row.says) as caught:
        build_and_publish(world, names, canary=row.canary)
    assert "\n" not in str(caught.value)
    assert (kit.calls("RunInstances"), kit.calls("CreateImage")) == (row.launches, row.images)
    kit.clear()
    assert world.left(names.id) == []
    assert world.pointer() == before


def short(seconds: float) -> None:
    """Waits that stand for AWS's time are short here; the instances are real processes, so that some waiting is needed."""
    import time

    time.sleep(min(seconds, 0.1))


@pytest.mark.fault("image-build-fails")
def test_a_build_that_is_interrupted_leaves_nothing(
    world: World, bake: Bake, kit: FaultKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the image is pending: instance, image and snapshot go."""
    bake(GOOD)
    names = names_of(world)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Amis, "await_available", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_and_publish(world, names)
    assert world.left(names.id) == []


@pytest.mark.fault("image-build-fails")
def test_a_pointer_that_doesnt_move_is_told_and_the_image_goes(
    world: World, bake: Bake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSM takes a value of type aws:ec2:image and judges it later; without the right to describe images it stays the old one."""
    bake(GOOD)
    names, before = names_of(world), world.pointer()
    clock = iter(range(0, 10**6, 60))
    patience = dataclasses.replace(world.place.patience, clock=lambda: float(next(clock)), sleep=short)
    monkeypatch.setattr(type(world.place.aws.ssm), "put_parameter", lambda *_, **__: {}, raising=False)
    with nothing_left(world.place, names):
        kept = BuilderInstance(world.place).build(names, find_base(world.place, names.recipe))
    hurried = dataclasses.replace(world.place, patience=patience)
    with pytest.raises(PointerNotMoved, match="doesn't name"), nothing_left(hurried, names):
        publish(hurried, "x86_64", kept)
    assert world.left(names.id) == []
    assert world.pointer() == before


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            {"operation": "GetParameter", "code": "ParameterNotFound"},
            "Is this a region where Canonical publishes Ubuntu",
        ),
        ({"operation": "DescribeImages", "code": "InvalidAMIID.NotFound"}, r"InvalidAMIID\.NotFound"),
    ],
)
def test_a_region_without_a_base_image_is_told(
    world: World, kit: FaultKit, fault: Mapping[str, Any], says: str
) -> None:
    kit.fault(**fault)
    with pytest.raises(BaseMissing, match=says):
        find_base(world.place, Recipe())


def put_back(world: World, image: str) -> None:
    world.place.aws.ssm.put_parameter(
        Name=preset.IMAGE_PARAMETER, Value=image, Type="String", DataType="aws:ec2:image", Overwrite=True
    )
