"""One run on its way: what it works with, what it has created, how it went. Leaving it removes what it created."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

import httpx
from prefect import get_run_logger, runtime
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from blocks.ec2_config import Ec2Config
from bootstrap.environment import built
from bootstrap.recompute import Warm
from bootstrap.run_plan import RunPlan
from fleet.aws.failures import AwsRefused
from fleet.aws.identity import Caller
from fleet.aws.parameters import INSTANCE_TAG
from fleet.aws.prices import Price
from fleet.cache import cache_folder
from fleet.evals.documents import EvalId, EvalManifest, WorkerOrder
from fleet.evals.durations import expected_jobs, expected_of, note_slots
from fleet.evals.handout import Handout
from fleet.evals.listener import listener
from fleet.evals.lock_keeper import LockKeeper
from fleet.evals.plan import resized
from fleet.evals.preparation import RUN_TAG, RunQueues, stored_manifest
from fleet.evals.progress import Progress
from fleet.evals.registry import RegistryAccess
from fleet.evals.report import EvalReport, RunReport, outcome_of
from fleet.evals.secrets import RunSecrets
from fleet.evals.site import Site
from fleet.evals.sizing import Expected, settled_slots
from fleet.evals.variable_names import LOG_LEVEL
from fleet.pool import runs as workers_of
from fleet.pool.clean_up import Created, clean_up
from fleet.reaper.removal import Reaper
from fleet.reaper.runs import PrefectRuns
from fleet.reaper.succession import end_all
from fleet.reaper.verdict import Patience
from flows.artifacts import LiveArtifacts
from flows.reap import looked_at
from flows.watch import Watch

ANSWER_S = 5.0
"""Seconds that Prefect's server may take for one answer while a run cleans up."""
QUICK = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: ANSWER_S}
"""Settings with which Prefect's client asks once: by itself it would go on for minutes."""
GRACE_S = 30.0
"""How long instances get to end by themselves once the work is done."""
EARLY_S = 30.0
"""What an early clean-up takes at most, as long as AWS answers: as a process pool leaves a cancelled run."""
ONCE_MORE_S = 1.0
"""A Ctrl-C so soon after the last one was meant for what that one did: keys repeat, and people press twice."""
PROGRESS_S = 30.0
"""Between two lines of progress in the log; the artifacts follow each look."""


class Run:
    """A run, to be used as a block: what it created is gone when the block ends, or named in `left`.

    Not a dataclass: Prefect walks through the fields of those on their way to a task, and a plan may hold a million of them.
    """

    def __init__(
        self,
        site: Site,
        plan: RunPlan,
        config: Ec2Config,
        account: str,
        *,
        secrets: RunSecrets,
        advanced: bool,
        registry: RegistryAccess,
        me: Caller,
        setup: bytes | None = None,
    ) -> None:
        self.registry = registry
        self.settings = secrets.setting_names()
        """Settings whose values lie in parameters of their own."""
        self.setup = setup
        """The script of `worker_setup`. No part of an eval's identity: it makes hosts, as the image does, and a corrected one must
        not throw finished samples away. The order of each worker names it by its SHA-256."""
        self.site, self.plan, self.config, self.account = site, plan, config, account
        self.id = str(runtime.flow_run.id)
        attempt = int(runtime.flow_run.run_count or 1)
        self.key = self.id if attempt == 1 else f"{self.id}-{attempt}"
        """Names what this attempt creates: a retried flow run must not meet its own finished workers and deleted queues."""
        self.owner = me.name
        self.created = Created(run=self.id, secrets=site.secrets_of(self.key) if secrets else "")
        self.handout = Handout(
            site.parameters,
            self.created.secrets,
            secrets,
            lambda instance: {INSTANCE_TAG: me.instance_arn(site.region, instance), RUN_TAG: self.id},
            advanced=advanced,
        )
        """What its instances are given in secret; nothing, if the run has no secrets."""
        self.created.written = self.handout.names
        self.locks = LockKeeper()
        self.created.locks = self.locks.locks
        self.eval_ids: list[EvalId] = [one.manifest.eval_id for one in plan.evals]
        self.in_force: Sequence[EvalManifest] = ()
        """The manifests that count, from `prepare` on."""
        self.artifacts = LiveArtifacts()
        environment = built(plan.environment, cache=cache_folder())
        self.warm = (
            Warm(environment, {**os.environ, **secrets.variables()}, len(self.eval_ids)) if environment else None
        )
        """Processes for the metrics, started as the run ends; None: the job environment was removed since it was planned in."""
        self.prices: Sequence[Price] = ()
        """Of all that its instances may be."""
        self.expected: Expected = {}
        """By earlier runs."""
        self.settled = 0
        """Jobs at a time at which the last run's instances had settled; 0: not known."""
        self.workers = 0
        """Instances that a person has approved."""
        self.owed: list[int] = []
        """Batches of the fleet that are yet to be launched."""
        self.watch: Watch | None = None
        self.last: Progress | None = None
        self.why = ""
        """Why the watch ended early; empty: every job was finished."""
        self.left: list[str] = []
        self._began = self._told = time.monotonic()

    def __enter__(self) -> Self:
        self.locks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        early = kind is not None or bool(self.why)
        follower = listener.get()
        most = EARLY_S if early else GRACE_S + EARLY_S
        # The clean-up itself asks Prefect again, and for how long.
        with undisturbed(seconds=most, say=follower.warn), temporary_settings(QUICK):
            if kind is KeyboardInterrupt:  # told in here: a key that repeats would cut short what comes after
                follower.warn(f"interrupted: cleaning up, {most:g} s at most")
            stage("Cleaning up")
            self.locks.__exit__(None, None, None)
            self.left = clean_up(
                self.site,
                self.created,
                workers_of,
                grace=0.0 if early else GRACE_S,
                why="the run ended early" if early else "the run is over",
                last_words=self._take_stock,
            )
        for what in self.left:
            get_run_logger().warning("Left behind: %s", what)
            if kind is not None:  # no report will say it
                listener.get().warn(f"left behind: {what}")
        if self.warm:
            self.warm.close()  # last: it waits for a process, and what AWS bills for waits for nothing

    def end_earlier(self) -> None:
        """End the runs that evals were taken over from: their controllers are gone, and their instances would do the same jobs.

        What they have finished stays. What can't be ended now is named, and left to the hourly reaping.
        """
        dead = list(self.locks.earlier)
        if not dead:
            return
        stage(f"Taking over from flow run {', '.join(dead)}")
        why = f"its controller is gone: flow run {self.id} goes on with its eval"
        try:
            left = end_all(dead, why, Reaper(looked_at(self.account, []), PrefectRuns(), Patience()))
        except Exception as error:  # noqa: BLE001 - Prefect doesn't answer, or the account's block is gone
            left = [f"flow run {', '.join(dead)}: {error}"]
        for what in left:
            get_run_logger().warning("Left to the reaper: %s", what)
            listener.get().warn(f"left to the reaper: {what}")
        if not left:
            self.locks.settled()

    def manifests(self) -> list[EvalManifest]:
        """The manifests that count: with the jobs of an earlier run where there was one, since its results are named by them."""
        return [stored_manifest(self.site, one.manifest.eval_id) or one.manifest for one in self.plan.evals]

    def expect(self) -> list[EvalManifest]:
        """Take in what earlier runs let expect; the manifests that count, new ones with jobs of like samples. AwsRefused."""
        history = [expected_of(self.site, one.manifest) for one in self.plan.evals]
        if not self.plan.sizes_by_person:
            evals = tuple(
                dataclasses.replace(one, manifest=resized(one.manifest, its.of_ref))
                for one, its in zip(self.plan.evals, history, strict=True)
            )
            self.plan = dataclasses.replace(self.plan, evals=evals)
        manifests = self.manifests()
        self.expected = {one.eval_id: expected_jobs(one, its) for one, its in zip(manifests, history, strict=True)}
        self.settled = min((its.slots for its in history if its.slots), default=0)
        return manifests

    def order(
        self,
        queues: RunQueues,
        *,
        needs_docker: bool,
        fleet_size: int,
        first_slots: int,
        worker_setup: str | None,
        rates: str | None,
    ) -> WorkerOrder:
        """What each instance of the run is told."""
        return WorkerOrder(
            run=self.id,
            region=self.config.region,
            bucket=self.site.bucket,
            prefix=self.site.prefix,
            eval_ids=self.eval_ids,
            environment=self.plan.environment,
            work_queue=queues.work,
            events_queue=queues.events,
            secrets_parameter=self.created.secrets,
            setting_values=self.settings,
            needs_docker=needs_docker,
            concurrency=self.config.concurrency_per_worker,
            fleet_size=max(1, fleet_size),
            first_slots=first_slots,
            lease_seconds=self.config.lease_seconds,
            idle_seconds=self.config.idle_seconds,
            worker_user=self.config.worker_user,
            registry=self.registry,
            worker_setup=worker_setup,
            rates=rates,
            log_level=os.environ.get(LOG_LEVEL, ""),
        )

    def remember(self) -> None:
        """Keep where the instances' slots had settled, for the next run of each eval; one without it only begins slower."""
        slots = settled_slots(self.watch.tally.workers.values()) if self.watch else 0
        try:
            for one in self.plan.evals if slots else ():
                note_slots(self.site, one.manifest, slots)
        except AwsRefused as refusal:
            get_run_logger().warning("Where slots had settled is not kept: %s", refusal)

    def warm_up(self) -> None:
        """Start the process that will compute metrics: importing Inspect takes seconds, which the last jobs take anyway."""
        if self.warm:
            with suppress(OSError):  # then the merge starts its own
                self.warm.start()

    def dismiss(self) -> None:
        """Let the workers go while the results are collected: by themselves if the work is done, at once if it is given up."""
        try:
            if self.why:
                workers_of.stop(self.created.workers, why=self.why)
            self.site.queues.delete(self.created.intake)
        except Exception as error:  # noqa: BLE001 - clean-up does it again; the results come first
            get_run_logger().warning("The workers could not be dismissed: %s", error)

    def show(self, progress: Progress) -> None:
        """Tell everybody who follows the run how far it is."""
        self.last = progress
        listener.get().progress(progress)
        try:
            self.artifacts.show(progress)
        except Exception as error:  # noqa: BLE001 - only for the eyes, and shown at the next look; what lasts ends the watch
            get_run_logger().debug("The artifacts could not be updated: %s", error)
        if time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            get_run_logger().info("%s", progress.line())

    def report(self, evals: list[EvalReport]) -> RunReport:
        """What the run came to."""
        return RunReport(
            run=self.id,
            outcome=outcome_of(evals),
            why=self.why,
            evals=evals,
            instances=self.last.launched if self.last else 0,
            seconds=round(time.monotonic() - self._began, 1),
            cost=self.last.cost if self.last else 0.0,
            left=self.left,
        )

    def _take_stock(self) -> None:
        """Hear the workers' last words, and show once more how they are and what they cost: by now each has ended."""
        if self.watch:
            self.watch.hear()
            self.last = self.watch.take_stock()
            self.artifacts.show(self.last)


controlled: ContextVar[str] = ContextVar("controlled", default="")
"""Flow run id of the run that this process controls: in its subflows Prefect names theirs, which nobody cancels."""


def asked_to_end() -> bool:
    """Whether a person has asked for the end of this run. Asked once: False where Prefect doesn't answer."""
    run = controlled.get() or runtime.flow_run.id
    try:
        with temporary_settings(QUICK):
            return bool(run) and workers_of.is_being_cancelled(str(run))
    except (httpx.HTTPError, ObjectNotFound):
        return False


def stage(name: str) -> None:
    """A step of the run begins: for the log, and for whoever follows."""
    get_run_logger().info(name)
    listener.get().stage(name)


@contextmanager
def undisturbed(
    *,
    seconds: float,
    say: Callable[[str], None],
    still: str = "cleaning up",
    leaves: str = "what is left would go on costing money. Ctrl-C once more leaves it to `fleet reap`",
    left: str = "left as it is: `fleet reap` removes it",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """A block of at most about so many seconds that no signal cuts short, but for a Ctrl-C of somebody who knows what it leaves.

    At a terminal people press it again. They are told what goes on (`still`, `leaves`), and only who presses it once more has
    their way, which `left` says.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[float] = []

    def interrupted(_number: int, _frame: object) -> None:
        if not told:
            told.append(clock())
            say(f"still {still}, {seconds:g} s at most: {leaves}")
        elif clock() - told[0] >= ONCE_MORE_S:
            say(left)
            raise KeyboardInterrupt

    # Who else listens would take a Ctrl-C in here for the end of a run that ends by itself (`fleet.backends.farewell`).
    listening = signal.set_wakeup_fd(-1)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with deaf_to_sigterm():
            yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(listening, warn_on_full_buffer=False)


@contextmanager
def deaf_to_sigterm() -> Iterator[None]:
    """A process pool sends SIGTERM to a run that is being cancelled, also one that is cleaning up already for that very reason.
    It kills what is left 30 s later, which is longer than an early clean-up takes. `fleet run` reminds itself by SIGALRM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is ever interrupted by a signal
        return
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        # Heard and forgotten: Linux starts a timer anew only when its signal is delivered.
        signal.SIGALRM: signal.signal(signal.SIGALRM, lambda *_: None),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
