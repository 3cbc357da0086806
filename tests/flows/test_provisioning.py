"""Who is given secrets, in which flow run, and what is left when the run or the flow ends at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from prefect.logging import disable_run_logger

from fleet.aws.failures import Denied
from fleet.evals.handout import Handout
from fleet.evals.progress import WorkerFacts, WorkerPhase
from fleet.evals.secrets import RunSecrets
from flows import provision_secrets as module
from flows.provision_secrets import arrivals, write_secrets
from flows.provisioning import AGAIN_S, PATIENCE_S, Provisioning
from tests.fleet.evals.test_handout import PATH, Store

TIME_S = 10.0
"""For a thread that has only to be scheduled."""


def a_worker(instance: str | None, *, over: bool = False, run_id: str = "") -> WorkerFacts:
    return WorkerFacts(run_id or str(uuid4()), "w", WorkerPhase.BOOTING, instance, "", 0.0, over=over)


def come(worker: WorkerFacts, instance: str | None = None, *, over: bool = False) -> WorkerFacts:
    """The same worker later."""
    return a_worker(instance or worker.instance, over=over, run_id=worker.run_id)


class Flow:
    """Stands in for the flow: serves its arrivals by `serve`, and keeps count of its runs."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.ended = 0
        self.failures: list[BaseException] = []
        self.serve: Callable[[str], object] = lambda instance: None

    def __call__(self, run: str, path: str, count: int) -> None:
        assert (run, path) == ("run", PATH)
        self.runs.append(count)
        coming = arrivals.get()
        for worker in coming:
            if self.failures:
                raise self.failures.pop(0)
            self.serve(str(worker.instance))
            coming.handout.write(str(worker.instance))
            coming.served.add(str(worker.instance))
        self.ended += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIME_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def flow() -> Flow:
    return Flow()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def provisioning_of(store: Store, flow: Flow, clock: Clock) -> Iterator[Provisioning]:
    handout = Handout(store, PATH, RunSecrets({"K": "1"}, {"linux": "L=1"}), lambda _: {}, advanced=False)
    with disable_run_logger(), Provisioning("run", handout, flow=flow, clock=clock) as provisioning:
        yield provisioning


def test_one_flow_run_serves_all_instances_of_a_launch_however_they_come(
    store: Store, flow: Flow, clock: Clock
) -> None:
    workers = [a_worker(None) for _ in range(24)]
    with provisioning_of(store, flow, clock) as provisioning:
        provisioning.look(workers)
        assert flow.runs == [], "none begins before there is someone to serve"
        for number in range(24):
            workers[number] = come(workers[number], f"i-{number}")
            provisioning.look(workers)
        until(lambda: flow.ended)
        provisioning.look(workers)
    assert flow.runs == [24]
    assert len(store.held) == 48


def test_the_flow_run_ends_when_the_last_instance_will_not_come(store: Store, flow: Flow, clock: Clock) -> None:
    first, second = a_worker("i-1"), a_worker(None)
    with provisioning_of(store, flow, clock) as provisioning:
        provisioning.look([first, second])
        assert flow.ended == 0
        provisioning.look([first, come(second, over=True)])
        until(lambda: flow.ended)
    assert flow.runs == [2]


def test_instances_that_replace_lost_ones_get_a_flow_run_of_their_own(store: Store, flow: Flow, clock: Clock) -> None:
    first = a_worker("i-1")
    with provisioning_of(store, flow, clock) as provisioning:
        provisioning.look([first])
        until(lambda: flow.ended == 1)
        provisioning.look([come(first, over=True), a_worker("i-2")])
        until(lambda: flow.ended == 2)
    assert flow.runs == [1, 1]
    assert sorted(store.held) == ["i-2", "i-2.env.linux"], "what the lost one had not fetched is gone"


def test_a_worker_that_gets_another_instance_gets_secrets_for_that_one_too(
    store: Store, flow: Flow, clock: Clock
) -> None:
    worker = a_worker("i-1")
    with provisioning_of(store, flow, clock) as provisioning:
        provisioning.look([worker])
        provisioning.look([come(worker, "i-2")])
        until(lambda: flow.ended == 2)
    assert {name.partition(".")[0] for name in store.held} == {"i-1", "i-2"}


def test_a_slow_write_keeps_nobody_from_looking(store: Store, flow: Flow, clock: Clock) -> None:
    slow = threading.Event()
    store.before = lambda name: (slow.wait(TIME_S), None)[1]
    workers = [a_worker("i-1"), a_worker("i-2")]
    with provisioning_of(store, flow, clock) as provisioning:
        for _ in range(100):
            assert provisioning.look(workers) == []
        assert store.held == {}
        slow.set()
        until(lambda: len(store.held) == 4)


def test_a_run_that_ends_during_a_write_leaves_nothing(store: Store, flow: Flow, clock: Clock) -> None:
    begun, over = threading.Event(), threading.Event()

    def on_its_way(name: str) -> None:
        begun.set()
        over.wait(TIME_S)

    def interrupted(provisioning: Provisioning) -> None:
        provisioning.look([a_worker("i-1"), a_worker("i-2")])
        assert begun.wait(TIME_S)
        threading.Timer(0.05, over.set).start()
        raise KeyboardInterrupt

    store.after = on_its_way
    with pytest.raises(KeyboardInterrupt), provisioning_of(store, flow, clock) as provisioning:
        interrupted(provisioning)
    assert flow.ended == 1, "the block waits for what is on its way"
    assert store.held == {}


def test_what_was_fetched_is_deleted_at_the_next_look(store: Store, flow: Flow, clock: Clock) -> None:
    workers = [a_worker("i-1")]
    handout = Handout(store, PATH, RunSecrets({"K": "1"}), lambda _: {}, advanced=False)
    with Provisioning("run", handout, flow=flow, clock=clock) as provisioning:
        provisioning.look(workers)
        until(lambda: store.held)
        handout.fetched("i-1", f"{PATH}/i-1")
        provisioning.look(workers)
    assert store.held == {}


def rounds_over(provisioning: Provisioning) -> bool:
    """Whether no thread of it is at work."""
    return all(one.over for one in provisioning._rounds)


@pytest.mark.fault("no-answer")
def test_a_flow_that_fails_is_begun_again_for_those_it_had_not_served(store: Store, flow: Flow, clock: Clock) -> None:
    flow.serve = lambda instance: flow.failures.append(ConnectionError("Prefect is away"))
    workers = [a_worker("i-1"), a_worker("i-2")]
    with provisioning_of(store, flow, clock) as provisioning:
        provisioning.look(workers)  # serves the first, fails at the second
        until(lambda: not flow.failures and len(store.held) == 2)
        until(lambda: flow.runs == [2])
        until(lambda: rounds_over(provisioning))
        for _ in range(3):
            provisioning.look(workers)
            time.sleep(0.01)
        assert flow.runs == [2], "not at once"
        flow.serve = lambda instance: None
        clock.now = AGAIN_S
        until(lambda: provisioning.look(workers) == [] and len(store.held) == 4)
    assert flow.runs == [2, 1]


@pytest.mark.parametrize("error", [ConnectionError("Prefect is away"), SystemExit("aborted")])
def test_a_flow_that_fails_for_minutes_ends_the_run_with_its_error(
    store: Store, flow: Flow, clock: Clock, error: BaseException
) -> None:
    workers = [a_worker("i-1")]

    def look_on() -> None:
        while True:
            flow.failures = [error]
            provisioning.look(workers)
            until(lambda: rounds_over(provisioning))
            clock.now += AGAIN_S

    with pytest.raises(type(error)), provisioning_of(store, flow, clock) as provisioning:
        look_on()
    assert PATIENCE_S <= clock.now < 2 * PATIENCE_S
    assert store.held == {}


def test_a_run_without_secrets_begins_no_flow(flow: Flow) -> None:
    with Provisioning("run", None, flow=flow) as provisioning:
        assert provisioning.look([a_worker("i-1")]) == []
    assert flow.runs == []


@pytest.mark.fault("secret-refused")
def test_write_refused_for_the_third_of_five_instances_ends_that_one_and_names_it(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[tuple[str, str]] = []
    monkeypatch.setattr(module, "stop", lambda ids, *, why: stopped.extend((str(one), why) for one in ids))
    store.refuses["i-3"] = Denied(
        service="ssm", operation="PutParameter", code="AccessDeniedException", target="/p", why="not you"
    )

    def flow(run: str, path: str, count: int) -> None:
        with disable_run_logger():
            for worker in (coming := arrivals.get()):
                write_secrets.fn(coming, worker)

    workers = [a_worker(f"i-{n}") for n in range(1, 6)]
    told: list[tuple[str, str]] = []
    handout = Handout(store, PATH, RunSecrets({"K": "1"}, {"linux": "L=1"}), lambda _: {}, advanced=False)
    with Provisioning("run", handout, flow=flow, clock=clock) as provisioning:

        def look() -> bool:
            told.extend(provisioning.look(workers))
            return bool(told) and len(store.held) == 8

        until(look)
    ((instance, why),) = told
    assert instance == "i-3"
    assert "AccessDeniedException: not you" in why
    ((worker, reason),) = stopped
    assert worker == workers[2].run_id
    assert reason == f"its secrets could not be written: {why}"
    assert {name.partition(".")[0] for name in store.held} == {"i-1", "i-2", "i-4", "i-5"}
