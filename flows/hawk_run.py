"""One run on Hawk on its way: what it works with, and what is known of its eval set. Who leaves it early ends that one, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from prefect import get_run_logger

from fleet.errors import FleetError
from fleet.evals.listener import listener
from fleet.evals.progress import WorkerRow
from fleet.evals.report import EvalReport
from fleet.evals.secrets import RunSecrets
from fleet.hawk.api import EvalSetStatus, HawkApi, HawkConflict, Submitted, TaskProgress
from fleet.hawk.following import (
    PASSING,
    Collect,
    Ended,
    Follow,
    Resume,
    Seen,
    Step,
    Submit,
    after_collection,
    after_launch,
    newest,
    next_step,
)
from fleet.hawk.logs import whole
from fleet.hawk.looking import END_S, Launch, end, look
from fleet.hawk.mapping import EvalSet
from fleet.hawk.pages import page
from flows.artifacts import LiveArtifacts
from flows.run import undisturbed
from flows.watch import warn

LOOK_S = 5.0
"""Seconds between two looks: for each, Hawk reads pods and logs."""


@dataclass(frozen=True, slots=True)
class HawkProgress:
    """How far an eval set is (`fleet.evals.listener.Seen`)."""

    said: str
    fraction: float
    workers: Sequence[WorkerRow] = ()
    """None: the machines are Hawk's."""

    def line(self) -> str:
        """Its state in one line."""
        return self.said


class HawkRun:
    """A run, to be used as a block: whoever ends that early, a person or a signal, ends the eval set.

    An error ends nothing: the eval set goes on, and the same request follows it. Not a dataclass: Prefect walks through those.
    """

    def __init__(
        self,
        api: HawkApi,
        eval_set: EvalSet,
        secrets: RunSecrets,
        *,
        viewer: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.api, self.eval_set, self.secrets = api, eval_set, secrets
        self.page = page(viewer, eval_set.id)
        self.seen = Seen(eval_set.id, evals=len(eval_set.expected))
        self._at_work = False
        """Whether Hawk may be at work for this run, as far as is known."""
        self._open = False
        """Whether a launch has no good answer, and nothing has shown since that it took place."""
        self._clock, self._sleep = clock, sleep
        self._began = clock()
        self._artifacts = LiveArtifacts("hawk-tasks")
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None or not self._at_work:
            return
        if issubclass(kind, Exception):
            warn(f"the eval set {self.eval_set.id} may go on at Hawk; the same request follows it")
            return
        name, helps = self.eval_set.id, f"`hawk delete {self.eval_set.id}` ends it"
        with undisturbed(
            seconds=END_S,
            say=warn,
            still=f"ending the eval set {name} at Hawk",
            leaves="its runner would go on asking models. Ctrl-C once more leaves it",
            left=f"left as it is: {helps}",
        ):
            warn(f"ending the eval set {name} at Hawk, {END_S:g} s at most")
            try:
                end(self.api, name, launch=self._launch, sleep=self._sleep, clock=self._clock)
            except FleetError as unended:
                warn(f"the eval set {name} may go on at Hawk: {unended}. {helps}")

    def next(self) -> Step:
        """Look, and say what to do now; what is seen is shown. HawkError: what time doesn't mend."""
        seen = look(self.api, self.eval_set.id)
        self.seen, step = next_step(self.seen, seen, self._clock())
        self._open = self._open and not self.seen.alive
        if isinstance(step, Follow):
            self._at_work = self.seen.known or self.seen.launched or self.seen.refused is not None
            self._show(step, seen.progress)
        elif isinstance(step, Collect):
            self._at_work = False
        return step

    def launch(self, step: Submit | Resume) -> Ended | None:
        """Do as the step says. None: it is under way, or the next look will tell. HawkError: Hawk doesn't take it."""
        error = None
        self._at_work = self._open = True  # from now on: an interruption may come when Hawk has it and hasn't answered
        try:
            for warning in self._launched(step).warnings:
                warn(f"Hawk: {warning}")
            self._open = False
        except (HawkConflict, *PASSING) as refused:
            get_run_logger().warning("%s", refused)
            error = refused
        except FleetError:
            self._at_work = self._open = False
            raise
        self.seen, then = after_launch(self.seen, self._clock(), error)
        if isinstance(then, Follow):
            self._show(then, None)
        return then if isinstance(then, Ended) else None

    def wait(self) -> None:
        """Until the next look."""
        self._sleep(LOOK_S)

    def again(self, evals: Sequence[EvalReport]) -> Submit | Resume | None:
        """What to do about these results. None: they are what the run comes to."""
        logs = sum(bool(one.log) for one in evals)
        return after_collection(self.seen, logs, whole=whole(evals))

    @property
    def seconds(self) -> float:
        """Since it began."""
        return round(self._clock() - self._began, 1)

    def link(self) -> str:
        """The eval set as Markdown: a link to Hawk's page where that is known."""
        return f"[{self.eval_set.id}]({self.page})" if self.page else f"`{self.eval_set.id}`"

    @property
    def _launch(self) -> Launch:
        if self._open:
            return Launch.OPEN
        return Launch.ANSWERED if self.seen.launched and not self.seen.alive else Launch.SEEN

    def _launched(self, step: Submit | Resume) -> Submitted:
        secrets = self.secrets.variables()
        if isinstance(step, Submit):
            return self.api.submit(self.eval_set.id, self.eval_set.config, secrets=secrets)
        return self.api.resume(self.eval_set.id, secrets=secrets)

    def _show(self, step: Follow, progress: EvalSetStatus | None) -> None:
        """Tell everybody who follows the run how far it is; the log, where that is said in other words than before."""
        seen = HawkProgress(step.line, step.fraction)
        listener.get().progress(seen)
        if step.line != self._said:
            self._said = step.line
            get_run_logger().info("%s", step.line)
        rows = [cells(task) for task in newest(progress.tasks)] if progress else []
        try:
            self._artifacts.bring_up_to_date(seen, rows, about=f"Tasks of the eval set {self.link()}")
        except Exception as error:  # noqa: BLE001 - only for the eyes, and shown at the next look
            get_run_logger().debug("The artifacts could not be updated: %s", error)


def cells(task: TaskProgress) -> dict[str, object]:
    """A line of the tasks' table."""
    its = task.progress
    return {
        "task": task.task_name,
        "state": task.eval_status or "–",
        "samples": its.total,
        "done": its.completed,
        "running": its.running,
        "waiting": its.waiting,
        "errors": its.errored,
        "limits": its.limit,
        "cancelled": its.canceled,
        "log": task.log_file,
    }
