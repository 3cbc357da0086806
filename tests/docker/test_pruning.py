"""Room is made on a real engine, and only there where nothing of a running job is. The engine may be a person's own, so that what
this test may touch is told apart by a label."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from subprocess import CalledProcessError

import pytest

from bootstrap.commands import Said, run_command
from bootstrap.pruning import OLD, PROJECT, DockerRoom
from tests.docker.conftest import Engine

pytestmark = pytest.mark.docker

SHELL = "fleet-examples-shell"


class Mine:
    """The engine, as if it had nothing but what carries this test's label."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.label = f"test.pruning={uuid.uuid4().hex}"
        self.later = timedelta()

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        given: str | None = None,
        user: str | None = None,
        seconds: float = 60,
    ) -> Said:
        words = ["until=10000h" if word == "until=1h" else word for word in argv]  # somebody's cache
        if words[1] == "ps" or words[1:3] == ["image", "ls"]:
            words += ["--filter", f"label={self.label}"]
        return run_command(words, env=env, given=given, user=user, seconds=seconds)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later

    def container(self, project: str, *command: str, image: str = SHELL) -> str:
        labels = ("--label", self.label, "--label", f"{PROJECT}={project}")
        container = self.engine.docker("run", "--detach", *labels, image, *command).strip()
        if command == ("true",):
            self.engine.docker("wait", container)
        return container

    def image(self, container: str, name: str, *others: str) -> str:
        self.engine.docker("commit", "--change", f"LABEL {self.label}", container, name)
        for other in others:
            self.engine.docker("tag", name, other)
        return self.engine.docker("image", "inspect", "--format", "{{.Id}}", name).strip()

    def containers(self) -> set[str]:
        return set(self.engine.docker("ps", "-aq", "--no-trunc", "--filter", f"label={self.label}").split())

    def images(self) -> set[str]:
        return set(self.engine.docker("image", "ls", "-q", "--no-trunc", "--filter", f"label={self.label}").split())


@pytest.fixture
def mine(docker: Engine) -> Iterator[Mine]:
    found = Mine(docker)
    yield found
    with suppress(CalledProcessError):
        docker.docker("rm", "--force", "--volumes", *found.containers())
    with suppress(CalledProcessError):
        docker.docker("image", "rm", "--force", *found.images())


@pytest.mark.fault("host-bad")
def test_what_is_old_goes_and_what_a_job_has_stays(mine: Mine) -> None:
    tag = uuid.uuid4().hex[:8]
    baked = mine.image(mine.container("before", "true"), f"baked:{tag}")
    mine.engine.docker("rm", *mine.containers())
    room = DockerRoom(env={**os.environ}, run=mine, wall=mine.now)
    assert room.trouble() == ""
    assert [str(path) for path in room.folders()] == [
        mine.engine.docker("info", "--format", "{{.DockerRootDir}}").strip()
    ]
    over, work = f"inspect-over-i{tag}", f"inspect-work-i{tag}"
    stay = {mine.container(work, "true"), mine.container(work, "sleep", "600"), mine.container("persons", "true")}
    unused = mine.image(next(iter(stay)), f"unused:{tag}", f"unused:{tag}-too")
    persons = mine.image(next(iter(stay)), f"persons:{tag}")
    mine.container(over, "true", image=unused)
    assert room.trouble() == ""
    mine.later += OLD
    said = room.make_room()
    assert "stood still for an hour: 1; their images, unused for as long: 1; build cache: " in said
    assert mine.containers() == stay
    assert {baked, persons} <= mine.images()
    assert unused not in mine.images()
