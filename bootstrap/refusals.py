"""What can be wrong with a request and is only seen in the job environment. The runner names the class and its facts."""

from __future__ import annotations

from typing import Any

from fleet.errors import FleetError, RequestRefused


class EvalRefused(RequestRefused):
    """A task, model, solver or setting of the request can't be planned."""


class TaskUnknown(EvalRefused):
    """No task has that name."""

    task: str
    why: str
    near: list[str]

    def message(self) -> str:
        """The name, why it isn't found, and what was perhaps meant."""
        return f"task {self.task} is unknown: {self.why}{meant(self.near)}"


class ModelUnknown(EvalRefused):
    """The model's provider isn't there."""

    model: str
    why: str
    near: list[str]

    def message(self) -> str:
        """The name, why it isn't found, and what was perhaps meant."""
        return f"model {self.model} is unknown: {self.why}{meant(self.near)}"


class SolverUnknown(EvalRefused):
    """No solver or agent has that name."""

    solver: str
    near: list[str]

    def message(self) -> str:
        """The name, and what was perhaps meant."""
        return f"solver {self.solver} is unknown{meant(self.near)}"


class SampleUnknown(EvalRefused):
    """A sample that was asked for by its id isn't in the task's dataset."""

    task: str
    sample: str

    def message(self) -> str:
        """Which id of which task."""
        return f"task {self.task} has no sample with the id {self.sample} (ids are exact: 1 is not '1')"


class ConfigKeyUnknown(EvalRefused):
    """A setting that this version of Inspect doesn't have."""

    key: str
    place: str
    near: list[str]

    def message(self) -> str:
        """The key, and what was perhaps meant."""
        return f"{self.place} has no key {self.key}{meant(self.near)}"


class ConfigValueRefused(EvalRefused):
    """A setting with a value that Inspect doesn't take."""

    place: str
    why: str

    def message(self) -> str:
        """Where, and what Inspect says."""
        return f"{self.place} refused: {self.why}"


class FileMissing(EvalRefused):
    """A file that the request names isn't in the source."""

    file: str
    wanted_by: str

    def message(self) -> str:
        """Which file, and what brings one along."""
        return f"{self.file} is missing ({self.wanted_by}): name it relative to `source`, a checkout in which git tracks it"


class TaskArgsRefused(EvalRefused):
    """The task doesn't take these arguments."""

    task: str
    why: str
    near: list[str]

    def message(self) -> str:
        """Which task, and what is wrong."""
        return f"arguments of task {self.task} refused: {self.why}{meant(self.near)}"


class TaskRefused(EvalRefused):
    """Building the task, or its model, raised."""

    task: str
    model: str
    why: str

    def message(self) -> str:
        """Which task with which model, and the exception."""
        return f"task {self.task}{f' with model {self.model}' if self.model else ''} can't be built: {self.why}"


class PrerequisiteRefused(EvalRefused):
    """Inspect says what is missing: a provider's package, an API key, …"""

    task: str
    model: str
    why: str

    def message(self) -> str:
        """Inspect's own words."""
        return f"task {self.task} with model {self.model} can't run: {self.why}"


class PlannerDied(FleetError):
    """The process in the job environment ended without an answer: a bug of ours, or the user's code ended it."""

    how: str
    said: str
    log: str

    def message(self) -> str:
        """How it ended, its last words, and where the rest is."""
        return f"the job environment's process gave no answer: {self.how} ({self.said or 'it said nothing'}; see {self.log})"


KINDS: dict[str, type[EvalRefused]] = {kind.__name__: kind for kind in EvalRefused.__subclasses__()}


def refusal(answer: dict[str, Any]) -> EvalRefused:
    """The error that the runner names."""
    return KINDS[answer["kind"]](**answer["facts"])


def meant(near: list[str]) -> str:
    """Near misses as the end of a sentence."""
    return f"; did you mean {' or '.join(near)}?" if near else ""
