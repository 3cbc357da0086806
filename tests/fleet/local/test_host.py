"""The host's own life: ready, ended, killed, started again."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleet.local import preset
from fleet.local.metadata import TOKEN_HEADER
from fleet.local.processes import sweep
from fleet.local.scratch import TEMPORARY
from tests.fleet.local.conftest import Host, ask, launch_parameters, start_host, wait_until


@pytest.fixture
def start() -> Iterator[Callable[[Path], Host]]:
    """Starts hosts that a test may end in its own way."""
    hosts: list[Host] = []

    def start_one(folder: Path) -> Host:
        hosts.append(start_host(folder))
        return hosts[-1]

    yield start_one
    for host in hosts:
        host.process.kill()
        host.process.wait()
        if host.process.stdout is not None:
            host.process.stdout.close()
        sweep(host.folder)


STUBBORN = "trap '' TERM; touch up; setsid sleep 1000 & while :; do sleep 0.05; done"


def run_stubborn(host: Host) -> str:
    instance = str(host.client("ec2").run_instances(**launch_parameters(STUBBORN))["Instances"][0]["InstanceId"])
    wait_until((host.home_of(instance) / "up").exists)
    wait_until(lambda: len(host.running_of(instance)) >= 2)
    return instance


def test_an_ended_host_leaves_no_process_and_no_file(tmp_path: Path, start: Callable[[Path], Host]) -> None:
    """SIGTERM: also what ignores TERM is gone before the host is; the console's output stays."""
    host = start(tmp_path)
    instance = run_stubborn(host)
    assert host.stop() == 0
    assert host.running_of(instance) == set()
    assert [entry.name for entry in host.folder_of(instance).iterdir()] == ["console.log"]
    with pytest.raises(urllib.error.URLError):
        ask("GET", host.aws, {})


@pytest.mark.cloud
def test_a_host_that_comes_after_a_killed_one_ends_what_was_left(tmp_path: Path, start: Callable[[Path], Host]) -> None:
    """The emulator's memory is gone with the first, so its instances go before the second is ready."""
    killed = start(tmp_path)
    instance = run_stubborn(killed)
    killed.process.kill()
    killed.process.wait()
    assert killed.running_of(instance)
    again = start(tmp_path)
    assert again.running_of(instance) == set()
    assert again.client("ec2").describe_instances()["Reservations"] == []


def test_a_sweep_ends_what_a_killed_host_left(tmp_path: Path, start: Callable[[Path], Host]) -> None:
    """For `down`, when no host comes after."""
    killed = start(tmp_path)
    instance = run_stubborn(killed)
    killed.process.kill()
    killed.process.wait()
    temporary = Path((killed.folder_of(instance) / TEMPORARY).read_text())
    assert temporary.is_dir()
    assert sweep(tmp_path, grace=0.2) == set()
    assert killed.running_of(instance) == set()
    assert not temporary.exists()


@pytest.mark.cloud
def test_two_clouds_do_not_touch_each_other(tmp_path: Path, start: Callable[[Path], Host]) -> None:
    """One's end, and a sweep of its folder, leave the other's instances alone, also where one path begins like the other."""
    first, second = start(tmp_path / "cloud"), start(tmp_path / "cloud2")
    instance = run_stubborn(second)
    assert first.stop() == 0
    sweep(first.folder)
    assert second.running_of(instance)


def test_a_second_host_of_a_folder_says_that_it_is_taken(host: Host) -> None:
    """One line, exit code 1; the first is not disturbed."""
    second = subprocess.run(
        [sys.executable, "-m", "fleet.local.host", "--folder", str(host.folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert second.stderr == f"error: a local cloud runs in {host.folder} already\n"
    assert host.client("sts").get_caller_identity()["Account"] == preset.ACCOUNT


def test_the_account_holds_what_the_preset_names(host: Host, ec2: Any, ssm: Any) -> None:
    """Image and its pointer, role and profile, a group that lets nothing in, subnets, bucket."""
    assert ssm.get_parameter(Name=preset.IMAGE_PARAMETER)["Parameter"]["Value"] == preset.IMAGE
    images = ec2.describe_images(ImageIds=[image.id for image in preset.IMAGES])["Images"]
    assert {(image["ImageId"], image["State"], image["Architecture"]) for image in images} == {
        (image.id, image.state, image.architecture) for image in preset.IMAGES
    }
    profile = host.client("iam").get_instance_profile(InstanceProfileName=preset.PROFILE)["InstanceProfile"]
    assert [role["RoleName"] for role in profile["Roles"]] == [preset.ROLE]
    group = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": [preset.SECURITY_GROUP]}])
    assert group["SecurityGroups"][0]["IpPermissions"] == []
    subnets = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
    assert len(subnets) >= 2
    assert preset.BUCKET in {bucket["Name"] for bucket in host.client("s3").list_buckets()["Buckets"]}


def test_objects_are_written_once_where_that_is_asked_for(host: Host, unique: str) -> None:
    """PutObject with If-None-Match `*`: the second is refused with PreconditionFailed."""
    s3 = host.client("s3")
    s3.put_object(Bucket=preset.BUCKET, Key=unique, Body=b"first", IfNoneMatch="*")
    with pytest.raises(s3.exceptions.ClientError) as caught:
        s3.put_object(Bucket=preset.BUCKET, Key=unique, Body=b"second", IfNoneMatch="*")
    assert caught.value.response["Error"]["Code"] == "PreconditionFailed"
    assert s3.get_object(Bucket=preset.BUCKET, Key=unique)["Body"].read() == b"first"


def test_of_many_who_write_one_object_at_a_time_one_wins(host: Host, unique: str) -> None:
    """The condition and the write are one step, however many write at once; the others hear 412."""
    s3 = host.client("s3")

    def put(n: int) -> int:
        try:
            s3.put_object(Bucket=preset.BUCKET, Key=unique, Body=str(n).encode() * 200_000, IfNoneMatch="*")
        except s3.exceptions.ClientError as error:
            return 0 if error.response["Error"]["Code"] == "PreconditionFailed" else -1
        return n

    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            winners = [n for n in pool.map(put, range(1, 9)) if n]
        assert len(winners) == 1, "more than one won, or one was refused for another reason"
        stored = s3.get_object(Bucket=preset.BUCKET, Key=unique)["Body"].read()
        assert stored[:1] == str(winners[0]).encode()
        s3.delete_object(Bucket=preset.BUCKET, Key=unique)


def test_large_objects_are_not_kept_in_memory(host: Host, unique: str) -> None:
    """Objects above 64 KB lie in files: eighty of 1 MB cost a fraction of their size. The first twenty warm the allocator."""
    s3 = host.client("s3")

    def resident() -> float:
        pages = int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1])
        return pages * 4096 / 2**20

    def put(count: int, name: str) -> None:
        for n in range(count):
            s3.put_object(Bucket=preset.BUCKET, Key=f"{unique}/{name}/{n}", Body=bytes(2**20))

    put(20, "first")
    before = resident()
    put(80, "then")
    assert resident() - before < 40


def test_the_metadata_address_of_nobody_is_not_found(host: Host) -> None:
    """Only instances have a metadata service."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask("GET", f"{host.metadata}/i-nobody/latest/meta-data/", {TOKEN_HEADER: "x"})
    assert caught.value.code == 404
