"""The documents of one eval on its way: manifest, job messages, job results, worker orders and events.

S3 holds the truth under `<prefix>/evals/<eval id>/` (`layout.py` names the keys); queue messages only point at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, JsonValue

from fleet.evals.registry import RegistryAccess
from fleet.evals.request import ModelSpec, SolverSpec, TaskSpec
from fleet.wire import Wire

EvalId = str
"""Deterministic identity of a plan: `<task slug>-<16 hex digits>`."""
JobId = str
"""`<position, six digits>-<eight hex digits of the pairs' digest>`: unique within an eval, sorts in plan order."""

LONGEST_LEASE = 3_600
"""Seconds. SQS hides a message for 12 hours in all, renewals included: a lease near that could never be renewed."""


_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class SampleRef:
    """One (sample, epoch) pair, and what the sample held when it was planned.

    As strict as a `Wire` within a manifest, and no model, as a job isn't: an eval may have a hundred thousand of both, and
    models would take 0.9 KB more for each.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: int | str
    epoch: Annotated[int, Field(ge=1)]
    digest: str
    """SHA-256 (first 16 hex digits) of the sample's content; checked where it runs."""


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of work: one queue message, one result object."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    job: JobId
    samples: list[SampleRef]
    """In plan order (epoch-major). Empty exactly when `whole`."""
    whole: bool = False
    """The task can't be split by sample: run it as it is, all samples and epochs."""


class SettingSpec(Wire):
    """A setting by content: a checkout that lies beside the tasks while they run."""

    name: str
    """Its folder is `.settings/<name>` below the working folder of jobs."""
    files: str
    """SHA-256 of the archive of its files."""
    git: str
    """SHA-256 of the archive of its shallow `.git`. Another version of git may pack the same commit otherwise."""
    commit: str
    """The commit that is checked out, as git names it."""
    package: bool = False
    """It gets an environment of its own, by `uv sync`."""
    plugin: bool = False
    """Its folder `ct_plugin` is installed into the job environment (editable)."""


class EnvironmentSpec(Wire):
    """A job environment by content: equal specs are equal environments, wherever they are built."""

    python: str
    """`3.11`, or a full version."""
    lock: str
    """The resolved requirements, as text: exact versions, no index address."""
    source: str | None = None
    """SHA-256 of the source archive (a .tar.gz), which is found as an artifact of that name."""
    installable: bool = False
    """The source has a pyproject.toml or setup.py and is installed (editable), not only put beside the tasks."""
    settings: list[SettingSpec] = []
    """Sorted by name."""


class EvalManifest(Wire):
    """All that workers need to run the jobs of one eval, and all that a resume compares. Written once, before any job."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    eval_id: EvalId
    task: TaskSpec
    model: ModelSpec
    solver: SolverSpec | None
    eval_config: dict[str, JsonValue]
    """As the runner takes it: the request's, with an explicit seed where samples are shuffled."""
    generate_config: dict[str, JsonValue]
    tags: list[str]
    metadata: dict[str, JsonValue]
    environment: EnvironmentSpec
    needs_docker: bool
    sample_ids: list[int | str]
    """In dataset order: with `epochs`, the order of the merged log."""
    epochs: int = Field(ge=1)
    jobs: list[Job]
    log_name: str
    """File name of the merged log: the plan log's own, so that it sorts and reads as any other of Inspect's."""
    identity: dict[str, str]
    """What the eval id hashes, by name (task, model, config, source, packages, samples, …), each as a short digest."""


class JobMessage(Wire):
    """A job on the work queue."""

    VERSION: ClassVar[int | None] = 2
    READS_TOO: ClassVar[frozenset[int]] = frozenset({1})

    version: Literal[2] = 2
    eval_id: EvalId
    job: JobId
    failures: int = Field(default=0, ge=0)
    """Attempts that count. Spot interruptions and lost instances don't."""
    deaths: int = Field(default=0, ge=0)
    """How often earlier copies of this message were taken and neither finished nor given back: their workers died or fell
    silent, or ran out of memory or disk. What SQS has counted of this copy comes on top."""
    holder: str = ""
    """The instance that goes on with the job and takes this copy over; empty: whoever takes it runs it."""
    leave_until: float = 0.0
    """Seconds since the epoch; until then others leave the copy to `holder`."""


class SampleRecord(Wire):
    """What the merge needs of one finished sample without inflating it: Inspect's own JSON, uncut."""

    id: int | str
    epoch: int
    scores: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    """As the dataset gave them: metrics of a plain run see no change that a solver made."""
    error: dict[str, Any] | None = None


class JobResult(Wire):
    """The summary that travels inside a job's log, as the zip member `fleet.json`: one object, so one atomic put."""

    VERSION: ClassVar[int | None] = 1
    MEMBER: ClassVar[str] = "fleet.json"

    version: Literal[1] = 1
    eval_id: EvalId
    job: JobId
    samples: list[SampleRecord]
    started_at: str
    completed_at: str
    """ISO 8601, from the log's own stats."""
    model_usage: dict[str, dict[str, Any]] = {}
    role_usage: dict[str, dict[str, Any]] = {}
    """From the log's stats, not from its samples: attempts that were thrown away count only there."""
    instance: str = ""
    seconds: float = 0.0


class JobFailure(Wire):
    """Why an attempt of a job failed: `failures/<job>/<attempt>.json`. Written for each; `final` says whether it was the last."""

    VERSION: ClassVar[int | None] = 2
    READS_TOO: ClassVar[frozenset[int]] = frozenset({1})

    version: Literal[2] = 2
    eval_id: EvalId
    job: JobId
    attempt: int
    final: bool
    kind: str
    """The class of the error: a name from `attempts.py`, never a text."""
    why: str
    instance: str
    """Where it failed; empty for what the controller found on the dead-letter queue."""
    at: str
    worker: str = ""
    """Name of the fleet worker's flow run."""
    log: str = ""
    """The end of what the runner said during the attempt, secrets hidden; at most `job_process.SAID_BYTES`."""


class WorkerOrder(Wire):
    """What a fleet worker is told: ids, names and addresses only. The one parameter of the flow `fleet_worker`."""

    VERSION: ClassVar[int | None] = 2
    READS_TOO: ClassVar[frozenset[int]] = frozenset({1})

    version: Literal[2] = 2
    run: str
    """Flow run id of the `run_eval` that launched this fleet."""
    region: str
    bucket: str
    prefix: str
    eval_ids: list[EvalId]
    environment: EnvironmentSpec
    work_queue: str
    events_queue: str
    """Queue URLs."""
    secrets_parameter: str
    """The parameter's path without the instance id: the worker appends `/<instance id>`. Empty: the run has no secrets."""
    setting_values: list[str] = []
    """Settings that have values, each in a parameter of its own beside the instance's: `<instance id>.env.<setting>`."""
    needs_docker: bool = False
    registry: RegistryAccess = RegistryAccess()
    """Where a run that needs Docker logs in for its images, and by which parameters."""
    concurrency: int = Field(default=32, ge=1)
    fleet_size: int = Field(default=1, ge=1)
    """Instances that were asked for at first: with few jobs, each takes its share and no more."""
    first_slots: int = Field(default=0, ge=0)
    """Jobs at a time at which the instances of the last run had settled, to begin with; 0: not known."""
    lease_seconds: int = Field(default=60, ge=5, le=LONGEST_LEASE)
    """How long a job stays hidden from other workers; renewed each quarter of it."""
    idle_seconds: int = Field(default=60, ge=1)
    """Seconds without a job after which the worker ends, also where the queue says that some may come."""
    worker_user: str = "root"
    worker_setup: str | None = None
    """SHA-256 of the setup script among the artifacts."""
    rates: str | None = None
    """SHA-256 of the model rate table among the artifacts."""
    log_level: str = ""
    """How much Inspect says into the runners' logs, by Inspect's names; empty: its default."""


EventKind = Literal[
    "booted",
    "secrets_fetched",
    "job_started",
    "job_done",
    "job_failed",
    "rate_limited",
    "notice",
    "host",
    "given_back",
    "beat",
    "ended",
]


class WorkerEvent(Wire):
    """What a worker tells its controller by the events queue. A hint: progress is shown from it, nothing is decided by it alone."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    kind: EventKind
    worker: str
    """Flow run id of the fleet worker."""
    instance: str
    at: float
    """Seconds since the epoch, by the worker's clock."""
    eval_id: EvalId | None = None
    job: JobId | None = None
    detail: dict[str, JsonValue] = {}
    """booted: `seconds`. secrets_fetched: `parameter`. job_started: `failures`. job_done: `seconds`, `samples`, `errors`,
    `tokens`, and `cost` (dollars) where Inspect had prices. job_failed: `attempt` (none for a message that means nothing
    here), `final`, `kind`, `why`. rate_limited: `times`, `slots`. notice: `kind` (interruption, rebalance), `at`, `heeded`.
    host: `taking` (whether jobs are taken), `why`. given_back: `jobs`. beat: `slots`, `running`. ended: `reason` (idle, queue
    gone, stopped, interrupted, host, failed), `why`, `seconds`.
    """
