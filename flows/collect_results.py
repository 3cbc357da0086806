"""One log out of many results: streamed from S3, merged, scored again as a whole, and delivered."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from blocks.account import fleet_account
from bootstrap.environment import build
from bootstrap.install import fetch_artifact
from bootstrap.recompute import Recompute, Warm, remedy
from bootstrap.setting_values import values_in_place
from fleet.aws.failures import AwsRefused
from fleet.cache import cache_folder
from fleet.errors import FleetError
from fleet.evals.collection import fetched
from fleet.evals.delivery import deliver
from fleet.evals.documents import EvalId, EvalManifest
from fleet.evals.durations import note_durations
from fleet.evals.merge import merge
from fleet.evals.preparation import failed_jobs, finished_jobs, set_aside
from fleet.evals.progress import tally_of
from fleet.evals.report import EvalReport, metrics_of
from fleet.evals.secrets import RunSecrets
from fleet.evals.settings import VALUES_ENDING
from fleet.evals.site import Site
from flows.names import collect_name
from flows.passing import again

at_hand: ContextVar[RunSecrets | None] = ContextVar("at_hand", default=None)
"""The secrets of the run that collects: code of the request is imported here too, and may want what it had where jobs ran.

Not a parameter of the flow: those are shown to everybody. Who collects by hand (None) has none but their own environment.
"""


warm: ContextVar[Warm | None] = ContextVar("warm", default=None)
"""Processes that the run which collects has started ahead, in which metrics will be computed."""


known: ContextVar[Mapping[EvalId, EvalManifest]] = ContextVar("known", default=MappingProxyType({}))
"""Manifests that the run which collects has read or put: one of a hundred thousand jobs takes 120 MB a second time."""


@contextmanager
def having(
    secrets: RunSecrets, processes: Warm | None = None, manifests: Iterable[EvalManifest] = ()
) -> Iterator[None]:
    """Have these secrets at hand for the length of a block, processes that were started ahead, and manifests as they lie in S3."""
    token, of_warm = at_hand.set(secrets), warm.set(processes)
    of_known = known.set({manifest.eval_id: manifest for manifest in manifests})
    try:
        yield
    finally:
        at_hand.reset(token)
        warm.reset(of_warm)
        known.reset(of_known)


@flow(name="collect-results", flow_run_name=collect_name)
def collect_results(
    eval_ids: list[str], log_dir: str | None = None, region: str | None = None, account: str = "default"
) -> list[EvalReport]:
    """Merge what lies in S3 for each of these evals and deliver the logs to `log_dir` (a folder, an s3:// address, or
    only the bucket).

    May be run again at any time; what is missing makes a log of status `error` that `inspect eval-retry` can finish. An eval that
    can't be merged is named in its report, and the others are.
    """
    site = fleet_account(account).site(region)
    return [collected(site, eval_id, log_dir) for eval_id in eval_ids]


def collected(site: Site, eval_id: EvalId, log_dir: str | None) -> EvalReport:
    """The report of one eval, whatever became of its merge: its results lie in S3 and can be collected again."""
    try:
        return merge_eval.with_options(task_run_name=f"merge {eval_id}")(site, eval_id, log_dir)
    except (FleetError, OSError) as error:
        get_run_logger().error("%s could not be collected: %s", eval_id, error)
        return unmerged(manifest_of(site, eval_id), site, str(error))


def manifest_of(site: Site, eval_id: EvalId) -> EvalManifest:
    """The manifest that counts, from S3 where this process doesn't hold it."""
    return known.get().get(eval_id) or EvalManifest.read(site.objects.get(site.layout.manifest(eval_id)))


def unmerged(manifest: EvalManifest, site: Site, why: str) -> EvalReport:
    """What is said of an eval whose results could not be merged."""
    planned = tally_of(manifest).samples
    return EvalReport(
        eval_id=manifest.eval_id,
        task=manifest.task.name,
        model=manifest.model.name,
        status="error",
        log="",
        stored=site.objects.uri(site.layout.results(manifest.eval_id)),
        samples=planned,
        samples_done=0,
        errors=0,
        missing=planned,
        why=f"its results are kept, and could not be merged: {why}",
    )


@task(name="merge", cache_policy=NO_CACHE, **again())
def merge_eval(site: Site, eval_id: EvalId, log_dir: str | None) -> EvalReport:
    """The merged log of one eval."""
    manifest = manifest_of(site, eval_id)
    finished = finished_jobs(site, eval_id)
    done = [job.job for job in manifest.jobs if job.job in finished]
    del finished  # of a hundred thousand, the merge needs the memory
    failed = failed_jobs(site, eval_id)
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-merge-") as scratch:
        folder = Path(scratch)
        plan_log = folder / "plan.eval"
        site.objects.download(site.layout.plan(eval_id), plan_log)
        environment = build(
            manifest.environment,
            cache=cache_folder(),
            artifact=lambda sha256: fetch_artifact(site.objects, site.layout, sha256, folder),
        )
        merged = folder / manifest.log_name
        of_run = at_hand.get()
        secrets = of_run or RunSecrets()
        lacked = lacked_by_hand(manifest) if of_run is None else ""
        with values_in_place(environment, secrets.settings()):
            report = merge(
                manifest,
                plan_log,
                fetched(site.objects, (site.layout.result(eval_id, job) for job in done), folder / "jobs"),
                merged,
                recompute=Recompute(
                    environment, env={**os.environ, **secrets.variables()}, lacked=lacked, warm=warm.get()
                ),
                missing=failed,
            )
        # Also where the log is there, with what the user's code raised for want of them.
        unmeasured = remedy(lacked) if lacked and report.samples and report.results is None else ""
        stored = site.layout.merged(eval_id, manifest.log_name)
        store_log(site, stored, merged)
        # After that: of a merge that is begun again they are to be told again.
        for unusable in report.unusable:
            get_run_logger().error("%s; the same request runs it again", unusable)
            set_aside(site, eval_id, unusable.job)
        log, undelivered = delivered(merged, log_dir, site.objects.uri(stored))
    remember(site, manifest, report.seconds)
    get_run_logger().info(
        "%s: %s, %d of %d samples, in %s", eval_id, report.status, report.samples, report.planned, log
    )
    return EvalReport(
        eval_id=eval_id,
        task=manifest.task.name,
        model=manifest.model.name,
        status=report.status,
        log=log,
        stored=site.objects.uri(stored),
        samples=report.planned,
        samples_done=report.samples,
        errors=report.sample_errors,
        missing=report.planned - report.samples,
        why="; ".join(part for part in (report.error, unmeasured, undelivered) if part),
        metrics=metrics_of(report.results),
    )


@task(name="store-log", task_run_name="store-log", cache_policy=NO_CACHE, **again())
def store_log(site: Site, key: str, merged: Path) -> None:
    """Put the merged log into the bucket; a step of its own, so that no merge is done twice for its sake."""
    site.objects.put(key, merged)


def remember(site: Site, manifest: EvalManifest, seconds: Mapping[str, Sequence[float]]) -> None:
    """Keep what samples took, for the next run of the task; one without it is only planned worse."""
    try:
        note_durations(site, manifest, seconds)
    except AwsRefused as refusal:
        get_run_logger().warning("What samples took is not kept: %s", refusal)


def lacked_by_hand(manifest: EvalManifest) -> str:
    """What the jobs of an eval had and whoever collects it by hand hasn't: where each of it comes from is said with it."""
    secrets = "the run's secrets, but for variables that are set where collect-results runs"
    if names := [setting.name for setting in manifest.environment.settings]:
        files = ", ".join(f"{name}{VALUES_ENDING}" for name in names)
        return f"the values of the settings ({files}, which lie beside the checkouts where the run was started) and {secrets}"
    return secrets


def delivered(merged: Path, log_dir: str | None, stored: str) -> tuple[str, str]:
    """Where the log lies for the person, and why it isn't where they asked for it."""
    if not log_dir:
        return stored, ""
    try:
        return deliver(merged, log_dir), ""
    except (FleetError, OSError) as error:
        return stored, f"the log could not be put into {log_dir} and stays in the bucket: {error}"
