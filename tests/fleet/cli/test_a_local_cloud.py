"""A local cloud of a run's own: the run goes on when it answers, and a cloud that fails later is what the run failed of."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.display import Display
from fleet.cli.run import RequestInvalid, a_local_cloud
from fleet.local import cloud
from fleet.local.cloud import CloudNotStarted, LocalCloud

OWN = LocalCloud(
    name="run-1", folder=Path("/clouds/run-1"), aws_endpoint="http://aws:1", prefect_api="http://prefect:2/api"
)
FAILED = CloudNotStarted(cloud="run-1", part="workers", why="ended with exit code 1", log="workers.log")
WAIT_S = 20
SOON_S = 1.0


class Shown(Display):
    """What a person saw."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.warned = threading.Event()

    def stage(self, name: str) -> None:
        self.lines.append(name)

    def warn(self, line: str) -> None:
        self.lines.append(line)
        self.warned.set()


class Starting:
    """A cloud whose pool workers start for as long as a test wants."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.fails = False
        self.failed = threading.Event()
        self.downs: list[str] = []

    def up(
        self,
        name: str,
        *,
        coming: Callable[[LocalCloud], None],
        answering: Callable[[LocalCloud], None],
        wanted: Callable[[], bool],
        **_: Any,
    ) -> LocalCloud:
        coming(OWN)
        answering(OWN)
        while not self.end.wait(0.01) and wanted():
            pass
        if self.fails or not self.end.is_set():
            threading.Timer(SOON_S, self.failed.set).start()  # when this call has failed
            raise FAILED
        return OWN

    def down(self, name: str) -> list[str]:
        self.downs.append(name)
        return []


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starting]:
    found = Starting()
    for name, fake in (("up", found.up), ("down", found.down), ("find", lambda _: None)):
        monkeypatch.setattr(cloud, name, fake)
    with monkeypatch.context() as own:
        own.setattr(os, "environ", dict(os.environ))
        yield found
        found.end.set()


def test_a_run_goes_on_while_the_pool_workers_start(starting: Starting) -> None:
    shown = Shown()
    with a_local_cloud(shown) as point_there:
        point_there()
        assert os.environ["AWS_ENDPOINT_URL"] == OWN.aws_endpoint
        assert shown.lines == [f"Local cloud is up: {OWN.prefect_ui}"]
        starting.end.set()
    assert shown.lines[1:] == ["Taking the local cloud down"]
    assert len(starting.downs) == 1


def test_a_run_that_is_over_before_they_are_there_calls_their_start_off(starting: Starting) -> None:
    shown = Shown()
    with a_local_cloud(shown) as point_there:
        point_there()
    assert shown.lines == [f"Local cloud is up: {OWN.prefect_ui}"]
    assert len(starting.downs) == 1


def test_a_cloud_that_fails_under_a_run_is_told_at_once_and_is_what_the_run_failed_of(starting: Starting) -> None:
    shown = Shown()
    starting.fails = True

    def run() -> None:
        with a_local_cloud(shown) as point_there:
            point_there()
            starting.end.set()
            assert shown.warned.wait(WAIT_S), "Prefect's client may take minutes to give up"
            raise ConnectionError("no answer")

    with pytest.raises(CloudNotStarted, match="workers ended with exit code 1") as raised:
        run()
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert shown.lines[1:] == [str(FAILED)]


def test_what_a_run_fails_of_itself_stays_what_it_was(starting: Starting) -> None:
    def run() -> None:
        with a_local_cloud(Shown()) as point_there:
            point_there()
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        run()
    assert len(starting.downs) == 1


def test_a_cloud_that_has_failed_while_the_run_was_planned_is_not_called_up(starting: Starting) -> None:
    shown = Shown()
    starting.fails = True

    def run() -> None:
        with a_local_cloud(shown) as point_there:
            starting.end.set()
            assert starting.failed.wait(WAIT_S)
            point_there()

    with pytest.raises(CloudNotStarted, match="workers ended with exit code 1"):
        run()
    assert shown.lines == []


def test_a_request_that_is_refused_while_the_cloud_fails_is_refused(starting: Starting) -> None:
    """Its own exit code, and what is wrong with it, count more than a cloud that it never used."""
    starting.fails = True

    def run() -> None:
        with a_local_cloud(Shown()):
            starting.end.set()
            assert starting.failed.wait(WAIT_S)
            raise RequestInvalid(why="no such task")

    with pytest.raises(RequestInvalid, match="no such task"):
        run()
