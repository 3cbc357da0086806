"""A task by its name, built as Inspect builds it, with its samples at hand. Refuses what can't be built, in one line."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from inspect_ai import Task, list_tasks
from inspect_ai.dataset import Sample

from . import inside
from .chance import settled_chance
from .digest import digest
from .refusal import Refused, first_line, near
from .settings import generate_settings, shuffle_seed

DOCKER = "docker"


class Built:
    """A task that was built once, and its samples by id. The samples are never given to a run: only copies of them."""

    def __init__(self, resolved: Any) -> None:
        self.task: Task = resolved.task
        self.sandbox: Any = resolved.sandbox
        self._numbered: set[int | str] = set()
        self._by_id: dict[tuple[type, int | str], Sample] = {}
        self._by_digest: dict[str, Sample] | None = None
        for position, sample in enumerate(self.task.dataset):
            if sample.id is None:
                sample.id = position + 1  # as Inspect numbers them: after the shuffle, before any limit
                self._numbered.add(sample.id)
            self._by_id[type(sample.id), sample.id] = sample

    @property
    def splittable(self) -> bool:
        """Whether its samples can run one by one, in any process."""
        return self.task.sample_source is None and self.task.early_stopping is None

    def digest(self, sample_id: int | str) -> str:
        """The digest of the sample with this id. KeyError: there is none."""
        return digest(self._by_id[type(sample_id), sample_id])

    def sample(self, sample_id: int | str, expected: str) -> Sample:
        """A copy of the sample that was planned. Refused: SampleAbsent, SampleChanged.

        A sample without an id of its own is known by its content: its number only says where it stood when planned.
        """
        found = self._by_id.get((type(sample_id), sample_id))
        if found is not None and digest(found) == expected:
            return found.model_copy(deep=True)
        if self._numbered:
            if self._by_digest is None:
                self._by_digest = {
                    digest(sample): sample for sample in self.task.dataset if sample.id in self._numbered
                }
            if moved := self._by_digest.get(expected):
                return moved.model_copy(deep=True, update={"id": sample_id})
        raise Refused(
            "SampleChanged" if found is not None else "SampleAbsent", sample=str(sample_id), task=self.task.name
        )

    def only(self, ids: list[int | str]) -> Task:
        """The task with just these samples, by exact id; with all of them where none is named."""
        if ids and self.task.sample_source is None:
            wanted = {(type(wish), wish) for wish in ids}
            self.task.dataset = self.task.dataset.filter(lambda sample: (type(sample.id), sample.id) in wanted)
        return self.task

    def needs_docker(self, ids: list[int | str]) -> bool:
        """Whether the task or one of these samples runs in a Docker sandbox."""
        if self.sandbox is not None and self.sandbox.type == DOCKER:
            return True
        sandboxes = [self._by_id[type(sample_id), sample_id].sandbox for sample_id in ids]
        return any(sandbox is not None and sandbox.type == DOCKER for sandbox in sandboxes)


def build(what: Mapping[str, Any]) -> Built:
    """Build the task of `what`, in a running event loop, as Inspect does. Refused: whatever the request has wrong."""
    name, args = check_task(what["task"]["name"], what["task"].get("args") or {})
    check_model(what["model"]["name"])
    for role in (what["model"].get("roles") or {}).values():
        check_model(role)
    if solver := what.get("solver"):
        check_solver(solver["name"])
    generate = generate_settings(what.get("generate_config") or {})
    model = what["model"]
    try:
        with settled_chance():
            resolved = inside.resolve(
                name,
                dict(args),
                model=model["name"],
                base_url=model.get("base_url"),
                model_args=dict(model.get("args") or {}),
                roles=dict(model.get("roles") or {}),
                generate=generate,
                seed=shuffle_seed(what.get("eval_config") or {}),
            )
    except inside.PrerequisiteError as error:
        raise Refused("PrerequisiteRefused", task=name, model=model["name"], why=inside.said_by(error)) from error
    except Refused:
        raise
    except Exception as error:  # the user's own code: whatever it raises is theirs to mend
        raise Refused("TaskRefused", task=name, model=model["name"], why=first_line(error)) from error
    if len(resolved) != 1:
        raise Refused("TaskUnknown", task=name, why=f"it names {len(resolved)} tasks; name one of them", near=[])
    return Built(resolved[0])


def check_task(name: str, args: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The task's name in full, and its arguments. Refused: TaskUnknown, FileMissing, TaskArgsRefused, TaskRefused."""
    if name.startswith("hf/"):
        return name, args
    factory = inside.lookup("task", name)
    if factory is None:
        name = _in_file(name)
        factory = inside.lookup("task", name.rsplit("@", 1)[1])
    if factory is not None:
        _check_args(name, factory, args)
    return name, args


def check_model(name: str) -> None:
    """Refused, ModelUnknown: it names no provider, or one that isn't installed."""
    if "/" not in name:
        if name != "none":
            raise Refused("ModelUnknown", model=name, why="a model is named provider/model", near=[])
        return
    known = inside.providers()
    provider = name.split("/", 1)[0]
    if provider not in known:
        raise Refused("ModelUnknown", model=name, why=f"no provider named {provider}", near=near(provider, known))


def check_solver(name: str) -> None:
    """Refused: SolverUnknown, FileMissing."""
    file, solver = inside.file_and_name(name)
    if file is not None:
        if not file.exists():
            raise Refused("FileMissing", file=name.rsplit("@", 1)[0], wanted_by=f"solver {name}")
        return
    if inside.lookup("solver", str(solver)) is None and inside.lookup("agent", str(solver)) is None:
        known = inside.registered("solver") + inside.registered("agent")
        raise Refused("SolverUnknown", solver=name, near=near(name, known))


def _in_file(name: str) -> str:
    """`file.py@task` in full, the file loaded, for what is no registered name."""
    file, _, wanted = name.rpartition("@") if "@" in name else (name, "", "")
    path = Path(file)
    if path.suffix not in {".py", ".ipynb"} and not path.exists():
        raise _unknown(name)
    if path.is_absolute() or not path.exists():
        raise Refused("FileMissing", file=file, wanted_by=f"task {name}")
    there = [task.name for task in list_tasks(path.name, root_dir=path.parent.resolve())]
    if not wanted:
        if len(there) != 1 or path.is_dir():
            why = f"{file} has {len(there)} tasks; name one of them (file.py@task)"
            raise Refused("TaskUnknown", task=name, why=why, near=there[:3])
        wanted = there[0]
    try:
        inside.load_file(path.absolute())
    except Exception as error:  # the user's own file
        raise Refused("TaskRefused", task=name, model="", why=first_line(error)) from error
    if inside.lookup("task", wanted) is None:
        raise Refused(
            "TaskUnknown", task=name, why=f"{file} has no task {wanted}", near=near(wanted, there) or there[:3]
        )
    return f"{file}@{wanted}"


def _unknown(name: str) -> Refused:
    """Why no task has that name: it may be its package that can't be imported, which Inspect only warns of."""
    package = name.split("/", 1)[0] if "/" in name else ""
    for entry in entry_points(group="inspect_ai", name=package):
        try:
            entry.load()
        except Exception as error:  # noqa: BLE001 - whatever the user's package raises
            return Refused("TaskRefused", task=name, model="", why=f"{entry.value}: {first_line(error)}")
    known = inside.registered("task")
    there = not package or any(task.startswith(f"{package}/") for task in known)
    why = "no task has that name" if there else f"no package {package} with tasks is installed (name it in `packages`)"
    return Refused("TaskUnknown", task=name, why=why, near=near(name, known))


def _check_args(name: str, factory: Any, args: Mapping[str, Any]) -> None:
    """Inspect drops an argument that the task doesn't take, with a warning that nobody sees; here it is refused."""
    signature = inspect.signature(factory)
    takes = inside.parameters(factory)
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for arg in args:
        if arg not in takes and not anything:
            raise Refused("TaskArgsRefused", task=name, why=f"it takes no {arg}", near=near(arg, takes))
    try:
        signature.bind(**args)
    except TypeError as error:
        raise Refused("TaskArgsRefused", task=name, why=str(error), near=[]) from error
