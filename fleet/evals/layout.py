"""Where everything of an eval lies in the bucket. The only place that knows keys."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.evals.documents import EvalId, JobId


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys under one deployment's prefix."""

    prefix: str

    def artifact(self, sha256: str) -> str:
        """A shared artifact, named by its content."""
        return f"{self.prefix}/artifacts/{sha256}"

    def eval(self, eval_id: EvalId) -> str:
        """The folder of one eval, without a slash at its end."""
        return f"{self.prefix}/evals/{eval_id}"

    def plan(self, eval_id: EvalId) -> str:
        """The plan log: the header of the merged log to come."""
        return f"{self.eval(eval_id)}/plan.eval"

    def manifest(self, eval_id: EvalId) -> str:
        """The `EvalManifest`."""
        return f"{self.eval(eval_id)}/manifest.json"

    def lock(self, eval_id: EvalId) -> str:
        """Who works this eval now."""
        return f"{self.eval(eval_id)}/lock.json"

    def last(self, name: str) -> str:
        """Which eval of a task and a model ran last."""
        return f"{self.prefix}/last/{name}.json"

    def durations(self, name: str) -> str:
        """What the samples of a task with a model took in earlier runs."""
        return f"{self.prefix}/durations/{name}.json"

    def results(self, eval_id: EvalId) -> str:
        """The folder of result objects, with a slash at its end: a prefix to list."""
        return f"{self.eval(eval_id)}/jobs/"

    def result(self, eval_id: EvalId, job: JobId) -> str:
        """The result of one job: an Inspect log with our `JobResult` in it."""
        return f"{self.results(eval_id)}{job}.eval"

    def aside(self, eval_id: EvalId, job: JobId, etag: str) -> str:
        """Where a result that can't be used is kept for whoever wants to know why."""
        return f"{self.eval(eval_id)}/unusable/{job}/{etag}.eval"

    def job_of(self, key: str) -> JobId:
        """The job whose result lies at `key`."""
        return key.rsplit("/", 1)[1].removesuffix(".eval")

    def failures(self, eval_id: EvalId) -> str:
        """The folder of failure records, with a slash at its end: a prefix to list."""
        return f"{self.eval(eval_id)}/failures/"

    def failure(self, eval_id: EvalId, job: JobId, attempt: int | str) -> str:
        """The record of one failed attempt, by its number, or by a name where it has none of its own."""
        return f"{self.failures(eval_id)}{job}/{attempt}.json"

    def partial(self, eval_id: EvalId, job: JobId, attempt: str) -> str:
        """What there was of a job's log when an attempt ended without a result. Not below `results`: it is none."""
        return f"{self.eval(eval_id)}/partial/{job}/{attempt}.eval"

    def instance_logs(self, run: str) -> str:
        """The folder of the logs of a run's instances, without a slash at its end."""
        return f"{self.prefix}/runs/{run}/instances"

    def instance_log(self, run: str, instance: str, name: str) -> str:
        """A log of one instance of a run."""
        return f"{self.instance_logs(run)}/{instance}/{name}.log"

    def merged(self, eval_id: EvalId, name: str) -> str:
        """The merged log."""
        return f"{self.eval(eval_id)}/merged/{name}"
