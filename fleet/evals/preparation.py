"""What a fleet finds when it boots: artifacts, manifests and plan logs in S3, queues, and a message for each open job.

Made in this order, so that whatever is killed in between leaves nothing a worker could trip on, and removed by
`fleet.pool.clean_up` in its own order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fleet.aws.objects import ObjectAbsent, StoredObject
from fleet.aws.queues import BATCH, PartlySent
from fleet.aws.tags import value_of
from fleet.evals.dead_letters import MOST_TAKEN
from fleet.evals.documents import EvalId, EvalManifest, JobFailure, JobId, JobMessage
from fleet.evals.progress import EvalTally, tally_of
from fleet.evals.site import Site
from fleet.evals.sizing import Expected, sending_order

RUN_TAG = "inspect-fleet:run"
"""Tag of everything a run creates: the flow run id of its `run_eval`."""
EVAL_TAG = "inspect-fleet:evals"
OWNER_TAG = "LaunchedBy"
"""Who started it, as IAM knows them."""
HOME_TAG = "inspect-fleet:home"
"""Tag of a run's queues: under which address its locks lie. Who looks elsewhere, as with a block that names another bucket by now,
doesn't take their absence for the end of the run."""

MOST_TAG_CHARS = 256
"""Of a tag's value, by the rules of AWS."""


@dataclass(frozen=True, slots=True)
class RunQueues:
    """The queues of one run, by URL."""

    work: str
    events: str
    dead: str


def queue_name(run: str, use: str) -> str:
    """Queues are named by flow run: two runs of one eval must never share, nor delete, each other's."""
    return f"inspect-fleet-{run}-{use}"


def tags_of(run: str, eval_ids: Sequence[EvalId], owner: str) -> dict[str, str]:
    """The tags of everything a run creates. EC2 cuts nothing by itself."""
    return {RUN_TAG: run, EVAL_TAG: " ".join(eval_ids)[:MOST_TAG_CHARS], OWNER_TAG: owner[:MOST_TAG_CHARS]}


def home_of(site: Site) -> str:
    """The address under which a deployment's locks lie, as a tag's value."""
    return value_of(site.objects.uri(site.prefix))


def stored_manifest(site: Site, eval_id: EvalId) -> EvalManifest | None:
    """The manifest with which this eval ran before."""
    try:
        return EvalManifest.read(site.objects.get(site.layout.manifest(eval_id)))
    except ObjectAbsent:
        return None


def settle_manifest(site: Site, fresh: EvalManifest, plan_log: bytes) -> EvalManifest:
    """The manifest that counts: the stored one where this eval has run before, else `fresh`, which is stored now.

    The stored one's jobs are those that results were written for. The plan log is put first: a manifest never points at none.
    """
    if stored := stored_manifest(site, fresh.eval_id):
        return stored
    site.objects.put(site.layout.plan(fresh.eval_id), plan_log)
    if site.objects.put_new(site.layout.manifest(fresh.eval_id), fresh.write().encode()):
        return fresh
    return stored_manifest(site, fresh.eval_id) or fresh


def stored_results(site: Site, eval_id: EvalId) -> dict[JobId, StoredObject]:
    """The result objects there are, by job."""
    return {site.layout.job_of(stored.key): stored for stored in site.objects.list(site.layout.results(eval_id))}


def stored_jobs(site: Site, tally: EvalTally) -> set[JobId]:
    """Those of an eval's jobs whose result object exists. Of a hundred thousand, nothing else of the listing is kept."""
    listed = (site.layout.job_of(stored.key) for stored in site.objects.list(site.layout.results(tally.eval_id)))
    return {job for job in listed if job in tally.jobs}


def finished_jobs(site: Site, eval_id: EvalId) -> set[JobId]:
    """Jobs whose result object exists."""
    return set(stored_results(site, eval_id))


class FailureRecords:
    """The failure records of one eval, each read once. Those that were there before this run don't count: it tries again."""

    def __init__(self, site: Site, eval_id: EvalId) -> None:
        self._eval_id = eval_id
        self._earlier = failure_keys(site, eval_id)
        self._read: dict[tuple[str, str], JobFailure] = {}

    def final(self, site: Site) -> dict[JobId, str]:
        """Jobs that failed for good in this run, with the reason."""
        for key, etag in failure_keys(site, self._eval_id).items():
            if self._earlier.get(key) != etag and (key, etag) not in self._read:
                self._read[key, etag] = JobFailure.read(site.objects.get(key))
        return {record.job: f"{record.kind}: {record.why}" for record in self._read.values() if record.final}


def failure_keys(site: Site, eval_id: EvalId) -> dict[str, str]:
    """Key and ETag of every failure record there is now."""
    return {
        stored.key: stored.etag
        for stored in site.objects.list(site.layout.failures(eval_id))
        if stored.key.endswith(".json")
    }


def failed_jobs(site: Site, eval_id: EvalId) -> dict[JobId, str]:
    """Jobs with a record of a final failure, with the reason."""
    records = [JobFailure.read(site.objects.get(key)) for key in failure_keys(site, eval_id)]
    return {record.job: f"{record.kind}: {record.why}" for record in records if record.final}


def set_aside(site: Site, eval_id: EvalId, job: JobId, etag: str = "") -> None:
    """Move a result that can't be used out of the way, so that the job counts as open again. Nothing is deleted that isn't kept.

    `etag`: of the result that was looked at; another one that lies there by now stays. Empty: of what lies there.
    """
    key = site.layout.result(eval_id, job)
    etag = etag or next((stored.etag for stored in site.objects.list(key)), "")
    if etag and site.objects.copy(key, site.layout.aside(eval_id, job, etag), etag):
        site.objects.delete_if(key, f'"{etag}"')


def standing(site: Site, manifest: EvalManifest) -> EvalTally:
    """How far an eval is by what lies in S3. Failures of earlier runs don't count: the same request tries them again."""
    tally = tally_of(manifest)
    tally.done = stored_jobs(site, tally)
    return tally


def create_queues(
    site: Site, run: str, *, tags: dict[str, str], lease_seconds: int, made: Callable[[str], None]
) -> RunQueues:
    """The queues of a run; creating them again finds the same ones. `made` is told each URL as soon as it exists."""
    tags = {**tags, HOME_TAG: home_of(site)}

    def create(use: str, seconds: int, dead: str | None = None) -> str:
        url = site.queues.create(
            queue_name(run, use), tags=tags, lease_seconds=seconds, dead_letter=dead, max_receives=MOST_TAKEN
        )
        made(url)
        return url

    dead = create("dead", lease_seconds)
    return RunQueues(work=create("work", lease_seconds, dead), events=create("events", 30), dead=dead)


def owed_jobs(tallies: Iterable[EvalTally], expected: Expected) -> deque[tuple[EvalId, JobId]]:
    """The open jobs, in the order that their expected durations ask for."""
    return deque(sending_order({tally.eval_id: tally.open_jobs for tally in tallies}, expected))


def send_jobs(site: Site, queue: str, owed: deque[tuple[EvalId, JobId]]) -> None:
    """A message for each job owed, which is struck off then: called again after an AwsRefused, it goes on with the others.

    Only those whose answer was lost are sent twice, which is harmless: the first result of a job counts.
    """
    while owed:
        some = {JobMessage(eval_id=eval_id, job=job).write(): (eval_id, job) for eval_id, job in islice(owed, BATCH)}
        try:
            site.queues.send(queue, list(some))
        except PartlySent as refusal:
            for _ in some:
                owed.popleft()
            owed.extendleft(some[body] for body in reversed(refusal.untaken))
            raise
        for _ in some:
            owed.popleft()
