"""A local cloud's EC2 for this room, whose instances find a `docker` that answers like a good engine; and a bake of two steps."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import pytest

from bootstrap.host import POOL_BASE, POOL_SIZE
from fleet.aws.objects import Objects
from fleet.aws.session import Aws
from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.fleet.local.conftest import Host, start_host
from worker_image import recipe
from worker_image.names import BUILD_TAG
from worker_image.place import Patience, Place

DOCKER = f"""\
#!/bin/sh
[ ! -e "$FLEET_ROOT/broken" ] || {{ echo "the engine is broken" >&2; exit 1; }}
case $1 in
info) echo '{json.dumps({"ServerVersion": "27.5.1", "DefaultAddressPools": [{"Base": POOL_BASE, "Size": POOL_SIZE}]})}' ;;
compose) echo 2.33.0 ;;
esac
"""


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    shims = tmp_path_factory.mktemp("shims")
    (shims / "docker").write_text(DOCKER)
    (shims / "docker").chmod(0o755)
    running = start_host(tmp_path_factory.mktemp("host"), PATH=f"{shims}{os.pathsep}{os.environ['PATH']}")
    yield running
    assert running.stop() == 0


@pytest.fixture
def kit(host: Host) -> Iterator[FaultKit]:
    found = FaultKit(host.aws)
    found.clear()
    yield found
    found.clear()


@dataclass
class World:
    """A place to build, and what is in it."""

    place: Place
    said: list[str] = field(default_factory=list)

    def pointer(self) -> str:
        return self.place.aws.ssm.get_parameter(Name=preset.IMAGE_PARAMETER)["Parameter"]["Value"]

    def left(self, build: str) -> list[str]:
        """Everything of a build that exists, but an instance that is on its way out."""
        ec2 = self.place.aws.ec2
        tagged = [{"Name": f"tag:{BUILD_TAG}", "Values": [build]}]
        reservations = ec2.describe_instances(Filters=tagged)["Reservations"]  # type: ignore[arg-type]
        return [
            *(
                each["InstanceId"]
                for one in reservations
                for each in one["Instances"]
                if each["State"]["Name"] not in {"shutting-down", "terminated"}
            ),
            *(image["ImageId"] for image in ec2.describe_images(Owners=["self"], Filters=tagged)["Images"]),  # type: ignore[arg-type]
            *(snap["SnapshotId"] for snap in ec2.describe_snapshots(OwnerIds=["self"], Filters=tagged)["Snapshots"]),  # type: ignore[arg-type]
        ]


@pytest.fixture
def world(host: Host, kit: FaultKit) -> World:
    session = boto3.Session(aws_access_key_id="person", aws_secret_access_key="person", region_name=preset.REGION)
    aws = Aws(preset.REGION, session=session)
    said: list[str] = []
    subnets = aws.ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    place = Place(
        aws=aws,
        objects=Objects(aws, preset.BUCKET),
        prefix="inspect-fleet",
        owner="tests",
        instance_profile=preset.PROFILE,
        subnets=(min(subnets, key=lambda subnet: subnet["AvailabilityZone"])["SubnetId"],),
        patience=Patience(every=0.1),
        say=said.append,
    )
    return World(place, said)


@pytest.fixture(autouse=True)
def endpoint(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", host.aws)


@pytest.fixture
def bake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Bakes become one step of this text, so that a build takes a second."""

    def with_step(text: str) -> None:
        folder = tmp_path / "bake"
        (folder / "steps").mkdir(parents=True)
        for name in ("drive.py", "plain_s3.py"):
            shutil.copy(recipe.BAKE / name, folder / name)
        (folder / "steps" / "10-only.sh").write_text(text)
        monkeypatch.setattr(recipe, "BAKE", folder)

    return with_step
