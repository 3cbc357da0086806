"""What the command asks of both places to run, without running anything there."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from blocks.secrets import WorkerSecrets
from bootstrap.environment import JobEnvironment
from bootstrap.plain import PlainLog
from fleet.backends import Backend
from fleet.backends.fleet import FleetBackend
from fleet.backends.local import LocalBackend
from fleet.cache import cache_folder
from fleet.cli.run import RequestInvalid
from fleet.errors import RequestRefused
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.listener import Nobody
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest, ModelSpec, TaskSpec
from tests.checkouts import made

SPEC = EnvironmentSpec(python="3.11", lock="")


class Follower(Nobody):
    """Hears warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, line: str) -> None:
        self.warnings.append(line)


@pytest.fixture
def log_dirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Where the local backend has plain Inspect put its logs; nothing is built, nothing runs."""
    asked: list[str] = []

    def run_plain(
        request: EvalRequest, environment: JobEnvironment, log_dir: str, *_: Any, **__: Any
    ) -> list[PlainLog]:
        asked.append(log_dir)
        return [PlainLog(task="t", model="m", status="success", log="", error="")]

    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("fleet.backends.local.run_plain", run_plain)
    monkeypatch.setattr("bootstrap.run_plan.resolve", lambda *_: SPEC)
    monkeypatch.setattr(
        "bootstrap.run_plan.build", lambda spec, **_: JobEnvironment(spec=spec, python=tmp_path / "python", source=None)
    )
    return asked


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environment in which the flow was imported, each time; nothing is."""
    found: list[dict[str, str]] = []
    monkeypatch.setattr("fleet.backends.fleet.import_flow", lambda: found.append(dict(os.environ)))
    return found


def a_request(**fields: Any) -> EvalRequest:
    return EvalRequest(tasks=[TaskSpec(name="t")], models=[ModelSpec(name="m/m")], **fields)


@pytest.mark.parametrize(
    ("upload", "log_dir", "kept"),
    [(True, "my/logs", "my/logs"), (True, None, "CACHE"), (False, "my/logs", "CACHE"), (False, None, "CACHE")],
)
def test_local_logs_that_are_not_delivered_stay_in_the_cache(
    log_dirs: list[str], upload: bool, log_dir: str | None, kept: str
) -> None:
    LocalBackend(Follower()).run(a_request(log_dir=log_dir), upload=upload)
    assert log_dirs == [str(cache_folder() / "logs") if kept == "CACHE" else kept]


@pytest.mark.parametrize(("upload", "log_dir"), [(True, "my/logs"), (False, None)])
def test_a_fleet_s_logs_that_are_not_delivered_stay_in_the_bucket(
    monkeypatch: pytest.MonkeyPatch, upload: bool, log_dir: str | None
) -> None:
    asked: list[str | None] = []

    def call(_: FleetBackend, request: EvalRequest, __: object) -> RunReport:
        asked.append(request.log_dir)
        return RunReport(run="r", outcome="success")

    monkeypatch.setattr(FleetBackend, "_plan", lambda *_: None)
    monkeypatch.setattr(FleetBackend, "_call", call)
    FleetBackend(Ec2Config(), Follower()).run(a_request(log_dir="my/logs"), upload=upload)
    assert asked == [log_dir]


@pytest.mark.parametrize("block", [None, "keys"])
def test_a_fleet_plans_before_prefect_unless_keys_lie_in_a_block(
    monkeypatch: pytest.MonkeyPatch, block: str | None
) -> None:
    """Only Prefect can read a block, so that a plan without its keys would refuse what the flow can run."""
    happened: list[str] = []

    @contextmanager
    def services() -> Iterator[Callable[[], None]]:
        yield lambda: happened.append("prefect is there")

    def plan_run(*_: object, **__: object) -> str:
        happened.append("planned")
        return "a plan"

    def plan(*_: object, **__: object) -> str:
        happened.append("planned")
        return "a plan"

    def call(_: FleetBackend, __: EvalRequest, plan: object) -> RunReport:
        happened.append("called with a plan" if plan else "called")
        return RunReport(run="r", outcome="success")

    monkeypatch.setattr("fleet.backends.fleet.plan_run", plan_run)
    monkeypatch.setattr(FleetBackend, "_call", call)
    FleetBackend(Ec2Config(), Follower(), services=services, worker_secrets=block).run(a_request())
    planned = ["planned", "prefect is there", "called with a plan"]
    assert happened == (["prefect is there", "called"] if block else planned)


@pytest.mark.parametrize("absent", [FleetAccount, WorkerSecrets])
@pytest.mark.fault("request-refused")
def test_a_block_whose_name_is_mistyped_ends_a_fleet_s_run_before_it_exists(
    monkeypatch: pytest.MonkeyPatch, absent: type[Any]
) -> None:
    def load(_: str) -> None:
        raise ValueError("Unable to find block document")

    called: list[object] = []
    monkeypatch.setattr(FleetAccount, "load", staticmethod(lambda _: FleetAccount(bucket="b")))
    monkeypatch.setattr(absent, "load", staticmethod(load))
    monkeypatch.setattr("fleet.backends.fleet.call_run_eval", lambda *_, **__: called.append(1))
    with pytest.raises(RequestRefused, match="no such block") as refused:
        FleetBackend(Ec2Config(), Follower(), worker_secrets="typo").run(a_request())
    assert refused.value.exit_code == 2
    assert called == []


def test_the_flow_is_imported_with_the_services_prefect_while_the_plan_sees_the_person_s(
    monkeypatch: pytest.MonkeyPatch, imports: list[dict[str, str]]
) -> None:
    """Prefect reads its settings when it is imported; a task's code has no business with a server of ours."""
    monkeypatch.setenv("PREFECT_API_URL", "http://theirs/api")
    planned: list[str] = []

    @contextmanager
    def services() -> Iterator[Callable[[], None]]:
        monkeypatch.setenv("PREFECT_API_URL", "http://ours/api")
        yield lambda: None

    def plan_run(*_: object, env: Mapping[str, str], **__: object) -> None:
        planned.append(env["PREFECT_API_URL"])

    monkeypatch.setattr("fleet.backends.fleet.plan_run", plan_run)
    monkeypatch.setattr(FleetBackend, "_call", lambda *_: RunReport(run="r", outcome="success"))
    FleetBackend(Ec2Config(), Follower(), services=services).run(a_request())
    assert [one["PREFECT_API_URL"] for one in imports] == ["http://ours/api"]
    assert planned == ["http://theirs/api"]


@pytest.mark.parametrize("refused", [False, True])
def test_neither_environment_nor_services_change_while_the_flow_is_imported(
    monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """The import reads the one, and makes Prefect's home in the folder of the other: one that had gone would come again."""
    happened: list[str] = []
    imported = threading.Event()

    def import_flow() -> None:
        imported.wait(10)
        happened.append("imported")

    @contextmanager
    def services() -> Iterator[Callable[[], None]]:
        try:
            yield lambda: happened.append("pointed there")
        finally:
            happened.append("taken down")

    def plan(*_: object) -> None:
        threading.Timer(0.05, imported.set).start()
        if refused:
            raise RequestInvalid(why="none such")

    monkeypatch.setattr("fleet.backends.fleet.import_flow", import_flow)
    monkeypatch.setattr(FleetBackend, "_plan", plan)
    monkeypatch.setattr(FleetBackend, "_call", lambda *_: RunReport(run="r", outcome="success"))
    with pytest.raises(RequestRefused) if refused else nullcontext():
        FleetBackend(Ec2Config(), Follower(), services=services).run(a_request())
    assert happened == ["imported", *([] if refused else ["pointed there"]), "taken down"]


def test_a_person_hears_of_files_that_stay_behind_on_this_machine_too(log_dirs: list[str], tmp_path: Path) -> None:
    source = tmp_path / "checkout"
    source.mkdir()
    (source / "tasks.py").touch()
    for command in (["init", "-q"], ["add", "tasks.py"]):
        subprocess.run(["git", "-C", str(source), *command], check=True)
    (source / "notes.txt").write_text("mine")
    follower = Follower()
    LocalBackend(follower).run(a_request(source=str(source)))
    assert len(follower.warnings) == 1
    assert "notes.txt" in follower.warnings[0]


def test_a_settings_values_are_in_place_while_the_eval_runs_and_gone_afterwards(
    log_dirs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = made(tmp_path / "linux", {"a.txt": "1"})
    (tmp_path / "linux.env").write_text("KEY=sk-secret")
    seen: list[tuple[str, int]] = []

    def run_plain(request: EvalRequest, environment: JobEnvironment, *_: Any, **__: Any) -> list[PlainLog]:
        file = environment.working_folder / ".settings" / "linux.env"
        seen.append((file.read_text(), stat.S_IMODE(file.stat().st_mode)))
        raise KeyboardInterrupt

    def built(spec: EnvironmentSpec, **_: Any) -> JobEnvironment:
        (tmp_path / "environment" / "source").mkdir(parents=True)
        folder = tmp_path / "environment"
        return JobEnvironment(spec=spec, python=folder / "venv" / "bin" / "python", source=folder / "source")

    monkeypatch.setattr("bootstrap.run_plan.build", built)
    monkeypatch.setattr("fleet.backends.local.run_plain", run_plain)
    with pytest.raises(KeyboardInterrupt):
        LocalBackend(Follower()).run(a_request(settings=[str(checkout)]))
    assert seen == [("KEY=sk-secret", 0o600)]
    assert not list((tmp_path / "environment").rglob("*.env"))


@pytest.mark.parametrize("backend", [LocalBackend(Follower()), FleetBackend(Ec2Config(), Follower())])
def test_every_name_is_looked_up_before_a_run_starts(backend: Backend) -> None:
    """Both plan in the job environment; a place that can't would say so here."""
    assert backend.resolvable("evalkit/plain")
