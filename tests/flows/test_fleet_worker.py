"""The flow on one instance: booted as the user data boots it, by a real Prefect server, in emulated AWS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from inspect_ai.log import read_eval_log
from moto.server import ThreadedMotoServer
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, TaskRun

from bootstrap.planner import plan_tasks
from fleet.aws.objects import Objects
from fleet.aws.parameters import Parameters
from fleet.aws.queues import Queues
from fleet.aws.session import Aws
from fleet.evals.documents import EnvironmentSpec, EvalManifest, JobMessage, WorkerEvent, WorkerOrder
from fleet.evals.layout import Layout
from fleet.evals.plan import make_manifest
from fleet.evals.settings import pack_setting
from fleet.local import environment as local_environment
from flows.fleet_worker import fleet_worker
from tests.bootstrap.metadata import FakeMetadata, serving
from tests.checkouts import made
from tests.cloud import CloudUnderTest
from tests.fake_docker import WRONG, put_devices, put_docker
from tests.job_environment import kit_environment, kit_request, kit_source
from tests.processes import processes_with

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(240)]

REGION = "us-east-1"
BUCKET = "bucket"
INSTANCE = "i-0123456789abcdef0"
SECRET = "sk-a-value-that-nobody-may-see"
LAYOUT = Layout("fleet")
PATIENCE = 90.0


@dataclass
class Room:
    """Prefect and AWS around one instance, and what a test asks of them."""

    client: SyncPrefectClient
    aws: Aws
    environ: dict[str, str]
    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = Objects(self.aws, BUCKET)
        self.queues = Queues(self.aws)
        self.parameters = Parameters(self.aws)
        self.environment = kit_environment(self.folder)
        self.run = uuid4().hex
        self.work, self.events = (
            self.queues.create(f"{self.run}-{use}", tags={}, lease_seconds=60) for use in ("work", "events")
        )
        self.heard: list[WorkerEvent] = []

    def order(self, task: str, *, secrets: bool = False, **fields: Any) -> tuple[WorkerOrder, EvalManifest]:
        """An order for a task of the kit, with all that it names in place."""
        request = kit_request(task, **fields)
        folder = self.folder / self.run
        folder.mkdir(exist_ok=True)
        (plan,) = plan_tasks(request, self.environment, folder)
        manifest = make_manifest(plan, request, self.environment.spec, slots=2)
        source = kit_source(self.folder)
        self.objects.put(LAYOUT.artifact(source.sha256), source.path)
        self.objects.put(LAYOUT.manifest(manifest.eval_id), manifest.write().encode())
        self.queues.send(
            self.work, [JobMessage(eval_id=manifest.eval_id, job=job.job).write() for job in manifest.jobs]
        )
        return WorkerOrder(
            run=self.run,
            region=REGION,
            bucket=BUCKET,
            prefix=LAYOUT.prefix,
            eval_ids=[manifest.eval_id],
            environment=self.environment.spec,
            work_queue=self.work,
            events_queue=self.events,
            secrets_parameter=f"/fleet/{self.run}" if secrets else "",
            idle_seconds=1,
        ), manifest

    def flow_run(self, order: WorkerOrder) -> UUID:
        """A flow run of a deployment as `prefect.yaml` makes it: a module path, and nothing to pull. But no pool worker sees it."""
        deployment = self.client.create_deployment(
            self.client.create_flow(fleet_worker),
            name="without-a-pool",
            entrypoint="flows.fleet_worker.fleet_worker",
            pull_steps=[],
        )
        return self.client.create_flow_run_from_deployment(
            deployment, parameters={"order": order.model_dump(mode="json")}
        ).id

    def boot(self, run: UUID, **environ: str) -> subprocess.Popen[bytes]:
        """Boot an instance for a flow run, as its user data does."""
        process = subprocess.Popen(
            [sys.executable, "-m", "bootstrap.boot", "--", sys.executable, "-m", "prefect.engine"],
            env={**self.environ, "PREFECT__FLOW_RUN_ID": str(run), **environ},
            cwd=self.folder,
        )
        self.started.append(process)
        return process

    def tasks(self, run: UUID) -> dict[str, TaskRun]:
        found = self.client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run])))
        return {task.name: task for task in found}

    def hear(self) -> list[str]:
        """The kinds of all events so far, without beats."""
        while messages := self.queues.receive(self.events, wait=0):
            for message in messages:
                self.heard.append(WorkerEvent.read(message.body))
                self.queues.done(self.events, message.receipt)
        return [event.kind for event in sorted(self.heard, key=lambda event: event.at) if event.kind != "beat"]

    def results(self, manifest: EvalManifest) -> list[str]:
        return [LAYOUT.job_of(found.key) for found in self.objects.list(LAYOUT.results(manifest.eval_id))]

    def log(self) -> str:
        return self.objects.get(f"fleet/runs/{self.run}/instances/{INSTANCE}/boot.log").decode()

    def when(self, what: str, true: Callable[[], bool]) -> None:
        """Wait until something outside this process has happened."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < deadline, f"never happened: {what}"
            time.sleep(0.2)

    def settled(self, run: UUID) -> FlowRun:
        self.when("a final state", lambda: self.client.read_flow_run(run).state.is_final())  # type: ignore[union-attr]
        return self.client.read_flow_run(run)


@pytest.fixture
def room(
    prefect_api: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Room]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    fake = FakeMetadata(values={"instance-id": INSTANCE})
    with serving(fake), get_client(sync_client=True) as client:
        here = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.endpoint,
            "FLEET_CACHE_DIR": str(request.config.cache.mkdir("job-environments")),
        }
        for name, value in here.items():
            monkeypatch.setenv(name, value)
        aws = Aws(REGION)
        aws.s3.create_bucket(Bucket=BUCKET)
        found = Room(client=client, aws=aws, environ={}, folder=Path(here["FLEET_CACHE_DIR"]))
        found.environ = {
            **os.environ,
            "PREFECT_API_URL": prefect_api,
            "PREFECT_HOME": str(tmp_path / "prefect"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "FLEET_REGION": REGION,
            "FLEET_LOG_FOLDER": f"s3://{BUCKET}/fleet/runs/{found.run}/instances",
            "MARK_OF_THE_TEST": found.run,
        }
        try:
            yield found
        finally:
            for process in found.started:
                if process.poll() is None:
                    process.kill()
                process.wait()
            moto.stop()


def test_a_worker_waits_for_its_secrets_then_runs_every_job(room: Room, shared_cloud: CloudUnderTest) -> None:
    """Also: the value is in nothing that leaves the instance, with every logger at DEBUG."""
    order, manifest = room.order("plain", secrets=True, eval_config={"limit": 4})
    order = order.model_copy(update={"setting_values": ["linux"]})
    run = room.flow_run(order)
    debug = {"PREFECT_LOGGING_LEVEL": "DEBUG", "PREFECT_LOGGING_ROOT_LEVEL": "DEBUG"}
    process = room.boot(run, PREFECT_LOGGING_EXTRA_LOGGERS="botocore,boto3,urllib3", **debug)
    room.when(
        "fetch-secrets awaits a retry",
        lambda: any(t.state_name == "AwaitingRetry" for t in room.tasks(run).values()),
    )
    own = f"{order.secrets_parameter}/{INSTANCE}"
    room.parameters.put_secret(f"{own}.env.linux", {"linux": f"KEY={SECRET}"}, {})
    room.parameters.put_secret(own, {"SCRIPTED_API_KEY": SECRET}, {})
    assert process.wait(PATIENCE) == 0

    settled = room.settled(run)
    assert settled.state_name == "Completed"
    assert settled.state is not None
    assert settled.state.message == f"no job came for a while; {len(manifest.jobs)} jobs done"
    # No Docker needed, no host prepared.
    steps = dict.fromkeys(("fetch-secrets", "install-code", "fetch-setting-values linux", "run-jobs"), "Completed")
    room.when("they are recorded", lambda: {name: t.state_name for name, t in room.tasks(run).items()} == steps)
    assert room.tasks(run)["fetch-secrets"].run_count > 1
    assert sorted(room.results(manifest)) == sorted(job.job for job in manifest.jobs)
    assert room.queues.depth(room.work).total == 0

    kinds = room.hear()
    assert kinds[:3] == ["booted", "secrets_fetched", "secrets_fetched"]
    fetched = [event.detail["parameter"] for event in room.heard if event.kind == "secrets_fetched"]
    assert fetched == [own, f"{own}.env.linux"], "what the controller may delete"
    assert "values of the setting linux fetched" in room.log()
    assert not list((room.environment.working_folder / ".settings").glob("*.env")), "gone with the worker"
    assert kinds[-1] == "ended"
    assert kinds.count("job_done") == len(manifest.jobs)

    log = room.log()
    assert "SCRIPTED_API_KEY" in log, "names are told"
    database = local_environment.database(shared_cloud.local.folder)
    stored = b"".join(path.read_bytes() for path in database.parent.glob(f"{database.name}*"))
    assert order.work_queue.encode() in stored, "this is the database"
    everything = [log.encode(), stored, *(event.write().encode() for event in room.heard)]
    everything += [room.objects.get(found.key) for found in room.objects.list(LAYOUT.prefix)]
    assert not [part[:80] for part in everything if SECRET.encode() in part]
    assert processes_with(f"MARK_OF_THE_TEST={room.run}") == {}


@pytest.mark.fault("partial-log")
def test_a_worker_that_is_told_to_stop_gives_its_jobs_back_and_is_crashed(room: Room, tmp_path: Path) -> None:
    """What Inspect had of them is kept, as logs that it closed itself."""
    order, manifest = room.order("slow")
    run = room.flow_run(order)
    process = room.boot(run, TMPDIR=str(tmp_path))
    room.when("a job's log is begun", lambda: bool(list(tmp_path.glob("fleet-worker-*/jobs/*/log/*.eval"))))
    process.send_signal(signal.SIGTERM)
    room.when("the jobs are back", lambda: room.queues.depth(room.work).waiting == len(manifest.jobs))
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert room.settled(run).state_name == "Crashed"
    assert room.hear()[-2:] == ["given_back", "ended"]
    assert "SIGTERM received" in room.log()
    assert "jobs in flight that were given back" in room.log()
    kept = [*room.objects.list(f"{LAYOUT.eval(manifest.eval_id)}/partial/")]
    assert kept
    room.objects.download(kept[0].key, tmp_path / "partial.eval")
    assert read_eval_log(str(tmp_path / "partial.eval")).status == "cancelled"
    assert room.results(manifest) == []
    room.when("no process is left", lambda: not processes_with(f"MARK_OF_THE_TEST={room.run}"))


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.fleet_worker import fetch_secrets

    monkeypatch.setattr(fetch_secrets, "retry_delay_seconds", [0.01])


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.fault("secret-late")
def test_a_parameter_that_holds_something_else_fails_the_run_at_once(room: Room) -> None:
    order, _ = room.order("plain", secrets=True, eval_config={"limit": 1})
    room.aws.ssm.put_parameter(
        Name=f"{order.secrets_parameter}/{INSTANCE}", Value=f"not json {SECRET}", Type="SecureString"
    )
    state = _run_here(order)
    assert state.is_failed()
    assert "doesn't hold a JSON object" in str(state.message)
    assert SECRET not in str(state.message)
    assert room.hear() == ["booted", "ended"]
    assert str(room.heard[-1].detail["why"]).startswith("fetch-secrets failed: parameter ")


def test_a_damaged_source_fails_the_run_before_any_job_is_taken(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order, manifest = room.order("plain", eval_config={"limit": 1})
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path))
    assert order.environment.source is not None
    room.objects.put(LAYOUT.artifact(order.environment.source), b"damaged")
    state = _run_here(order)
    assert state.is_failed()
    assert "was overwritten or damaged" in str(state.message)
    assert room.queues.depth(room.work).waiting == len(manifest.jobs)


@pytest.mark.fault("host-step-fails")
def test_a_setting_that_only_this_instance_cant_sync_fails_the_run_with_the_folder_named(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order, manifest = room.order("plain", eval_config={"limit": 1})
    checkout = made(
        tmp_path / "tools", {"pyproject.toml": "[project]\nname='tools'\nversion='1'\ndependencies=['x y']\n"}
    )
    setting = pack_setting(checkout, tmp_path)
    for archive in (setting.files, setting.git):
        room.objects.put_artifact(LAYOUT, archive.path)
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path / "cache"))
    environment = EnvironmentSpec(python="3.11", lock="", settings=[setting.spec])
    state = _run_here(order.model_copy(update={"environment": environment}))
    assert state.is_failed()
    assert "the job environment can't be built (uv sync in .settings/tools): " in str(state.message)
    assert room.queues.depth(room.work).waiting == len(manifest.jobs)


LOGIN = {"DOCKERHUB_USERNAME": "someone", "DOCKERHUB_TOKEN": SECRET}


@dataclass(frozen=True)
class Fault:
    """A host on which one thing is wrong, and what a person is told of it. `test_unfit_hosts` has more, on real instances."""

    step: str
    says: str
    secrets: dict[str, str] = field(default_factory=lambda: LOGIN)
    user: str = "root"


FAULTS = {
    "no login": Fault("docker-login", "has no login for Docker Hub: give DOCKERHUB_USERNAME", secrets={"KEY": "a-key"}),
    "half a login": Fault("docker-login", "DOCKERHUB_TOKEN is missing", secrets={"DOCKERHUB_USERNAME": "someone"}),
    "a user that the image lacks": Fault("prepare-user", "the worker image has no such user", user="nobody-at-all"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.fault("host-step-fails")
def test_each_failing_step_ends_the_run_with_what_failed_and_takes_no_job(
    room: Room, fault: Fault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_docker(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv(WRONG, "nothing")
    monkeypatch.setenv("FLEET_PCI_DEVICES", str(put_devices(tmp_path / "pci", gpu=False)))
    monkeypatch.setenv("FLEET_INSTANCE_ID", INSTANCE)
    room.parameters.put_secret(f"/fleet/{room.run}/{INSTANCE}", fault.secrets, {})
    room.queues.send(room.work, [JobMessage(eval_id="an-eval", job="000000-0").write()])
    order = WorkerOrder(
        run=room.run,
        region=REGION,
        bucket=BUCKET,
        prefix=LAYOUT.prefix,
        eval_ids=["an-eval"],
        environment=room.environment.spec,
        work_queue=room.work,
        events_queue=room.events,
        secrets_parameter=f"/fleet/{room.run}",
        needs_docker=True,
        worker_user=fault.user,
    )
    state = _run_here(order)
    assert state.is_failed()
    assert str(state.message).startswith(f"{fault.step} failed: ")
    assert fault.says in str(state.message)
    assert SECRET not in str(state.message)
    assert "\n" not in str(state.message)
    run = state.state_details.flow_run_id
    room.when(
        "the step's end is recorded, and no other failed",
        lambda: [task.name for task in room.tasks(run).values() if task.state_name == "Failed"] == [fault.step],
    )
    assert room.hear()[-1] == "ended"
    assert room.heard[-1].detail["why"] == state.message
    assert room.queues.depth(room.work).waiting == 1


def _run_here(order: WorkerOrder) -> Any:
    import anyio

    async def main() -> Any:
        return await fleet_worker(order, return_state=True)

    return anyio.run(main)
