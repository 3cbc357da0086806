"""Real Inspect runs for the merge's tests: plain logs, plan logs, and job logs as a runner leaves them.

Inspect runs one eval a process at a time, so these run one after another, in this process.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inspect_ai import SampleSource, Task, enqueue_sample, eval, task_with  # noqa: A004
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log, write_eval_log
from inspect_ai.model import (
    ChatMessage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from bootstrap.runner.recompute import complete
from fleet.evals.documents import EnvironmentSpec, EvalManifest, Job, JobResult, SampleRef
from fleet.evals.merge import HeaderFacts
from fleet.evals.request import ModelSpec, TaskSpec

EVAL_ID = "kit-0123456789abcdef"
Pair = tuple[int | str, int]

ASKED: list[str] = []
"""What models were asked, in this process."""


@modelapi(name="parrot")
def parrot() -> type[ModelAPI]:
    class Parrot(ModelAPI):
        """Says the last message back. Its usage is the length of what was said, and its words cost something."""

        async def generate(
            self,
            input: list[ChatMessage],  # noqa: A002 (Inspect's name)
            tools: list[ToolInfo],
            tool_choice: ToolChoice,
            config: GenerateConfig,
        ) -> ModelOutput:
            said = input[-1].text
            ASKED.append(said)
            output = ModelOutput.from_content(self.model_name, said)
            output.usage = ModelUsage(input_tokens=len(said), output_tokens=3, total_tokens=len(said) + 3)
            return output

    return Parrot


def run(task: Task | str, folder: Path, **options: Any) -> Path:
    """A plain run of a task: its log."""
    log = eval(
        task,
        model="parrot/one",
        log_dir=str(folder),
        display="none",
        log_realtime=False,
        score_display=False,
        **options,
    )[0]
    return Path(log.location)


def plan(task: Task | str, folder: Path, **options: Any) -> Path:
    """The plan log of a task, run by nobody."""
    return run(task, folder, run_samples=False, **options)


def run_job(task: Task, pairs: Sequence[Pair], job: str, folder: Path, **options: Any) -> Path:
    """The log of one job, run as a runner runs it: exact samples and epochs, `fail_on_error=False`, our member added."""
    samples = {str(sample.id): sample for sample in _with_ids(task.dataset)}

    class Exactly(SampleSource):
        asked = False

        async def next_samples(self) -> list[Sample] | None:
            if self.asked:
                return None
            self.asked = True
            for sample_id, epoch in pairs:
                enqueue_sample(samples[str(sample_id)].model_copy(deep=True), epoch=epoch)
            return []

    log = run(task_with(task, dataset=Exactly()), folder / "run", fail_on_error=False, **options)
    return finish_job(log, job, folder / f"{job}.eval")


def finish_job(log: Path, job: str, out: Path) -> Path:
    """Add the member `fleet.json` to a finished log and give it the job's name."""
    whole = read_eval_log(str(log))
    with zipfile.ZipFile(log) as archive:
        names = {(one["id"], one["epoch"]) for one in json.loads(archive.read("summaries.json"))}
        records = [_record(json.loads(archive.read(f"samples/{name}_epoch_{epoch}.json"))) for name, epoch in names]
    stats = whole.stats
    result = JobResult(
        eval_id=EVAL_ID,
        job=job,
        samples=records,
        started_at=stats.started_at,
        completed_at=stats.completed_at,
        model_usage={name: usage.model_dump(exclude_none=True) for name, usage in stats.model_usage.items()},
        role_usage={name: usage.model_dump(exclude_none=True) for name, usage in stats.role_usage.items()},
    )
    with zipfile.ZipFile(log, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(JobResult.MEMBER, result.write())
    return log.replace(out)


def cut_job(plain: Path, pairs: Sequence[Pair], job: str, folder: Path) -> Path:
    """A job's log cut out of a plain one: some of its samples, as if they had run apart."""
    log = read_eval_log(str(plain))
    wanted = {(str(sample_id), epoch) for sample_id, epoch in pairs}
    log.samples = [sample for sample in log.samples or [] if (str(sample.id), sample.epoch) in wanted]
    log.status, log.error, log.results, log.reductions = "success", None, None, None
    log.stats.model_usage, log.stats.role_usage = {}, {}
    for sample in log.samples:
        for total, part in ((log.stats.model_usage, sample.model_usage), (log.stats.role_usage, sample.role_usage)):
            for name, usage in part.items():
                total[name] = total[name] + usage if name in total else usage.model_copy()
    made = folder / f"{job}.cut.eval"
    write_eval_log(log, str(made))
    return finish_job(made, job, folder / f"{job}.eval")


def manifest(plan_log: Path, jobs: Sequence[Sequence[Pair]], *, whole: bool = False) -> EvalManifest:
    """The manifest of an eval with these jobs, in this order."""
    spec = read_eval_log(str(plan_log), header_only=True).eval
    return EvalManifest(
        eval_id=EVAL_ID,
        task=TaskSpec(name=spec.task),
        model=ModelSpec(name=spec.model),
        solver=None,
        eval_config={},
        generate_config={},
        tags=[],
        metadata={},
        environment=EnvironmentSpec(python="3.11", lock=""),
        needs_docker=False,
        sample_ids=list(spec.dataset.sample_ids or []),
        epochs=spec.config.epochs or 1,
        jobs=[
            Job(
                job=job_name(number),
                samples=[] if whole else [SampleRef(id=name, epoch=epoch, digest="") for name, epoch in pairs],
                whole=whole,
            )
            for number, pairs in enumerate(jobs)
        ],
        identity={},
        log_name="merged.eval",
    )


def job_name(number: int) -> str:
    return f"{number:06d}-{number:08x}"


class InProcess:
    """The job environment, where it is this process."""

    @contextmanager
    def __call__(self, plan_log: Path) -> Iterator[InProcess]:
        self.plan_log = plan_log
        yield self

    def finish(self, records: Path, facts: HeaderFacts, out: Path) -> None:
        log = read_eval_log(str(self.plan_log), header_only=True)
        order = {
            "records": str(records),
            "status": facts.outcome.status,
            "error": facts.outcome.error,
            "total_samples": facts.total_samples,
            "started_at": facts.started_at,
            "completed_at": facts.completed_at,
        }
        complete(log, order)
        write_eval_log(log, str(out))


def _with_ids(dataset: Any) -> list[Sample]:
    samples = [sample.model_copy(deep=True) for sample in dataset]
    for number, sample in enumerate(samples, start=1):
        if sample.id is None:
            sample.id = number
    return samples


def _record(sample: dict[str, Any]) -> dict[str, Any]:
    """What a runner notes of a sample. Its metadata are the dataset's: a plain run's metrics see no solver's changes."""
    begun = next((event for event in sample["events"] if event["event"] == "sample_init"), None)
    return {
        "id": sample["id"],
        "epoch": sample["epoch"],
        "scores": sample.get("scores"),
        "metadata": (begun["sample"] if begun else sample).get("metadata") or {},
        "error": sample.get("error"),
    }
