"""What may be removed from Docker's engine while jobs run. `tests/docker/test_pruning.py` removes it from a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from inspect_ai.util._sandbox.docker.util import task_project_name

from bootstrap.commands import Said
from bootstrap.pruning import (
    PROJECT,
    ROOM_SECONDS,
    Container,
    DockerRoom,
    old_containers,
    old_images,
)
from tests.bootstrap.fake_commands import Asked, FakeCommands

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def project(number: int) -> str:
    """A name that Inspect gives."""
    return f"inspect-arithmetic-i{number:06}"


def container(
    name: str, state: str = "exited", *, project: str = project(9), created: float = 3, ended: float = 2
) -> Container:
    """Hours ago."""
    return Container(name, f"of-{name}", state, project, NOW - created * HOUR, NOW - ended * HOUR)


@pytest.mark.parametrize(
    ("found", "goes"),
    [
        pytest.param([container("a")], ["a"], id="it has stood still for two hours"),
        pytest.param([container("a", ended=1)], ["a"], id="for one"),
        pytest.param([container("a", ended=0.9)], [], id="for less"),
        pytest.param([container("a", "dead")], ["a"], id="dead"),
        *(
            pytest.param([container("a", state)], [], id=state)
            for state in ("running", "paused", "restarting", "created", "removing")
        ),
        pytest.param([container("a", created=5)], [], id="it was there before this worker"),
        pytest.param(
            [container("a", project=project(1)), container("b", "running", project=project(1))],
            [],
            id="a part of a sandbox that is at work",
        ),
        pytest.param(
            [
                container("a", project=project(1)),
                container("b", project=project(1)),
                container("c", "running", project=project(2)),
            ],
            ["a", "b"],
            id="a sandbox that is over, beside one at work",
        ),
        *(
            pytest.param([container("a", project=name)], [], id=f"a person's own: {name or 'no project'}")
            for name in ("", "website", "inspect-ai", "my-inspect-task-i123456", "inspect-task-i123456_1")
        ),
        pytest.param([container("a", project=task_project_name("Über_ swe.bench"))], ["a"], id="as Inspect names them"),
    ],
)
def test_only_containers_of_jobs_that_are_over_go(found: list[Container], goes: list[str]) -> None:
    assert [one.id for one in old_containers(found, since=NOW - 4 * HOUR, now=NOW)] == goes


@pytest.mark.parametrize(
    ("used", "had", "before", "goes"),
    [
        pytest.param((), {"i": NOW - HOUR}, (), True, id="unused for an hour"),
        pytest.param((), {"i": NOW - 0.9 * HOUR}, (), False, id="for less"),
        pytest.param((), {}, (), False, id="no container of Inspect's was seen to have it"),
        pytest.param(("i",), {"i": NOW - HOUR}, (), False, id="a container has it"),
        pytest.param(
            (), {"i": NOW - HOUR}, ("i",), False, id="it was there before this worker, and may be nowhere else"
        ),
    ],
)
def test_only_images_that_jobs_used_and_no_container_has_go(
    used: tuple[str, ...], had: dict[str, datetime], before: tuple[str, ...], goes: bool
) -> None:
    assert old_images(had, used, before=before, now=NOW) == (["i"] if goes else [])


@dataclass
class Engine:
    """An engine of a few containers and images, and a clock."""

    now: datetime = NOW
    seconds: float = 0.0
    containers: dict[str, dict[str, object]] = field(default_factory=dict)
    images: dict[str, list[str]] = field(default_factory=dict)
    down: bool = False
    slow: bool = False
    odd: dict[str, Said] = field(default_factory=dict)
    """Answers that aren't its own, by what was asked."""

    def __post_init__(self) -> None:
        answers = {
            "ps": lambda _: Said(0, "\n".join(self.containers)),
            "image ls": lambda _: Said(0, "\n".join(self.images)),
            "container inspect": lambda asked: self._inspect(asked, self.containers),
            "image inspect": lambda asked: self._inspect(
                asked, {id_: {"Id": id_, "RepoTags": names} for id_, names in self.images.items()}
            ),
            "container rm": lambda asked: Said(0, "\n".join(self._drop(asked.argv[4:]))),
            "image rm": lambda asked: Said(0, "\n".join(self._drop(asked.argv[3:]))),
            "builder prune": lambda _: Said(0, "ID\tSIZE\nabc\t1kB\nTotal:\t1.5GB\n"),
        }
        self.run = FakeCommands(
            {f"docker {words}": self._unless_down(words, answer) for words, answer in answers.items()}
        )
        self.room = DockerRoom(env={}, run=self.run, wall=lambda: self.now, clock=lambda: self.seconds)

    def put_container(self, name: str, *, ended: datetime, project: str, state: str = "exited") -> None:
        self.images[f"of-{name}"] = [f"{name}:1"]
        self.containers[name] = {
            "Id": name,
            "Image": f"of-{name}",
            "Created": self.now.isoformat().replace("+00:00", ".123456789Z"),
            "State": {"Status": state, "FinishedAt": ended.isoformat().replace("+00:00", ".123456789Z")},
            "Config": {"Labels": {PROJECT: project}},
        }

    def asked(self, words: str) -> list[tuple[str, ...]]:
        return [one.argv for one in self.run.asked if " ".join(one.argv).startswith(f"docker {words}")]

    def _unless_down(self, words: str, answer: Callable[[Asked], Said]) -> Callable[[Asked], Said]:
        return lambda asked: Said(1, err="it is down") if self.down else self.odd.get(words) or answer(asked)

    def _inspect(self, asked: Asked, things: dict[str, dict[str, object]]) -> Said:
        found = [things[one] for one in asked.argv[3:] if one in things]
        return Said(0 if len(found) == len(asked.argv) - 3 else 1, json.dumps(found))

    def _drop(self, names: tuple[str, ...]) -> list[str]:
        self.seconds += 2 * ROOM_SECONDS if self.slow else 0.0
        gone = [name for name in names if self.containers.pop(name, None)]
        for name in names:
            for image in [image for image, tags in self.images.items() if name in tags]:
                self.images[image].remove(name)
                if not self.images[image]:
                    del self.images[image]
                gone.append(name)
        return gone


def an_hour_of_jobs(engine: Engine) -> None:
    """An engine that had an image, and on which jobs ended an hour ago while another one runs; a person works on it too."""
    engine.images["baked"] = ["baked:1"]
    assert engine.room.trouble() == ""
    engine.put_container("persons", ended=engine.now, project="website")
    engine.put_container("tried", ended=engine.now, project="website", state="running")
    engine.put_container("swift", ended=engine.now, project=project(3), state="running")
    engine.put_container("old", ended=engine.now, project=project(1))
    engine.put_container("at-work", ended=engine.now, project=project(2), state="running")
    assert engine.room.trouble() == ""
    del engine.containers["swift"], engine.containers["tried"]  # as Inspect does it, and the person
    engine.images["of-swift"].append("swift:latest")
    engine.now += HOUR + timedelta(minutes=1)


@pytest.mark.fault("host-bad")
def test_room_is_made_of_what_is_old_and_nothing_else() -> None:
    engine = Engine()
    an_hour_of_jobs(engine)
    said = engine.room.make_room()
    assert list(engine.containers) == ["persons", "at-work"]
    assert list(engine.images) == ["baked", "of-persons", "of-tried", "of-at-work"]
    assert engine.asked("container rm") == [("docker", "container", "rm", "--volumes", "old")]
    assert not [one for one in engine.run.asked if "--force" in one.argv and "builder" not in one.argv]
    assert said == (
        "room was made: containers of sandboxes removed that had stood still for an hour: 1; their images, unused for "
        "as long: 2; build cache: Total: 1.5GB"
    )


def test_a_round_that_takes_long_begins_no_further_removal() -> None:
    engine = Engine(slow=True)
    an_hour_of_jobs(engine)
    engine.room.make_room()
    assert "old" not in engine.containers
    assert "of-swift" in engine.images


@pytest.mark.fault("host-bad")
def test_what_is_not_known_is_not_removed() -> None:
    """An engine that never said which images it had before."""
    engine = Engine(down=True)
    engine.images["baked"] = ["baked:1"]
    assert engine.room.trouble() == "it is down"
    assert engine.room.make_room() == "nothing could be removed: it is down"
    engine.down = False
    engine.now += 2 * HOUR
    engine.room.make_room()
    assert list(engine.images) == ["baked"]


ENTRY = {"Id": "x", "Image": "y", "State": {"Status": "exited", "FinishedAt": "now"}, "Config": {}, "Created": "now"}
LATE = Said(124, err="no answer from docker within 30 seconds")
NO_LISTS = [
    "",
    "<html>log in</html>",
    "{}",
    "null",
    "7",
    '{"message": "not found"}',
    "[null]",
    '["x"]',
    '[{"ID": "x"}]',
]
NO_CONTAINERS = [
    ENTRY,
    {**ENTRY, "State": "exited"},
    {**ENTRY, "Created": 7},
    {**ENTRY, "Created": "2026-01-01T00:00:00"},
    {**ENTRY, "Config": None},
]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("ps", LATE),
        *(
            (f"{kind} inspect", odd)
            for kind in ("container", "image")
            for odd in (LATE, *(Said(0, o) for o in NO_LISTS))
        ),
        *(("container inspect", Said(0, json.dumps([one]))) for one in NO_CONTAINERS),
    ],
    ids=str,
)
@pytest.mark.fault("odd-answer")
def test_an_engine_that_answers_oddly_loses_nothing_by_it(asked: str, answer: Said) -> None:
    """What isn't known may be in use; and the guard, whose turn it is, must not end of it."""
    engine = Engine()
    an_hour_of_jobs(engine)
    there = set(engine.containers)
    engine.odd[asked] = answer
    assert engine.room.make_room().startswith("nothing ")
    assert there - set(engine.containers) == ({"old"} if asked == "image inspect" else set())
    assert engine.asked("image rm") == []


def test_a_look_asks_the_engine_for_its_containers_alone() -> None:
    engine = Engine()
    for _ in range(20):
        assert engine.room.trouble() == ""
        engine.now += timedelta(seconds=15)
    assert len(engine.asked("image ls")) == 1, "for what was there before, once"
    assert len(engine.asked("ps")) == 20
    engine.down = True
    assert engine.room.trouble() == "it is down"
