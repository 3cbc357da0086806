"""What instances will look for, put where they look: locks, artifacts, manifests, queues, messages. Each may be begun again."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from fleet.evals.documents import EvalId, JobId, WorkerOrder
from fleet.evals.last import note_as_last
from fleet.evals.listener import listener
from fleet.evals.lock import EvalLock, LockProcess
from fleet.evals.preparation import (
    FailureRecords,
    create_queues,
    owed_jobs,
    send_jobs,
    settle_manifest,
    standing,
    tags_of,
)
from fleet.evals.progress import RunTally
from fleet.evals.result_checks import ResultChecks
from fleet.evals.steps import Limits
from fleet.pool import runs as workers_of
from flows.passing import again
from flows.run import Run
from flows.watch import Watch


@task(name="prepare", task_run_name="prepare", cache_policy=NO_CACHE, **again())
def prepare(run: Run) -> tuple[WorkerOrder, Watch, deque[tuple[EvalId, JobId]]]:
    """Put everything that instances will look for: artifacts, manifests, queues; the jobs that are to be sent.

    LockHeld: another run works on it.
    """
    listener.get().stage("Preparing")
    still_ours(run)
    site, created = run.site, run.created
    since, me = datetime.now(UTC).isoformat(timespec="seconds"), LockProcess.current()
    try:
        run.locks.take(
            (
                EvalLock(site.objects, site.layout, eval_id, run=run.id, owner=run.owner, since=since, process=me)
                for eval_id in run.eval_ids[len(run.locks.locks) :]
            ),
            workers_of.end_of,
        )
    finally:
        run.end_earlier()
    for archive in run.plan.archives:
        site.objects.put_artifact(site.layout, archive)
    manifests = [settle_manifest(site, one.manifest, one.plan_log.read_bytes()) for one in run.plan.evals]
    run.in_force = manifests
    for manifest in manifests:
        note_as_last(site, manifest, since)
    tally = RunTally(evals={manifest.eval_id: standing(site, manifest) for manifest in manifests})
    failures = {eval_id: FailureRecords(site, eval_id) for eval_id in run.eval_ids}
    queues = create_queues(
        site,
        run.key,
        tags=tags_of(run.id, run.eval_ids, run.owner),
        lease_seconds=run.config.lease_seconds,
        made=created.queue,
    )
    created.intake = queues.work
    owed = owed_jobs(tally.evals.values(), run.expected)
    jobs = len(owed)
    get_run_logger().info("%d jobs to run, %d done before", jobs, sum(len(one.done) for one in tally.evals.values()))
    setup, rates = (site.objects.put_artifact(site.layout, it) if it else None for it in (run.setup, run.plan.rates))
    order = run.order(
        queues,
        worker_setup=setup,
        rates=rates,
        needs_docker=any(manifest.needs_docker for manifest in manifests),
        first_slots=run.settled,
        fleet_size=min(run.workers, jobs),
    )
    run.watch = Watch(
        site=site,
        tally=tally,
        events=queues.events,
        dead=queues.dead,
        workers=created.workers,
        failures=failures,
        checks=ResultChecks(site, queues.work),
        handout=run.handout if created.secrets else None,
        prices=run.prices,
        limits=Limits(
            stall_hours=run.config.stall_hours, max_cost=run.config.max_cost, deadline_hours=run.config.deadline_hours
        ),
    )
    return order, run.watch, owed


@task(name="send-jobs", task_run_name="send-jobs", cache_policy=NO_CACHE, **again())
def send_owed(run: Run, owed: deque[tuple[EvalId, JobId]]) -> None:
    """A message for each job."""
    send_jobs(run.site, run.created.intake, owed)


def still_ours(run: Run) -> None:
    """Where a step took long, or was begun again. LockHeld: another controller has taken an eval over meanwhile."""
    run.locks.renew()
    if run.locks.lost:
        raise run.locks.lost
