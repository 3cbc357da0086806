"""The controller of an eval of 100,000 jobs: planned, sent, watched and collected by the product's own code, its edge stubbed.

`python -m tests.bench.controller [JOBS]`. One process, with all that a controller imports. The computing of metrics is no part of
it: that is a process of its own (`merge.peak_rss_mb`).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.bench.figures import Figure

JOBS = 100_000


def figures() -> Iterator[Figure]:
    """Figures of the controller."""
    return measured(JOBS)


def measured(jobs: int) -> Iterator[Figure]:
    """Run it in a process of its own, what it needs made by another."""
    with tempfile.TemporaryDirectory(prefix="bench-controller-") as scratch:
        _apart("make", scratch, jobs)
        took = _apart("run", scratch, jobs)
    rss = {name.removesuffix("_mb"): value for name, value in took.items() if name.endswith("_mb")}
    seconds = {name: value for name, value in took.items() if name.endswith("_s")}
    yield Figure("controller.rss_mb", (max(rss.values()),), 400, parts=rss)
    yield Figure("controller.events_per_s", (2 * jobs / took["watch_s"],), 2_000, at_least=True, parts=seconds)


def _apart(step: str, folder: str, jobs: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.controller", step, folder, str(jobs)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def make(folder: Path) -> None:
    """A plan log, and the members of a result."""
    from inspect_ai import Task
    from inspect_ai.scorer import match

    from tests.fleet.evals import merge_kit, merge_tasks

    task = Task(name="bench", dataset=merge_tasks.words(1), scorer=match())
    merge_kit.plan(task, folder).rename(folder / "plan.eval")
    with zipfile.ZipFile(merge_kit.run(task, folder)) as run, zipfile.ZipFile(folder / "template", "w") as template:
        template.writestr("start", run.read("_journal/start.json"))
        template.writestr("header", run.read("header.json"))
        template.writestr("sample", run.read("samples/s0_epoch_1.json"))
        template.writestr("summary", json.dumps(json.loads(run.read("summaries.json"))[0]))


class Controller:
    """The measured process."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.jobs = jobs
        self.took: dict[str, float] = {}
        self._began = time.monotonic()

    def mark(self, step: str) -> None:
        """A step is over: what it took, and the most memory there was until now."""
        now = time.monotonic()
        self.took |= {f"{step}_s": now - self._began, f"{step}_mb": peak_mb()}
        self._began = now

    def run(self) -> None:
        """All steps."""
        import flows.run_eval  # noqa: F401 - all that a controller has imported

        self.mark("imports")
        from fleet.aws.objects import Objects
        from fleet.aws.queues import Queues
        from fleet.evals.documents import EnvironmentSpec
        from fleet.evals.layout import Layout
        from fleet.evals.plan import TaskPlan, make_manifest
        from fleet.evals.preparation import (
            FailureRecords,
            create_queues,
            owed_jobs,
            send_jobs,
            settle_manifest,
            standing,
        )
        from fleet.evals.progress import RunTally
        from fleet.evals.request import EvalRequest, ModelSpec, TaskSpec
        from fleet.evals.result_checks import ResultChecks
        from flows.watch import Watch
        from tests.bench.edge import S3, Eval, Sqs

        request = EvalRequest(tasks=[TaskSpec(name="bench")], models=[ModelSpec(name="parrot/one")], samples_per_job=1)
        plan = TaskPlan(
            task=request.tasks[0],
            model=request.models[0],
            log=self.folder / "plan.eval",
            task_name="bench",
            eval_config={},
            sample_ids=[f"s{number:06}" for number in range(self.jobs)],
            digests=[f"{number:016x}" for number in range(self.jobs)],
            epochs=1,
            splittable=True,
            needs_docker=False,
        )
        fresh = make_manifest(plan, request, EnvironmentSpec(python="3.11", lock=""), slots=24 * 32)
        del plan
        self.mark("plan")

        s3, sqs = S3(self.folder), Sqs()
        aws = cast("Any", SimpleNamespace(s3=s3, sqs=sqs, region="r", renews_credentials=False))
        site = cast(
            "Any",
            SimpleNamespace(
                aws=aws, objects=Objects(aws, "b"), queues=Queues(aws), layout=Layout("p"), prefix="p", region="r"
            ),
        )
        manifest = settle_manifest(site, fresh, (self.folder / "plan.eval").read_bytes())
        tally = RunTally(evals={manifest.eval_id: standing(site, manifest)})
        queues = create_queues(site, "run", tags={}, lease_seconds=60, made=lambda _: None)
        edge = sqs.of = s3.of = Eval(manifest, site.layout, self.folder / "template")
        send_jobs(site, queues.work, owed_jobs(tally.evals.values(), {}))
        if edge.sent != self.jobs:
            raise SystemExit(f"{edge.sent} of {self.jobs} jobs were sent")
        self.mark("send")

        watch = Watch(
            site=site,
            tally=tally,
            events=queues.events,
            workers=[],
            failures={manifest.eval_id: FailureRecords(site, manifest.eval_id)},
            checks=ResultChecks(site, queues.work),
            prices=(),
        )
        sqs.begin(edge)
        self.watched(watch)
        said = watch.take_stock()
        if (said.samples_done, sum(row.jobs for row in said.workers), edge.heard) != (
            self.jobs,
            self.jobs,
            2 * self.jobs,
        ):
            raise SystemExit(f"{said.line()}; {edge.heard} events heard")
        self.mark("watch")

        self.collected(site, manifest)
        self.mark("collect")

    def watched(self, watch: Any) -> None:
        """Follow the run to its end."""
        from fleet.evals.progress import WorkerFacts, WorkerPhase
        from fleet.evals.steps import Finished, GoOn
        from flows.artifacts import cells
        from tests.bench.edge import WORKERS

        facts = [
            WorkerFacts(
                f"worker-{number}", f"w{number}", WorkerPhase.WORKING, instance=f"i-{number}", why="", live_seconds=1
            )
            for number in range(WORKERS)
        ]
        from flows import watch as module

        stubs: Any = module
        stubs.workers_of = SimpleNamespace(look_at=lambda _: facts)
        for progress, step in module.watching(watch, lambda: False):
            progress.line()
            for row in progress.workers:
                cells(row)
            if isinstance(step, Finished):
                return
            if not isinstance(step, GoOn):
                raise SystemExit(f"the watch wants {step}")

    def collected(self, site: Any, manifest: Any) -> None:
        """Merge all results."""
        from fleet.evals.secrets import RunSecrets
        from flows import collect_results as module

        stubs: Any = module
        stubs.store_log = module.store_log.fn
        stubs.build = lambda *_, **__: SimpleNamespace(spec=SimpleNamespace(settings=[]))
        stubs.values_in_place = _nothing
        stubs.Recompute = lambda *_, **__: Elsewhere(self.folder / "plan.eval")
        stubs.get_run_logger = lambda: logging.getLogger("bench")
        with module.having(RunSecrets(), manifests=[manifest]):
            report = module.merge_eval.fn(site, manifest.eval_id, None)
        if report.samples_done != self.jobs or report.missing:
            raise SystemExit(f"merged {report.samples_done} of {self.jobs}: {report.why}")


@contextmanager
def _nothing(*_: object, **__: object) -> Iterator[None]:
    yield


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """The process that computes metrics, which isn't measured here."""

    plan_log: Path

    @contextmanager
    def __call__(self, _: Path) -> Iterator[Elsewhere]:
        """Nothing to start."""
        yield self

    def finish(self, _records: Path, facts: Any, out: Path) -> None:
        """A header without results."""
        with zipfile.ZipFile(out, "w") as log:
            log.writestr("header.json", json.dumps({"version": 2, "status": facts.outcome.status}))


def peak_mb() -> float:
    """The most memory that this process has had (its resident set)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main(arguments: list[str]) -> None:
    """Measure; or, with a step, a folder and a number, be what is measured."""
    if len(arguments) == 3:
        step, folder, jobs = arguments
        if step == "make":
            make(Path(folder))
            print("{}")  # noqa: T201
            return
        controller = Controller(Path(folder), int(jobs))
        controller.run()
        print(json.dumps(controller.took))  # noqa: T201
        return
    for figure in measured(int(arguments[0]) if arguments else JOBS):
        print(figure.line())  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
