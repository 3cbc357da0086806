"""The story of a run: plan, estimate, approve, check the image, prepare, launch, secrets, watch, collect, clean up."""

from __future__ import annotations

import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from prefect import flow, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from blocks.account import fleet_account
from blocks.ec2_config import Ec2Config
from blocks.hawk import Place
from blocks.secrets import run_secrets
from bootstrap.run_plan import RunPlan, plan_run, planned_ahead
from fleet.aws.identity import Caller, caller
from fleet.aws.images import WorkerImage
from fleet.aws.prices import hourly_prices
from fleet.aws.processors import vcpus, vcpus_of_family
from fleet.evals.cost import Estimate, check_limit, estimate, fleet_slots
from fleet.evals.delivery import check_log_dir
from fleet.evals.documents import WorkerOrder
from fleet.evals.instance_sizes import near, to_compare
from fleet.evals.last import why_new
from fleet.evals.listener import listener
from fleet.evals.preparation import (
    standing,
)
from fleet.evals.registry import has_login
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import RunSecrets
from fleet.evals.setup_script import read_setup_script
from fleet.evals.site import Site
from fleet.evals.steps import Finished, Stop, TopUp, ends_soon
from fleet.pool import runs as workers_of
from flows.artifacts import instances, show_estimate, show_report
from flows.check_ami import check_ami
from flows.collect_results import collect_results, having
from flows.launch_fleet import batches, launch_fleet
from flows.names import own_name, run_name
from flows.passing import again
from flows.preflight import check_permissions
from flows.prepare import prepare, send_owed, still_ours
from flows.provisioning import Provisioning
from flows.run import Run, asked_to_end, controlled, stage
from flows.run_on_hawk import run_on_hawk
from flows.watch import CancelledByPerson, Watch, patiently, watching

APPROVAL_S = 24 * 3600
"""How long a run waits for a person's approval."""


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
    backend: Place = "fleet",
    hawk: str = "default",
) -> State[RunReport]:
    """Run Inspect evals on a fleet of EC2 instances, or on a Hawk deployment, and deliver one log for each task and model.

    What the run created is gone when it ends; what a killed run leaves, the same request takes up again. Results are kept
    in any case.

    Args:
        request: What to run: tasks, models, packages, source.
        config: The fleet: instance types, how many, spot, image.
        account: Name of the Fleet Account block.
        worker_secrets: Name of a Worker Secrets block whose values the workers get.
        backend: Where it runs: on a fleet of our own, or on a Hawk deployment.
        hawk: Name of the Hawk Deployment block; counts only for the backend hawk.
    """
    token = controlled.set(str(runtime.flow_run.id or ""))
    try:
        if backend == "hawk":
            return as_asked(hawk_run(request, config, hawk, worker_secrets))
        return as_asked(whole_run(request, config, account, worker_secrets))
    except Exception as error:
        if asked_to_end():
            return cast("State[RunReport]", Cancelled(message=f"cancelled by a person; it had failed: {error}"))
        raise
    finally:
        controlled.reset(token)


def whole_run(request: EvalRequest, config: Ec2Config, account: str, worker_secrets: str | None) -> State[RunReport]:
    """The story itself, and the state that it ends in. Its errors come through."""
    setup = read_setup_script(config.worker_setup)
    check_log_dir(request.log_dir)
    home = fleet_account(account)
    config = home.settled(config)
    secrets = run_secrets(request, worker_secrets, home.parameter_place(config.region))

    with one_heartbeat(), tempfile.TemporaryDirectory(prefix="inspect-fleet-plan-") as scratch:
        if not config.estimate:
            check_permissions(home, config, secrets=bool(secrets))
        plan = make_plan(request, config, Path(scratch), secrets)
        registry = home.registry_access()
        if plan.needs_docker and not config.estimate:
            has_login(registry, secrets.variables())
        site = home.site(config.region)
        run = Run(
            site,
            plan,
            config,
            account,
            secrets=secrets,
            advanced=home.advanced_parameters,
            registry=registry,
            me=identify(site),
            setup=setup,
        )
        offer = make_estimate(run)
        if config.estimate:
            return ended(RunReport(run=run.id, outcome="estimated", why="\n".join(offer.lines())))
        if not approved(offer, config):
            return ended(RunReport(run=run.id, outcome="declined", why="a person decided against the launch"))
        image = check_ami(config, account)
        if asked_to_end():  # while it planned or waited for a yes; from its launch on the watch looks
            return cast("State[RunReport]", Cancelled(message="cancelled by a person; nothing was created"))
        try:
            with run:
                order, watch, owed = prepare(run)
                send_owed(run, owed)
                still_ours(run)
                run.owed = batches(order.fleet_size if watch.tally.open_jobs else 0)
                launch_owed(run, order, image)
                follow(run, order, image, watch)
                run.dismiss()
                run.remember()
                stage("Collecting results")
                run.warm_up()
                with having(secrets, run.warm, run.in_force):
                    evals = patiently(lambda: collect_results(run.eval_ids, request.log_dir, config.region, account))
        except CancelledByPerson as cancelled:
            return cast("State[RunReport]", Cancelled(message=str(cancelled)))
    report = run.report(evals)
    show_report(report, instances(run.last.workers if run.last else ()))
    return ended(report)


def hawk_run(request: EvalRequest, config: Ec2Config, hawk: str, worker_secrets: str | None) -> State[RunReport]:
    """The same where a Hawk deployment runs it."""
    try:
        return ended(run_on_hawk(request, config, hawk, worker_secrets))
    except CancelledByPerson as cancelled:
        return cast("State[RunReport]", Cancelled(message=str(cancelled)))


def ended(report: RunReport) -> State[RunReport]:
    """The flow run's last state: green only if all is there, with what it came to as its message."""
    if report.outcome in ("incomplete", "error"):
        return cast("State[RunReport]", Failed(message=report.line(), data=report))
    return cast("State[RunReport]", Completed(message=report.line(), data=report))


def as_asked(state: State[RunReport]) -> State[RunReport]:
    """The last state of a run: Cancelled where a person asked for that when nobody looked any more, as its results were collected.

    Prefect takes no other end of such a run, and would show it as Cancelling for ever.
    """
    if state.is_cancelled() or not asked_to_end():
        return state
    return cast(
        "State[RunReport]", Cancelled(message=f"cancelled by a person at its end: {state.message}", data=state.data)
    )


@task(name="identify", task_run_name="identify", cache_policy=NO_CACHE, **again())
def identify(site: Site) -> Caller:
    """Who this run is to AWS."""
    return caller(site.aws)


def one_heartbeat() -> AbstractContextManager[object]:
    """The subflows live and die in this flow's process, under its heartbeat: their own would cost a second at each one's end."""
    return temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE)
def make_plan(request: EvalRequest, config: Ec2Config, folder: Path, secrets: RunSecrets) -> RunPlan:
    """Decide everything that can be decided before AWS is asked: environment, samples, jobs, eval ids."""
    log = get_run_logger()
    plan = planned_ahead.get()
    if plan is None:
        listener.get().stage("Planning")
        slots = fleet_slots(config.max_workers, config.concurrency_per_worker)
        nonce = str(runtime.flow_run.id) if config.new_fleet else ""
        # A model's provider may want its key as soon as it is named.
        keys = {**os.environ, **secrets.variables()}
        plan = plan_run(request, folder, slots=slots, nonce=nonce, say=log.info, env=keys)
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


@task(name="estimate", task_run_name="estimate", cache_policy=NO_CACHE, **again())
def make_estimate(run: Run) -> Estimate:
    """What is still to run, on how many instances, at what price."""
    config = run.config
    manifests = run.expect()
    for one, manifest in zip(run.plan.evals, manifests, strict=True):
        if manifest is one.manifest and (line := why_new(run.site, manifest)):
            get_run_logger().info("%s", line)
            listener.get().warn(line)
    types = [config.instance_type, *config.instance_type_fallbacks]
    cpus = vcpus(run.site.aws, types)
    family = vcpus_of_family(run.site.aws, config.instance_type) if any(run.expected.values()) else {}
    # All of them at once: where AWS doesn't answer, each call would wait its seconds.
    prices = hourly_prices(run.site.aws, [*types, *near(family, config.instance_type)], spot=config.spot)
    offer = estimate(
        [standing(run.site, manifest) for manifest in manifests],
        prices=[price for price in prices if price.instance_type in types],
        region=config.region,
        max_workers=config.max_workers,
        concurrency=config.concurrency_per_worker,
        vcpus=cpus.values(),
        max_hours=config.max_hours,
        expected=run.expected,
        settled=run.settled,
        kinds=to_compare(prices, family, config.instance_type, "spot" if config.spot else "on-demand"),
    )
    run.prices, run.workers = offer.prices, offer.workers
    if not config.estimate:
        check_limit(offer, config.max_cost)
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
            wait_for_input=Approval.with_initial_data(description=offer.markdown()),
            timeout=APPROVAL_S,
            key="approval",
        ).launch
    return answer


def launch_owed(run: Run, order: WorkerOrder, image: WorkerImage) -> None:
    """Launch the next batch of the fleet, if there is one, and work for it: the ones before may have done most by then."""
    watch = run.watch
    if watch and watch.tally.open_jobs <= sum(fact.phase.alive for fact in watch.facts):
        run.owed.clear()
    if run.owed:
        launch(run, order, image, run.owed.pop(0))


def launch(run: Run, order: WorkerOrder, image: WorkerImage, count: int) -> None:
    """Launch `count` more instances."""
    stage(f"Launching {count} × {run.config.instance_type}")
    first = len(run.created.workers) + 1
    title = own_name(str(runtime.flow_run.name))
    run.created.workers += patiently(
        lambda: launch_fleet(order, image.id, count, run.config, run.account, run.owner, run.key, first, title)
    )


def follow(run: Run, order: WorkerOrder, image: WorkerImage, watch: Watch) -> None:
    """Be with the run until it is over. CancelledByPerson; LockHeld: another controller has taken an eval over."""
    state = watch_run(run, order, image, watch, return_state=True)
    if state.is_cancelled():
        raise CancelledByPerson(state.message)
    state.result()


@task(name="watch", task_run_name="watch", cache_policy=NO_CACHE)
def watch_run(run: Run, order: WorkerOrder, image: WorkerImage, watch: Watch) -> State[None] | None:
    """Follow the run to its end, replacing instances that were lost. A run that a person cancelled makes this Cancelled."""
    stage("Running")
    try:
        with Provisioning(run.id, watch.handout) as provisioning:
            for progress, step in watching(watch, lambda: workers_of.is_being_cancelled(run.id)):
                if run.locks.lost:
                    raise run.locks.lost
                run.show(progress)
                if ends_soon(watch.tally):
                    run.warm_up()
                for instance, reason in provisioning.look(watch.facts):
                    listener.get().warn(f"{instance} gets no secrets and is ended: {reason}")
                match step:
                    case Finished():
                        break
                    case Stop(why=why):
                        run.why = why
                        get_run_logger().error("Stopped: %s", why)
                        break
                    case TopUp(count=count):
                        get_run_logger().warning("Launching %d more in place of lost instances", count)
                        watch.replaced += count
                        launch(run, order, image, count)
                    case _:
                        launch_owed(run, order, image)
    except CancelledByPerson as cancelled:
        return cast("State[None]", Cancelled(message=str(cancelled)))
    get_run_logger().info("%s", run.last.line() if run.last else "nothing to do")
    return None
