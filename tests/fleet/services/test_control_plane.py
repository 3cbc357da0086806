"""A control plane on the local cloud: an instance like any other, whose data outlives it, reached from a laptop by a tunnel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet.account.stack import CONTROL_PLANE
from fleet.account.template import template_text
from fleet.aws.session import Aws
from fleet.cache import cache_folder
from fleet.cli.control_plane import give_order
from fleet.local import preset
from fleet.local.disks import VOLUMES
from fleet.local.faults import FaultKit
from fleet.local.template import templates
from fleet.services.control_plane import AUTH_PARAMETER, PORT, TAG, user_data
from tests.cloud import ELEMENTS, Finished, finish, until
from tests.fleet.local.conftest import Host, start_host
from tests.session_manager_plugin import install

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

PROFILE = "inspect-fleet-control-plane"


@dataclass
class Laptop:
    """A person's machine: AWS's credentials, the plugin, and no address of any Prefect server."""

    host: Host
    bin: Path

    def connect(self, *arguments: str, seconds: float = 600) -> Finished:
        return finish(self.start(*arguments), seconds=seconds)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))}
        theirs = {
            "AWS_ENDPOINT_URL": self.host.aws,
            "AWS_ACCESS_KEY_ID": "person",
            "AWS_SECRET_ACCESS_KEY": "person",
            "AWS_DEFAULT_REGION": preset.REGION,
            "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}",
        }
        return subprocess.Popen(
            [sys.executable, "-m", "fleet.cli.main", "connect", *arguments],
            env=kept | theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """An account with the control plane's role and volume, its order and its auth string."""
    host = start_host(tmp_path_factory.mktemp("host"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "person")
            patch.setenv("AWS_ENDPOINT_URL", host.aws)
            yield Laptop(host, install(tmp_path_factory.mktemp("bin")))
    finally:
        host.stop()


def prepare(host: Host) -> None:
    """What `fleet setup` does: the stack with the control plane's parts, then its order. The test launches the instance itself."""
    stacks = host.client("cloudformation")
    paused = [{"ParameterKey": "ControlPlane", "ParameterValue": "paused"}]
    stacks.create_change_set(
        StackName="inspect-fleet",
        ChangeSetName="plane",
        TemplateBody=template_text(),
        Parameters=paused,
        ChangeSetType="UPDATE",
    )
    stacks.get_waiter("change_set_create_complete").wait(StackName="inspect-fleet", ChangeSetName="plane")
    stacks.execute_change_set(StackName="inspect-fleet", ChangeSetName="plane")
    stacks.get_waiter("stack_update_complete").wait(StackName="inspect-fleet")
    stacks.describe_stack_resources(
        StackName="inspect-fleet"
    )  # moto makes what an update adds once somebody asks for it
    found = host.client("ec2").describe_volumes(Filters=[{"Name": "tag-key", "Values": [TAG]}])["Volumes"][0]
    assert found["Encrypted"]
    volume = found["VolumeId"]
    # A new database takes a server 15 s; this one has its tables, and knows nothing of any run.
    data = host.folder / VOLUMES / volume / "data" / "prefect"
    data.mkdir(parents=True)
    (data.parents[1] / "filesystem").write_text("ext4\n")
    templates(cache_folder()).copy_to(data / "prefect.db")

    outputs = {"Bucket": preset.BUCKET, "Prefix": "inspect-fleet", CONTROL_PLANE: volume}
    account = {"region": preset.REGION, "bucket": preset.BUCKET, "instance_profile": preset.PROFILE}
    assert give_order(Aws(preset.REGION), outputs, account)


def launch(host: Host) -> str:
    launched = host.client("ec2").run_instances(
        ImageId=preset.IMAGE,
        InstanceType="t3.small",
        MinCount=1,
        MaxCount=1,
        IamInstanceProfile={"Name": PROFILE},
        Placement={"AvailabilityZone": f"{preset.REGION}a"},
        MetadataOptions={"HttpTokens": "required"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": TAG, "Value": "inspect-fleet"}]}],
        UserData=user_data(preset.REGION),
    )
    return str(launched["Instances"][0]["InstanceId"])


def console(host: Host, instance: str) -> str:
    return (host.folder_of(instance) / "console.log").read_text()


def api(host: Host, instance: str, path: str, auth: str | None) -> Any:
    """The server's answer by its private address, as workers have it; its status where it refuses."""
    address = host.imds(instance, "meta-data/local-ipv4")
    told = (auth.split(":", 1)[0], auth.split(":", 1)[1]) if auth else None
    with httpx.Client(auth=told, trust_env=False, timeout=30) as client:
        answer = client.post(f"http://{address}:{PORT}/api/{path}", json={})
        return answer.json() if answer.is_success else answer.status_code


@pytest.mark.long
@pytest.mark.fault("control-plane-dies")
def test_a_laptops_run_finishes_on_it_and_its_history_outlives_the_instance(laptop: Laptop, tmp_path: Path) -> None:
    """The tunnel is the laptop's only way to Prefect; the control plane launches two more instances, by its own role.

    Without the auth string, or with another one, the server answers nothing. Killed and booted again on its volume, the next
    instance still knows the run.
    """
    host = laptop.host
    prepare(host)
    auth = str(host.client("ssm").get_parameter(Name=AUTH_PARAMETER, WithDecryption=True)["Parameter"]["Value"])
    first = launch(host)
    run = laptop.connect(
        *("--", sys.executable, "-m", "fleet.cli.main", "run", *ELEMENTS, "--log-dir", str(tmp_path), "--json"),
        *("--ec2-arg", "max_workers=2", "--ec2-arg", "concurrency_per_worker=2"),
        *("--ec2-arg", "auto_confirm=true", "--ec2-arg", "idle_seconds=5", "--eval-arg", "limit=8"),
    )
    assert run.code == 0, run.err[-3000:] + console(host, first)[-6000:]
    (report,) = json.loads(run.out)["evals"]
    assert (report["status"], report["samples_done"]) == ("success", report["samples"])
    launched = [
        instance
        for group in host.client("ec2").describe_instances()["Reservations"]
        for instance in group["Instances"]
        if instance["InstanceId"] != first
    ]
    assert len(launched) == 2
    assert api(host, first, "flow_runs/filter", None) == 401
    assert api(host, first, "flow_runs/filter", "fleet:guessed") == 401
    known = states(api(host, first, "flow_runs/filter", auth))
    assert set(known.values()) == {"COMPLETED"}
    assert auth not in console(host, first)

    FaultKit(host.aws).crash(first)
    second = launch(host)
    again = until("the next one answers", lambda: answered(host, second, auth), seconds=300)
    assert states(again) == known
    host.client("ec2").terminate_instances(InstanceIds=[second])


def states(runs: Any) -> dict[str, str]:
    """Of the runs that somebody started: schedules make others by themselves."""
    return {one["id"]: one["state"]["type"] for one in runs if not one["auto_scheduled"]}


def answered(host: Host, instance: str, auth: str) -> Any:
    try:
        return api(host, instance, "flow_runs/filter", auth)
    except (httpx.HTTPError, KeyError):
        return None
