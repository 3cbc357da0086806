"""The story of a run: plan, estimate, approve, check the image, prepare, launch, secrets, watch, collect, clean up."""

from __future__ import annotations

import tempfile
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from prefect import flow, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from blocks.secrets import secret_values
from blocks.unbuilt import refuse_unbuilt
from bootstrap.run_plan import RunPlan, plan_run, planned_ahead
from fleet.aws.identity import caller
from fleet.aws.images import WorkerImage
from fleet.aws.parameters import check_secret_size
from fleet.aws.prices import hourly_price
from fleet.evals.cost import FIRST_SLOTS, Estimate, estimate
from fleet.evals.delivery import check_log_dir
from fleet.evals.documents import EvalId, WorkerOrder
from fleet.evals.listener import listener
from fleet.evals.lock import HOLD_S, EvalLock
from fleet.evals.preparation import (
    RunQueues,
    create_queues,
    failure_records,
    send_jobs,
    settle_manifest,
    standing,
    tags_of,
)
from fleet.evals.progress import Finished, Progress, RunTally, Stop, TopUp
from fleet.evals.report import EvalReport, RunReport, outcome_of
from fleet.evals.request import EvalRequest
from fleet.evals.site import Site
from fleet.pool import runs as workers_of
from fleet.pool.clean_up import Created, clean_up, close_intake
from flows.artifacts import LiveArtifacts, show_estimate, show_report
from flows.check_ami import check_ami
from flows.collect_results import collect_results
from flows.launch_fleet import launch_fleet
from flows.names import own_name, run_name
from flows.provision_secrets import provision_secrets
from flows.watch import CancelledByPerson, Watch, watching

APPROVAL_S = 24 * 3600
"""How long a run waits for a person's approval."""
GRACE_S = 30.0
"""How long instances get to end by themselves once the work is done."""
PROGRESS_S = 30.0
"""Between two lines of progress in the log; the artifacts follow each look."""


class Approval(RunInput):
    """A person's answer to the estimate."""

    launch: bool = Field(
        default=True,
        title="Launch the instances",
        description="Switched off, the run ends here; nothing has been created.",
    )


@flow(name="run-eval", flow_run_name=run_name, persist_result=False)
def run_eval(
    request: EvalRequest,
    config: Ec2Config = Ec2Config(),
    account: str = "default",
    worker_secrets: str | None = None,
) -> State[RunReport]:
    """Run Inspect evals on a fleet of EC2 instances and deliver one log for each task and model.

    What the run created is gone when it ends; what a killed run leaves, the same request takes up again. Results are kept
    in any case.

    Args:
        request: What to run: tasks, models, packages, source.
        config: The fleet: instance types, how many, spot, image.
        account: Name of the Fleet Account block.
        worker_secrets: Name of a Worker Secrets block whose values the workers get.
    """
    refuse_unbuilt(request, config)
    site = cast("FleetAccount", FleetAccount.load(account)).site(config.region)
    check_log_dir(request.log_dir)
    check_secret_size(secret_values(request.secrets, worker_secrets))

    with one_heartbeat(), tempfile.TemporaryDirectory(prefix="inspect-fleet-plan-") as scratch:
        plan = make_plan(request, config, Path(scratch))
        run = Run(site, plan, config, account)
        offer = make_estimate(run)
        if config.estimate:
            return ended(RunReport(run=run.id, outcome="estimated", why=offer.line()))
        if not approved(offer, config):
            return ended(RunReport(run=run.id, outcome="declined", why="a person decided against the launch"))
        image = check_ami(config, account)
        try:
            with run:
                prepare(run, request.secrets, worker_secrets)
                launch(run, image, offer.workers)
                follow(run, image)
                run.dismiss()
                stage("Collecting results")
                evals = collect_results(run.eval_ids, request.log_dir, config.region, account)
        except CancelledByPerson as cancelled:
            return cast("State[RunReport]", Cancelled(message=str(cancelled)))
        finally:
            run.take_stock()
    report = run.report(evals)
    show_report(report, run.last.workers if run.last else ())
    return ended(report)


def ended(report: RunReport) -> State[RunReport]:
    """The flow run's last state: green only if all is there, with what it came to as its message."""
    if report.outcome in ("incomplete", "error"):
        return cast("State[RunReport]", Failed(message=report.line(), data=report))
    return cast("State[RunReport]", Completed(message=report.line(), data=report))


def stage(name: str) -> None:
    """A step of the run begins: for the log, and for whoever follows."""
    get_run_logger().info(name)
    listener.get().stage(name)


def one_heartbeat() -> AbstractContextManager[object]:
    """The subflows live and die in this flow's process, under its heartbeat: their own would cost a second at each one's end."""
    return temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})


class Run:
    """One run on its way: what it works with, what it has created, how it went. Leaving it removes what it created.

    Not a dataclass: Prefect walks through the fields of those on their way to a task, and a plan may hold a million of them.
    """

    def __init__(self, site: Site, plan: RunPlan, config: Ec2Config, account: str) -> None:
        self.site, self.plan, self.config, self.account = site, plan, config, account
        self.id = str(runtime.flow_run.id)
        self.owner = caller(site.aws).name
        self.created = Created(run=self.id)
        self.eval_ids: list[EvalId] = [one.manifest.eval_id for one in plan.evals]
        self.price: float | None = None
        self.order: WorkerOrder | None = None
        self.secrets: list[str] = []
        self.worker_secrets: str | None = None
        self.watch: Watch | None = None
        self.artifacts = LiveArtifacts()
        self.last: Progress | None = None
        self.why = ""
        """Why the watch ended early; empty: every job was finished."""
        self.left: list[str] = []
        self._began = self._held = self._told = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stage("Cleaning up")
        early = kind is not None or bool(self.why)
        self.left = clean_up(
            self.site,
            self.created,
            workers_of,
            grace=0.0 if early else GRACE_S,
            why="the run ended early" if early else "the run is over",
            last_words=self.watch.hear if self.watch else lambda: None,
        )
        for what in self.left:
            get_run_logger().warning("Left behind: %s", what)

    def dismiss(self) -> None:
        """Let the workers go while the results are collected: by themselves if the work is done, at once if it is given up."""
        if self.why:
            workers_of.stop(self.created.workers, why=self.why)
        close_intake(self.site, self.created)

    def show(self, progress: Progress) -> None:
        """Tell everybody who follows the run how far it is."""
        self.last = progress
        listener.get().progress(progress)
        self.artifacts.show(progress)
        if time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            get_run_logger().info("%s", progress.line())

    def take_stock(self) -> None:
        """Show once more how the instances are, and what they cost: by now each has ended."""
        if self.watch and self.last:
            self.last = self.watch.take_stock()
            self.artifacts.show(self.last)

    def hold(self) -> None:
        """Renew the locks in time. LockHeld: another controller took an eval over, so this one must let go."""
        if time.monotonic() - self._held >= HOLD_S / 3:
            for lock in self.created.locks:
                lock.take(time.time())
            self._held = time.monotonic()

    def report(self, evals: list[EvalReport]) -> RunReport:
        """What the run came to."""
        return RunReport(
            run=self.id,
            outcome=outcome_of(evals),
            why=self.why,
            evals=evals,
            instances=len(self.created.workers),
            seconds=round(time.monotonic() - self._began, 1),
            cost=self.last.cost if self.last else 0.0,
            left=self.left,
        )


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE)
def make_plan(request: EvalRequest, config: Ec2Config, folder: Path) -> RunPlan:
    """Decide everything that can be decided before AWS is asked: environment, samples, jobs, eval ids."""
    log = get_run_logger()
    listener.get().stage("Planning")
    plan = planned_ahead.get()
    if plan is None:
        slots = config.max_workers * min(FIRST_SLOTS, config.concurrency_per_worker)
        plan = plan_run(
            request, folder, slots=slots, nonce=str(runtime.flow_run.id) if config.new_fleet else "", say=log.info
        )
    for warning in plan.warnings:
        log.warning(warning)
    for one in plan.evals:
        manifest = one.manifest
        log.info(
            "%s: %d samples, %d epochs, %d jobs",
            manifest.eval_id,
            len(manifest.sample_ids),
            manifest.epochs,
            len(manifest.jobs),
        )
    return plan


@task(name="estimate", task_run_name="estimate", cache_policy=NO_CACHE)
def make_estimate(run: Run) -> Estimate:
    """What is still to run, on how many instances, at what price."""
    config = run.config
    run.price = hourly_price(run.site.aws, config.instance_type, spot=config.spot)
    offer = estimate(
        [standing(run.site, one.manifest) for one in run.plan.evals],
        instance_type=config.instance_type,
        market="spot" if config.spot else "on-demand",
        region=config.region,
        max_workers=config.max_workers,
        concurrency=config.concurrency_per_worker,
        hourly=run.price,
        max_hours=config.max_hours,
    )
    get_run_logger().info("Estimate: %s", offer.line())
    show_estimate(offer)
    return offer


def approved(offer: Estimate, config: Ec2Config) -> bool:
    """Whether the fleet may be launched: by `auto_confirm`, by a person at the terminal, or in the UI, where the run waits."""
    if config.auto_confirm or not offer.workers:
        return True
    answer = listener.get().approve(offer)
    if answer is None:
        get_run_logger().info("Waiting for a person to approve: in the menu of this page, choose Resume")
        answer = pause_flow_run(
            wait_for_input=Approval.with_initial_data(description=offer.markdown(), launch=True),
            timeout=APPROVAL_S,
            key="approval",
        ).launch
    return answer


@task(name="prepare", task_run_name="prepare", cache_policy=NO_CACHE)
def prepare(run: Run, secrets: list[str], worker_secrets: str | None) -> None:
    """Put everything that instances will look for: artifacts, manifests, queues, messages."""
    listener.get().stage("Preparing")
    site = run.site
    since = datetime.now(UTC).isoformat(timespec="seconds")
    for eval_id in run.eval_ids:
        lock = EvalLock(site.objects, site.layout, eval_id, run=run.id, owner=run.owner, since=since)
        lock.take(time.time())
        run.created.locks.append(lock)
    if run.plan.source:
        site.objects.put_artifact(site.layout, run.plan.source.path)
    manifests = [settle_manifest(site, one.manifest, one.plan_log.read_bytes()) for one in run.plan.evals]
    tallies = {manifest.eval_id: standing(site, manifest) for manifest in manifests}
    earlier = {eval_id: failure_records(site, eval_id) for eval_id in tallies}
    tags = tags_of(run.id, run.eval_ids, run.owner)
    run.created.queues = create_queues(site, run.id, tags=tags, lease_seconds=run.config.lease_seconds)
    sent = send_jobs(site, run.created.queues.work, tallies.values())
    get_run_logger().info("%d jobs to run, %d done before", sent, sum(len(one.done) for one in tallies.values()))
    run.secrets, run.worker_secrets = secrets, worker_secrets
    run.order = worker_order(run, run.created.queues, needs_docker=any(one.needs_docker for one in manifests))
    run.watch = Watch(
        site=site,
        tally=RunTally(evals=tallies),
        events=run.created.queues.events,
        workers=run.created.workers,
        earlier_failures=earlier,
        secrets=run.order.secrets_parameter,
        price=run.price,
    )


def worker_order(run: Run, queues: RunQueues, *, needs_docker: bool) -> WorkerOrder:
    """What each instance of the run is told."""
    return WorkerOrder(
        run=run.id,
        region=run.config.region,
        bucket=run.site.bucket,
        prefix=run.site.prefix,
        eval_ids=run.eval_ids,
        environment=run.plan.environment,
        work_queue=queues.work,
        events_queue=queues.events,
        secrets_parameter=run.site.secrets_of(run.id) if run.secrets or run.worker_secrets else "",
        needs_docker=needs_docker,
        concurrency=run.config.concurrency_per_worker,
        lease_seconds=run.config.lease_seconds,
        idle_seconds=run.config.idle_seconds,
        worker_user=run.config.worker_user,
    )


def launch(run: Run, image: WorkerImage, count: int) -> None:
    """Launch `count` more instances and see to their secrets. No count: every job was done before."""
    if not count or run.order is None:
        return
    stage(f"Launching {count} × {run.config.instance_type}")
    first = len(run.created.workers) + 1
    title = own_name(str(runtime.flow_run.name))
    workers = launch_fleet(run.order, image.id, count, run.config, run.account, run.owner, first, title)
    run.created.workers += workers
    if run.order.secrets_parameter:
        run.created.parameters = True
        without = provision_secrets(run.id, workers, run.secrets, run.worker_secrets, run.config, run.account)
        for instance, why in without.items():
            listener.get().warn(f"{instance} gets no secrets and is ended: {why}")


def follow(run: Run, image: WorkerImage) -> None:
    """Be with the run until it is over. CancelledByPerson."""
    state = watch(run, image, return_state=True)
    if state.is_cancelled():
        raise CancelledByPerson(state.message)
    state.result()


@task(name="watch", task_run_name="watch", cache_policy=NO_CACHE)
def watch(run: Run, image: WorkerImage) -> State[None] | None:
    """Follow the run to its end, replacing instances that were lost. A run that a person cancelled makes this Cancelled."""
    if run.watch is None:
        return None
    stage("Running")
    try:
        for progress, step in watching(run.watch):
            run.hold()
            run.show(progress)
            match step:
                case Finished():
                    break
                case Stop(why=why):
                    run.why = why
                    get_run_logger().error("Stopped: %s", why)
                    break
                case TopUp(count=count):
                    get_run_logger().warning("Launching %d more in place of lost instances", count)
                    run.watch.replaced += count
                    launch(run, image, count)
                case _:
                    pass
    except CancelledByPerson as cancelled:
        return cast("State[None]", Cancelled(message=str(cancelled)))
    get_run_logger().info("%s", run.last.line() if run.last else "nothing to do")
    return None
