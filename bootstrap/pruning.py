"""What may be removed from Docker's engine while jobs run, to make room. The rule is that only what Inspect has made or used goes,
nothing of a running job, nor anything that can't be had again. The engine may be a person's own.

- Containers of a compose project that is Inspect's by its name, which have stood still for an hour and whose project has none that
  runs: a job's sandbox is one project, so that this one's job is over, or was killed.
- Images that a container of Inspect's was seen to have, an hour ago or longer, and that no container has now. A job that needs one
  pulls or builds it again, as it did before: that costs time, and nothing else.
- Build cache that no build has used for an hour. A build in progress keeps its own. It can't be told whose it is, and needn't be:
  it is no more than a copy of what builds make.

Only what has come since this worker began to take jobs: what was there before is the image's, the setup script's or a person's,
and may be nowhere else. Engine-side, a container that runs, and an image that any container uses, can't be removed without force,
which is never used: what is started between a look and a removal is safe.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from bootstrap.commands import Commands, Said, run_command

T = TypeVar("T")

OLD = timedelta(hours=1)
ANSWER_SECONDS = 30.0
"""For what the engine knows by heart."""
REMOVE_SECONDS = 45.0
"""For one command that removes: what it didn't come to is left to the next round."""
ROOM_SECONDS = 60.0
"""After so long, a round begins no further removal."""
BATCH = 100
"""Ids on one command line."""
IMAGES = 20
"""Images that one command removes."""
AT_REST = frozenset({"exited", "dead"})
"""States of a container that has ended. One that was created a moment ago is about to start."""
PROJECT = "com.docker.compose.project"
INSPECTS = re.compile(r"inspect-[a-z\d\-_]*-i[a-z\d]{6,}")
"""Names of Inspect's projects, as its own clean-up tells them (`is_inspect_project` in its `sandbox/docker/util.py`)."""


class EngineUnclear(Exception):
    """The engine didn't say what it has, or not as it does: nothing is known then, and nothing may go."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container, as far as it may be removed."""

    id: str
    image: str
    """The image's id."""
    state: str
    project: str
    """Of compose; empty: none."""
    created: datetime
    ended: datetime
    """When it last stopped."""

    @property
    def inspects(self) -> bool:
        """Whether it is of a sandbox of Inspect's."""
        return INSPECTS.fullmatch(self.project) is not None


@dataclass(frozen=True, slots=True)
class Image:
    """An image and the names by which it can be had again."""

    id: str
    names: tuple[str, ...]


def old_containers(containers: Iterable[Container], *, since: datetime, now: datetime) -> list[Container]:
    """Those that may go: Inspect's, created after `since`, at rest for an hour, of a project in which nothing runs."""
    known = [one for one in containers if one.inspects]
    live = {one.project for one in known if one.state not in AT_REST}
    return [
        one
        for one in known
        if one.state in AT_REST and one.created >= since and now - one.ended >= OLD and one.project not in live
    ]


def old_images(
    had: Mapping[str, datetime], used: Collection[str], *, before: Collection[str], now: datetime
) -> list[str]:
    """Ids of those that may go: a container of Inspect's `had` it, an hour ago at last; not `used` now, and not there `before`."""
    return [one for one, at in had.items() if one not in used and one not in before and now - at >= OLD]


class DockerRoom:
    """Docker's engine on this host: whether it answers, and how room is made on it. Blocking; every command has a time limit."""

    def __init__(
        self,
        *,
        env: Mapping[str, str] = os.environ,
        run: Commands = run_command,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """From this moment on, what comes into the engine is this worker's. `wall`: the engine's times are times of day."""
        self._env, self._run, self._wall, self._clock = env, run, wall, clock
        self._since = wall()
        self._before: frozenset[str] | None = None
        """Ids of the images that there were; None: the engine hasn't said yet."""
        self._had: dict[str, datetime] = {}
        """When a container of Inspect's last ran with an image, as far as was seen; by the image's id."""

    def folders(self) -> list[Path]:
        """Where the engine keeps what it has, as far as it says."""
        said = self._docker("info", "--format", "{{.DockerRootDir}}", seconds=ANSWER_SECONDS)
        return [Path(said.out.strip())] if said.code == 0 and said.out.strip().startswith("/") else []

    def trouble(self) -> str:
        """Why the engine doesn't answer; empty: it does. Which images Inspect's containers have is noted meanwhile."""
        if self._before is None:
            said = self._docker("image", "ls", "--all", "--quiet", "--no-trunc", seconds=ANSWER_SECONDS)
            if said.code:
                return said.why
            self._before = frozenset(said.out.split())
        said = self._docker("ps", "--all", "--quiet", "--no-trunc", seconds=ANSWER_SECONDS)
        if said.code:
            return said.why
        with suppress(EngineUnclear):  # it answers; an image that isn't noted stays
            had = dict(self._had)  # never changed in place: room may be made in another thread
            for one in self._inspect("container", said.out.split(), _container):
                if one.inspects:
                    at = one.ended if one.state in AT_REST else self._wall()
                    had[one.image] = max(at, had.get(one.image, at))
            self._had = had
        return ""

    def make_room(self) -> str:
        """Remove what may go; what was removed, for the log."""
        if trouble := self.trouble():
            return f"nothing could be removed: {trouble}"
        try:
            return self._make_room()
        except EngineUnclear as unclear:
            return f"nothing more could be removed: {unclear}"

    def _make_room(self) -> str:
        now, until = self._wall(), self._clock() + ROOM_SECONDS
        stopped = old_containers(self._containers(), since=self._since, now=now)
        removed = 0
        for batch in _batches(stopped, BATCH):
            if self._clock() < until:
                ids = [one.id for one in batch]
                removed += len(self._docker("container", "rm", "--volumes", *ids, seconds=REMOVE_SECONDS).out.split())
        used = {one.image for one in self._containers()}
        unused = self._images(old_images(self._had, used, before=self._before or (), now=now))
        for some in _batches(unused, IMAGES):
            if self._clock() < until:
                # By name: an image with several loses them one by one, which its id alone would take force for.
                names = [name for image in some for name in image.names]
                self._docker("image", "rm", *names, seconds=REMOVE_SECONDS)
        gone = {one.id for one in unused} - {one.id for one in self._images([one.id for one in unused])}
        cache = self._docker("builder", "prune", "--force", "--filter", "until=1h", seconds=REMOVE_SECONDS)
        freed = " ".join((cache.out.strip().splitlines() or ["nothing"])[-1].split()) if cache.code == 0 else cache.why
        return (
            f"room was made: containers of sandboxes removed that had stood still for an hour: {removed}; their images, unused for "
            f"as long: {len(gone)}; build cache: {freed}"
        )

    def _containers(self) -> list[Container]:
        said = self._docker("ps", "--all", "--quiet", "--no-trunc", seconds=ANSWER_SECONDS)
        if said.code:
            raise EngineUnclear(said.why)
        return self._inspect("container", said.out.split(), _container)

    def _images(self, ids: list[str]) -> list[Image]:
        return self._inspect("image", ids, _image)

    def _inspect(self, kind: str, ids: list[str], read: Callable[[Any], T]) -> list[T]:
        """Those that are still there; the client ends with 1 if one isn't. EngineUnclear: one can't be read, or none is told of."""
        found: list[T] = []
        for batch in _batches(ids, BATCH):
            said = self._docker(kind, "inspect", *batch, seconds=ANSWER_SECONDS)
            try:
                found += [read(one) for one in _list(said.out)]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise EngineUnclear(f"docker {kind} inspect doesn't say what it has ({said.why})") from error
        return found

    def _docker(self, *arguments: str, seconds: float) -> Said:
        return self._run(["docker", *arguments], env=self._env, seconds=seconds)


def _list(text: str) -> list[Any]:
    found = json.loads(text)
    if not isinstance(found, list):
        raise TypeError("no list")
    return found


def _container(one: Any) -> Container:
    return Container(
        id=str(one["Id"]),
        image=str(one["Image"]),
        state=str(one["State"]["Status"]),
        project=str((one["Config"].get("Labels") or {}).get(PROJECT, "")),
        created=_moment(one["Created"]),
        ended=_moment(one["State"]["FinishedAt"]),
    )


def _image(one: Any) -> Image:
    names = one.get("RepoTags") or one.get("RepoDigests") or [one["Id"]]
    return Image(str(one["Id"]), tuple(str(name) for name in names))


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} may be any zone's")
    return at


def _batches(found: list[T], size: int) -> Iterator[list[T]]:
    return (found[start : start + size] for start in range(0, len(found), size))
