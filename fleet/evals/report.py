"""What a run comes to: the one object that the flow returns, `--json` prints and the report artifact shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fleet.wire import Wire


class Metric(Wire):
    """One metric of one scorer, as Inspect computed it."""

    scorer: str
    name: str
    value: float | int | str | None


class EvalReport(Wire):
    """One merged log."""

    eval_id: str
    task: str
    model: str
    status: Literal["success", "error"]
    log: str
    """Where it was delivered: a path or an s3:// address; empty: there is none, or it stays at Hawk."""
    stored: str
    """Its s3:// address in the run's own bucket, or its name at Hawk; empty: it is only where it was delivered."""
    samples: int
    samples_done: int
    errors: int
    missing: int
    why: str = ""
    """Why the status is `error`."""
    metrics: list[Metric] = []

    @property
    def keeper(self) -> str:
        """Where `stored` is, in words."""
        return "In the bucket" if self.stored.startswith("s3://") else "At Hawk"


class RunReport(Wire):
    """A whole run."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    run: str
    """Flow run id of `run_eval`."""
    outcome: Literal["success", "incomplete", "error", "estimated", "declined"]
    why: str = ""
    """Of an estimate, the figures: its line, and below it a table for a terminal."""
    evals: list[EvalReport] = []
    instances: int | None = 0
    """Instances that there were; None: it ran on none of ours, and what it cost is another's bill."""
    seconds: float = 0.0
    cost: float | None = None
    """Dollars of the instances; None: unknown."""
    left: list[str] = []
    """What clean-up could not remove, each with its reason."""

    @property
    def exit_code(self) -> int:
        """0 done, 1 a log has status error though every sample ran, 3 samples are missing."""
        return {"success": 0, "estimated": 0, "declined": 1, "error": 1, "incomplete": 3}[self.outcome]

    def line(self) -> str:
        """What it came to in one line: samples, the first metric where there is one log, and what went wrong."""
        if not self.evals:
            why = self.why.partition("\n")[0]
            return f"{self.outcome}: {why}" if why else self.outcome
        done, samples = sum(one.samples_done for one in self.evals), sum(one.samples for one in self.evals)
        parts = [f"{done} of {samples} samples"]
        if len(self.evals) > 1:
            parts.append(f"{len(self.evals)} logs")
        elif self.evals[0].metrics:
            first = self.evals[0].metrics[0]
            parts.append(f"{first.name} {_shown(first.value)}")
        if self.outcome == "success":
            return ", ".join(parts)
        reasons = dict.fromkeys(why for why in (self.why, *(one.why for one in self.evals)) if why)
        return "; ".join([f"{self.outcome}: {', '.join(parts)}", *reasons])

    def markdown(self) -> str:
        """The report as a page."""
        lines = [f"## {self.line()}", ""]
        for one in self.evals:
            lines += [
                f"### {one.task} · {one.model}",
                "",
                f"{one.samples_done} of {one.samples} samples, {one.errors} with errors"
                + (f", {one.missing} missing" if one.missing else "")
                + f". Status **{one.status}**"
                + (f": {one.why}" if one.why else "")
                + ".",
                "",
            ]
            if one.metrics:
                lines += ["| scorer | metric | value |", "|---|---|---|"]
                lines += [f"| {metric.scorer} | {metric.name} | {_shown(metric.value)} |" for metric in one.metrics]
                lines.append("")
            lines += _where(one)
        minutes = f"{self.seconds / 60:.1f} minutes"
        if self.instances is None:
            lines += [f"{minutes}.", ""]
        else:
            price = "unknown" if self.cost is None else f"${self.cost:.2f}"
            lines += [f"{self.instances} instances, {minutes}, cost of the instances {price}.", ""]
        if self.left:
            lines += ["### Left behind", "", *[f"- {what}" for what in self.left], ""]
        return "\n".join(lines)


def _where(one: EvalReport) -> list[str]:
    """Where the log is, and the command that shows it."""
    lines = [f"Log: `{one.log}`", ""] if one.log else []
    if one.stored not in ("", one.log):
        lines += [f"{one.keeper}: `{one.stored}`", ""]
    return [*lines, "```", f"inspect view --log-dir {one.log.rpartition('/')[0]}", "```", ""] if one.log else lines


def outcome_of(evals: list[EvalReport]) -> Literal["success", "incomplete", "error"]:
    """The worst of the logs."""
    if any(one.missing for one in evals):
        return "incomplete"
    return "error" if any(one.status == "error" for one in evals) else "success"


def metrics_of(results: Mapping[str, Any] | None) -> list[Metric]:
    """The metrics in Inspect's `EvalResults` (as JSON), scorer by scorer."""
    return [
        Metric(scorer=score["name"], name=name, value=metric.get("value"))
        for score in (results or {}).get("scores", [])
        for name, metric in score["metrics"].items()
    ]


def _shown(value: float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
