"""Instances as local processes: they boot, switch themselves off, are ended, and leave nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.local import preset
from fleet.local.faults import ControlRefused, FaultKit
from fleet.local.power import FIFO
from tests.fleet.local.conftest import PATIENCE, Host, describe, launch_parameters, state_of, wait_until

Launch = Callable[..., str]


def console_of(ec2: Any, instance: str) -> str:
    return str(ec2.get_console_output(InstanceId=instance).get("Output", ""))


def started(home: Path, name: str = "up") -> None:
    wait_until((home / name).exists)


def test_user_data_runs_on_the_instance_it_was_given_to(host: Host, launch: Launch) -> None:
    """The very script of the launch, once, in a home folder of its own."""
    instance = launch('echo "$AWS_EC2_METADATA_SERVICE_ENDPOINT" > up.part; pwd >> up.part; mv up.part up')
    home = host.home_of(instance)
    started(home)
    assert (home / "up").read_text().split() == [f"{host.metadata}/{instance}", str(home)]


def test_an_instance_sees_nothing_of_the_persons_environment(tmp_path: Path) -> None:
    """No AWS keys, no Python path, no Prefect profile: what is there is named by AWS's services and by our contract."""
    from tests.fleet.local.conftest import start_host

    docker = tmp_path / "docker"
    (docker / "cli-plugins").mkdir(parents=True)
    (docker / "config.json").write_text('{"auths": "person"}')
    own = start_host(
        tmp_path / "host",
        DOCKER_CONFIG=str(docker),
        AWS_ACCESS_KEY_ID="AKIAPERSON",
        AWS_SECRET_ACCESS_KEY="person",
        AWS_PROFILE="person",
        PYTHONPATH="/persons/modules",
        PREFECT_API_URL="http://127.0.0.1:1/person",
        OPENAI_API_KEY="person",
        UV_INDEX_STRATEGY="first-index",
        FLEET_CACHE_DIR="/shared/cache",
    )
    try:
        script = (
            "env > up.part; fleet-python -c 'import sys; print(sys.executable, sys.prefix)' > python; mv up.part up"
        )
        answer = own.client("ec2").run_instances(**launch_parameters(script))
        home = own.home_of(answer["Instances"][0]["InstanceId"])
        started(home)
        found = dict(line.split("=", 1) for line in (home / "up").read_text().splitlines() if "=" in line)
        assert {name for name in found if name.startswith("AWS")} == {
            "AWS_ENDPOINT_URL",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        }
        assert not found.keys() & {"PYTHONPATH", "PREFECT_API_URL", "OPENAI_API_KEY", "DOCKER_CONFIG"}
        assert "person" not in (home / "up").read_text().replace(str(tmp_path), "")
        assert found["FLEET_CACHE_DIR"] == "/shared/cache"
        assert found["UV_INDEX_STRATEGY"] == "first-index"
        assert found["HOME"] == str(home)
        assert len(found["TMPDIR"]) < 40
        assert [path.name for path in (home / ".docker").iterdir()] == ["cli-plugins"], "Docker's plugins, no login"
        assert (home / "python").read_text().split() == [sys.executable, sys.prefix]
    finally:
        assert own.stop() == 0


def test_boto3_on_an_instance_finds_the_roles_credentials(host: Host, launch: Launch) -> None:
    """Endpoint and metadata address are all it needs: no key is in its environment."""
    code = "import boto3; print(boto3.client('sts', region_name='us-east-1').get_caller_identity()['Arn'])"
    instance = launch(f'fleet-python -c "{code}" > up.part 2>&1; mv up.part up')
    started(host.home_of(instance))
    arn = f"arn:aws:sts::{preset.ACCOUNT}:assumed-role/{preset.ROLE}/{instance}"
    assert (host.home_of(instance) / "up").read_text().strip() == arn


def test_an_instance_stays_on_when_its_script_ends(host: Host, ec2: Any, launch: Launch) -> None:
    """As on EC2: only a shutdown ends it. Its console says how the script ended."""
    instance = launch("echo hello; exit 3")
    wait_until(lambda: "user data ended with status 3" in console_of(ec2, instance))
    assert "hello" in console_of(ec2, instance)
    assert state_of(ec2, instance) == "running"


@pytest.mark.parametrize("command", ["shutdown -h now", "shutdown -P +0", "poweroff", "halt"])
def test_an_instance_switches_itself_off(host: Host, ec2: Any, launch: Launch, command: str) -> None:
    """With shutdown behaviour `terminate`; the reason says who did it."""
    instance = launch(f"{command}; sleep 1000")
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert host.running_of(instance) == set()
    assert describe(ec2, instance)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_an_instance_that_was_launched_to_stop_stops(ec2: Any, launch: Launch) -> None:
    """EC2's default: a shutdown from within stops the instance, and it must still be terminated."""
    instance = launch("shutdown -h now", InstanceInitiatedShutdownBehavior="stop")
    wait_until(lambda: state_of(ec2, instance) == "stopped")


def test_a_shutdown_is_a_timer(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """`shutdown -h +N` returns at once and ends the instance in N minutes."""
    instance = launch("shutdown -h +5; touch up; until [ -e go ]; do sleep 0.05; done; shutdown -h +5; sleep 1000")
    started(host.home_of(instance))
    assert state_of(ec2, instance) == "running"
    kit.timing(minute=0.1)
    (host.home_of(instance) / "go").touch()
    wait_until(lambda: state_of(ec2, instance) == "terminated")


def test_a_shutdown_can_be_cancelled(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """`shutdown -c`; a new time takes the place of the old one as well."""
    kit.timing(minute=0.05)
    # As the shims say it, in one write: bash's own printf makes one a line, and a timer might end between two.
    said = r"shutdown -h +1\nshutdown -h +60000\nshutdown -h +2\nshutdown -c\n"
    instance = launch(f"env printf '{said}' > ../{FIFO}; sleep 0.5; touch up")
    started(host.home_of(instance))
    wait_until(lambda: "shutdown -c" in console_of(ec2, instance))  # it was heard
    assert state_of(ec2, instance) == "running"


def test_an_exit_trap_that_shuts_down_ends_the_instance(host: Host, ec2: Any, launch: Launch) -> None:
    """The shape of the product's user data: whatever fails, the machine goes."""
    instance = launch("set -e; trap 'shutdown -h now' EXIT; touch up; false")
    wait_until(lambda: state_of(ec2, instance) == "terminated")


def test_an_exit_trap_does_not_hold_up_a_termination(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """The shims never block: an instance told to end runs its trap and is gone long before its grace is over."""
    kit.timing(grace=10 * PATIENCE)
    instance = launch("trap 'shutdown -h now' EXIT; touch up; sleep 1000")
    started(host.home_of(instance))
    ec2.terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "terminated")


def test_term_comes_before_kill(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """What runs on an instance hears TERM once, and is killed after the grace if it won't go."""
    kit.timing(grace=3)
    instance = launch("trap 'echo heard' TERM; touch up; while :; do sleep 0.05; done")
    started(host.home_of(instance))
    ec2.terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    console = console_of(ec2, instance)
    assert console.count("heard") == 1
    assert host.running_of(instance) == set()


def test_processes_that_left_their_group_are_ended_too(host: Host, ec2: Any, launch: Launch) -> None:
    """Daemons in sessions of their own, with or without a parent, with or without their environment."""
    instance = launch(
        "setsid sleep 1001 & (setsid sleep 1002 &) ; env -i sleep 1003 & env -i setsid sleep 1004 &\n"
        "nohup sleep 1005 & sleep 0.2; touch up; sleep 1006"
    )
    started(host.home_of(instance))
    sleeps = {f"sleep\0{n}\0" for n in range(1001, 1007)}

    def alive() -> set[str]:
        return sleeps & {_command(pid) for pid in os.listdir("/proc") if pid.isdecimal()}  # noqa: PTH208

    wait_until(lambda: alive() == sleeps)
    ec2.terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert alive() == set()


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_only_the_console_is_left_of_an_instance(host: Host, ec2: Any, launch: Launch) -> None:
    """Its files and its temporary folder go; GetConsoleOutput still answers."""
    instance = launch('echo "$TMPDIR" > where.part; echo last words; mkdir "$TMPDIR/x"; mv where.part where')
    started(host.home_of(instance), "where")
    temporary = Path((host.home_of(instance) / "where").read_text().strip())
    assert temporary.is_dir()
    ec2.terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert not temporary.exists()
    assert [entry.name for entry in host.folder_of(instance).iterdir()] == ["console.log"]
    assert "last words" in console_of(ec2, instance)


def test_an_instance_terminated_while_pending_never_boots(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """It goes from pending to terminated, and its user data does not run."""
    kit.timing(pending=PATIENCE)
    instance = launch("echo booted")
    (ended,) = ec2.terminate_instances(InstanceIds=[instance])["TerminatingInstances"]
    assert ended["PreviousState"]["Name"] == "pending"
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert "booted" not in console_of(ec2, instance)


def test_what_is_not_a_script_does_not_run(ec2: Any, launch: Launch) -> None:
    """cloud-init runs user data that starts with `#!`; the instance is on all the same."""
    instance = launch(UserData="touch up")
    wait_until(lambda: "not a script" in console_of(ec2, instance))
    assert state_of(ec2, instance) == "running"


def test_a_script_without_its_interpreter_does_not_run(ec2: Any, launch: Launch) -> None:
    """The console says so; the instance is on."""
    instance = launch(UserData="#!/no/such/shell\n")
    wait_until(lambda: "could not be started" in console_of(ec2, instance))
    assert state_of(ec2, instance) == "running"


def test_stopping_an_instance_ends_its_processes(host: Host, ec2: Any, launch: Launch) -> None:
    """StopInstances: stopping, then stopped, nothing runs; it can still be terminated."""
    instance = launch("touch up; sleep 1000")
    started(host.home_of(instance))
    ec2.stop_instances(InstanceIds=[instance])
    wait_until(lambda: state_of(ec2, instance) == "stopped")
    assert host.running_of(instance) == set()


def test_a_spot_instance_is_warned_and_then_taken(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """The notice is there at once, the end after its time, and the reason says it was the spot market."""
    instance = launch("touch up; sleep 1000", InstanceMarketOptions={"MarketType": "spot"})
    started(host.home_of(instance))
    with pytest.raises(KeyError):
        host.imds(instance, "meta-data/spot/instance-action")
    kit.interrupt(instance, notice=600)
    assert json.loads(host.imds(instance, "meta-data/spot/instance-action"))["action"] == "terminate"
    assert json.loads(host.imds(instance, "meta-data/events/recommendations/rebalance"))["noticeTime"]
    assert state_of(ec2, instance) == "running"
    kit.interrupt(instance, notice=0)
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    found = describe(ec2, instance)
    assert found["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert found["StateTransitionReason"] == "Server.SpotInstanceTermination"


def test_a_rebalance_recommendation_takes_nothing(host: Host, kit: FaultKit, launch: Launch) -> None:
    """It only tells the instance."""
    instance = launch(InstanceMarketOptions={"MarketType": "spot"})
    kit.rebalance(instance)
    assert json.loads(host.imds(instance, "meta-data/events/recommendations/rebalance"))["noticeTime"]
    with pytest.raises(KeyError):
        host.imds(instance, "meta-data/spot/instance-action")


def test_only_spot_instances_are_interrupted(kit: FaultKit, launch: Launch) -> None:
    """On-demand ones, and unknown ones, are refused."""
    instance = launch()
    with pytest.raises(ControlRefused, match="not a spot instance"):
        kit.interrupt(instance)
    with pytest.raises(ControlRefused, match="i-nobody"):
        kit.interrupt("i-nobody")


def test_a_crash_gives_no_warning(host: Host, ec2: Any, kit: FaultKit, launch: Launch) -> None:
    """The processes are killed without TERM, then the instance terminates for its host's sake."""
    instance = launch("trap 'echo heard' TERM; touch up; while :; do sleep 0.05; done")
    started(host.home_of(instance))
    kit.crash(instance)
    wait_until(lambda: state_of(ec2, instance) == "terminated")
    assert "heard" not in console_of(ec2, instance)
    assert describe(ec2, instance)["StateReason"]["Code"] == "Server.InternalError"


def test_many_instances_live_side_by_side(host: Host, ec2: Any) -> None:
    """Each has its own folder, process and end."""
    answer = ec2.run_instances(**launch_parameters("touch up; sleep 1000", MaxCount=12))
    instances = [instance["InstanceId"] for instance in answer["Instances"]]
    for instance in instances:
        started(host.home_of(instance))
    ec2.terminate_instances(InstanceIds=instances)
    wait_until(lambda: {state_of(ec2, instance) for instance in instances} == {"terminated"})
    assert set().union(*(host.running_of(instance) for instance in instances)) == set()


def test_a_reboot_ends_the_processes_and_nothing_else(host: Host, ec2: Any, launch: Launch) -> None:
    """The instance stays on, and its user data does not run again."""
    instance = launch("echo x >> up; sleep 0.1; reboot; sleep 1000")
    started(host.home_of(instance))
    wait_until(lambda: "user data ended" in console_of(ec2, instance))
    assert state_of(ec2, instance) == "running"
    assert (host.home_of(instance) / "up").read_text() == "x\n"


def test_kill_of_the_script_leaves_the_instance_on(host: Host, ec2: Any, launch: Launch) -> None:
    """A dead script is not a dead machine."""
    instance = launch("echo $$ > up.part; mv up.part up; sleep 1000")
    started(host.home_of(instance))
    os.kill(int((host.home_of(instance) / "up").read_text()), signal.SIGKILL)
    wait_until(lambda: "user data ended by signal 9" in console_of(ec2, instance))
    assert state_of(ec2, instance) == "running"
