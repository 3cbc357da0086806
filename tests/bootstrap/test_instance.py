from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from prefect.exceptions import TerminationSignal

from bootstrap import worker_user
from bootstrap.clockwork import real_clockwork
from bootstrap.commands import Said
from bootstrap.duty import on_duty
from bootstrap.environment import JobEnvironment
from bootstrap.host import DockerUnreachable, HostFailed
from bootstrap.instance import Instance
from bootstrap.slots import Slots
from bootstrap.worker_user import UserFacts
from fleet.aws.parameters import ParameterNotReady
from fleet.aws.queues import Depth, QueueGone
from fleet.evals.documents import WorkerEvent
from fleet.file_lock import FileLocked
from tests.bootstrap.fake_commands import FakeCommands
from tests.worker_order import ORDER


class Deaf:
    """Queues that take no event: the run is over."""

    def send(self, *_: object) -> None:
        raise QueueGone(service="sqs", operation="SendMessageBatch", code="QueueDoesNotExist", target="q", why="")


def test_runners_see_the_machine_and_the_secrets_but_nothing_of_ours(tmp_path: Path) -> None:
    async def main() -> dict[str, str]:
        instance = Instance(
            ORDER.model_copy(update={"log_level": "http"}),
            instance_id="i-0",
            worker="w",
            say=print,
            clockwork=real_clockwork(),
            folder=tmp_path,
        )
        instance.secrets.keep({"OPENAI_API_KEY": "sk-1", "PATH_OF_KEYS": "/k", "DOCKERHUB_TOKEN": "t"})
        return instance.runner_environment(
            {
                "PATH": "/bin",
                "DOCKER_HOST": "unix:///d",
                "PREFECT_API_KEY": "pnu_1",
                "PREFECT__FLOW_RUN_ID": "1",
                "FLEET_API_KEY_PARAMETER": "/key",
                "OPENAI_API_KEY": "of the image",
                "DOCKERHUB_USERNAME": "of the image too",
            }
        )

    assert anyio.run(main) == {
        "PATH": "/bin",
        "DOCKER_HOST": "unix:///d",
        "INSPECT_LOG_LEVEL": "http",
        "OPENAI_API_KEY": "sk-1",
        "PATH_OF_KEYS": "/k",
    }


class Asked:
    """Queues that only say how deep they are."""

    def depth(self, _: str) -> Depth:
        return Depth(waiting=3, leased=3, delayed=0)


def test_the_first_instance_of_a_fleet_leaves_jobs_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: Asked())
    order = ORDER.model_copy(update={"fleet_size": 3})

    async def main() -> int:
        instance = Instance(
            order, instance_id="i-0", worker="w", say=print, clockwork=real_clockwork(), folder=tmp_path
        )
        return (await instance.first_slots()).now

    assert anyio.run(main) == 2


def test_an_instance_begins_with_as_many_jobs_as_its_order_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the last run of the same evals had settled."""
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: Asked())
    order = ORDER.model_copy(update={"fleet_size": 1, "first_slots": 2})

    async def main() -> Slots:
        return await Instance(
            order, instance_id="i-0", worker="w", say=print, clockwork=real_clockwork(), folder=tmp_path
        ).first_slots()

    slots = anyio.run(main)
    assert (slots.now, slots.level_known) == (2, True)


def test_a_duty_ends_with_no_secret_and_no_file_left_even_if_no_event_can_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: Deaf())
    said: list[str] = []

    duties: list[Instance] = []

    async def main() -> None:
        async with on_duty(ORDER, worker="w", say=said.append, environ={"FLEET_INSTANCE_ID": "i-0"}) as instance:
            duties.append(instance)
            instance.secrets.keep({"KEY": "sk-secret"})
            raise ValueError("the cause, sk-secret")

    with pytest.raises(ValueError, match="the cause"):
        anyio.run(main)
    (instance,) = duties
    assert instance.ended == "ValueError: the cause, <KEY>"
    assert instance.secrets.environment() == {}
    assert not instance.folder.exists()
    assert [line.partition(" not sent")[0] for line in said] == ["event booted", "event ended"]


def test_a_duty_whose_tidying_fails_leaves_no_file_and_ends_as_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: Deaf())
    said: list[str] = []
    duties: list[Instance] = []

    def locked() -> None:
        raise FileLocked(path="/e.values-turn", seconds=60.0, holders=[7])

    async def main() -> None:
        async with on_duty(ORDER, worker="w", say=said.append, environ={"FLEET_INSTANCE_ID": "i-0"}) as instance:
            duties.append(instance)
            instance.duties.callback(locked)

    anyio.run(main)
    assert not duties[0].folder.exists()
    assert said[-1].startswith("not everything was tidied up: /e.values-turn has been locked by process 7")


def test_the_jobs_users_rule_of_sudo_is_gone_when_the_duty_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host of fakes, whose folder for sudo's rules is a real one: a machine that outlives the worker has nothing of it."""
    sudoers, home = tmp_path / "sudoers.d", tmp_path / "home"
    sudoers.mkdir()
    commands = FakeCommands({"uv": Said(0, "uv 0.9.0"), "visudo": Said(0)})
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: Deaf())
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(worker_user, "look", lambda user: UserFacts(user, 1000, home, home_is_theirs=True, own_uid=0))
    for made, instead in (("prepare", {"sudoers": sudoers, "run": commands}), ("withdraw", {"sudoers": sudoers})):
        monkeypatch.setattr(worker_user, made, partial(getattr(worker_user, made), **instead))
    order = ORDER.model_copy(update={"worker_user": "ubuntu"})

    async def main() -> None:
        async with on_duty(order, worker="w", say=print, environ={"FLEET_INSTANCE_ID": "i-0"}) as instance:
            await instance.prepare_user()
            assert [path.name for path in sudoers.iterdir()] == [worker_user.RULE]

    anyio.run(main)
    assert list(sudoers.iterdir()) == []


class Heard:
    """Queues that keep the events."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []

    def send(self, _: str, bodies: Sequence[str], *__: object) -> None:
        self.events += [WorkerEvent.read(body) for body in bodies]


@pytest.mark.parametrize(
    ("error", "reason", "failed"),
    [
        pytest.param(HostFailed(why="no disk", minutes=5, done="no job", advice="More."), "host", True, id="host"),
        pytest.param(DockerUnreachable(why="it is down"), "failed", True, id="a step"),
        pytest.param(TerminationSignal(signal=15), "stopped", False, id="a signal"),
        pytest.param(ValueError("a bug"), "failed", False, id="a bug"),
    ],
)
@pytest.mark.fault("host-stays-bad")
def test_the_last_event_says_in_a_word_why_it_ended(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, reason: str, failed: bool
) -> None:
    queues = Heard()
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: queues)
    duties: list[Instance] = []

    async def main() -> None:
        async with on_duty(ORDER, worker="w", say=print, environ={"FLEET_INSTANCE_ID": "i-0"}) as instance:
            duties.append(instance)
            instance.doing = "run-jobs"
            raise error

    with suppress(type(error)):
        anyio.run(main)
    assert queues.events[-1].kind == "ended"
    assert queues.events[-1].detail["reason"] == reason
    assert duties[0].failed is failed
    if reason == "host":
        assert queues.events[-1].detail["why"] == (
            "run-jobs failed: this host can't go on: no disk, and so for 5 minutes. What it had in flight is back on the queue; "
            "before: no job. More."
        )


class Lagging:
    """Parameters of two settings; the first read of each comes too early."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_secret(self, name: str) -> dict[str, str]:
        self.asked.append(name)
        if self.asked.count(name) == 1:
            raise ParameterNotReady(parameter=name, code="AccessDeniedException", why="")
        setting = name.rpartition(".env.")[2]
        return {setting: f"KEY=sk-{setting}-value"}


def test_values_of_settings_lie_beside_them_until_the_duty_ends_and_the_controller_hears_what_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, parameters, said = Heard(), Lagging(), list[str]()
    monkeypatch.setattr("bootstrap.instance.Queues", lambda _: queues)
    monkeypatch.setattr("bootstrap.instance.Parameters", lambda _: parameters)
    (tmp_path / "source").mkdir()
    python = tmp_path / "venv" / "bin" / "python"
    environment = JobEnvironment(spec=ORDER.environment, python=python, source=tmp_path / "source")
    order = ORDER.model_copy(update={"secrets_parameter": "/p", "setting_values": ["linux", "mac"]})
    there = tmp_path / "source" / ".settings"

    async def main() -> None:
        async with on_duty(order, worker="w", say=said.append, environ={"FLEET_INSTANCE_ID": "i-0"}) as instance:
            for setting in order.setting_values:
                with pytest.raises(ParameterNotReady, match=rf"/p/i-0\.env\.{setting} can't be read"):
                    await instance.fetch_setting_values(environment, setting)
                await instance.fetch_setting_values(environment, setting)
            assert {path.name: path.read_text() for path in there.iterdir()} == {
                "linux.env": "KEY=sk-linux-value",
                "mac.env": "KEY=sk-mac-value",
            }
            assert instance.secrets.hide("refused sk-mac-value") == "refused <mac: KEY>"
            assert instance.runner_environment({}) == {}

    anyio.run(main)
    assert list(there.iterdir()) == []
    fetched = [event.detail["parameter"] for event in queues.events if event.kind == "secrets_fetched"]
    assert fetched == ["/p/i-0.env.linux", "/p/i-0.env.mac"]
    assert "sk-" not in "".join([*said, *(event.write() for event in queues.events)])


class Shelf:
    """Objects that hold one artifact."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def download(self, _: str, to: Path) -> None:
        to.write_bytes(self.content)

    def uri(self, key: str) -> str:
        return f"s3://bucket/{key}"


def test_a_setup_script_runs_as_this_process_and_what_it_exports_reaches_the_runners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where jobs are another user's: the script is root's and has root's home."""
    script = b"""
echo "$HOME $KEY ${DOCKERHUB_TOKEN:-no token} ${PREFECT_API_KEY:-no key} $VIRTUAL_ENV"
echo 'export SANDBOX=/opt/sandbox' > "$FLEET_WORKER_ENV"
"""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_KEY", "pnu_1")
    digest = hashlib.sha256(script).hexdigest()
    order = ORDER.model_copy(update={"worker_setup": digest, "worker_user": "nobody"})
    python = tmp_path / "venv" / "bin" / "python"
    environment = JobEnvironment(spec=order.environment, python=python, source=None)
    said: list[str] = []

    async def main() -> dict[str, str]:
        instance = Instance(
            order, instance_id="i-0", worker="w", say=said.append, clockwork=real_clockwork(), folder=tmp_path
        )
        instance.objects = Shelf(script)  # type: ignore[assignment]
        instance.secrets.keep({"KEY": "sk-a-secret", "DOCKERHUB_TOKEN": "t"})
        await instance.set_up(environment)
        return instance.runner_environment()

    seen = anyio.run(main)
    assert said == [
        f"{tmp_path} <KEY> no token no key {tmp_path}/venv",
        "worker setup finished; it sets SANDBOX",
    ]
    assert seen["SANDBOX"] == "/opt/sandbox"
    assert "FLEET_WORKER_ENV" not in seen
    assert not list(tmp_path.glob("*.env")), "it may hold secrets"
