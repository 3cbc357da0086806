"""A run on a scripted Hawk deployment that is left early, or whose launches come to nothing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from fleet.evals.secrets import RunSecrets
from fleet.hawk.connect import Hawk
from fleet.hawk.following import FAILED_S, STALE_S, Collect, Ended, Follow, Resume, Submit
from fleet.hawk.mapping import EvalSet, ExpectedLog
from fleet.hawk.plain import PlainCalls
from flows import hawk_run
from flows.hawk_run import HawkRun
from flows.run import ONCE_MORE_S
from tests.flows.clock import Clock
from tests.flows.hawk_story import ID, MODEL, TASK, Bar, Follower
from tests.hawk_server import TOKEN, HawkServer, Launch, State, problem

AT_WORK = State("running", 1, 2)


class BusyClock(Clock):
    """After each wait something may happen."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


@pytest.fixture
def clock() -> BusyClock:
    return BusyClock()


@pytest.fixture
def run(hawk: HawkServer, clock: BusyClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[HawkRun]:
    monkeypatch.setattr(hawk_run, "LiveArtifacts", Bar)
    made = EvalSet(ID, {"tasks": []}, (), (ExpectedLog(TASK, {}, MODEL),), ())
    api = Hawk(PlainCalls(hawk.address), lambda: TOKEN)
    with disable_run_logger():
        yield HawkRun(api, made, RunSecrets({}), clock=clock, sleep=clock.sleep)


def leave(run: HawkRun) -> None:
    """As a person's cancellation does."""
    with pytest.raises(KeyboardInterrupt), run:
        raise KeyboardInterrupt


@pytest.mark.fault("hawk-cancelled")
@pytest.mark.usefixtures("follower")
def test_a_cancellation_right_after_a_resume_is_not_told_off_by_the_end_of_the_run_before(
    run: HawkRun, hawk: HawkServer
) -> None:
    hawk.has(ID, ["complete"])
    hawk.launches = [Launch(["complete", "complete", AT_WORK])]
    assert isinstance(run.next(), Collect)
    run.launch(Resume())
    assert isinstance(run.next(), Follow)
    leave(run)
    assert hawk.asked("DELETE") == 1


@pytest.mark.fault("hawk-cancelled")
@pytest.mark.usefixtures("follower")
@pytest.mark.parametrize("before", [None, "complete", "failed"])
def test_a_launch_that_is_interrupted_under_way_is_ended_when_it_comes_through(
    run: HawkRun, hawk: HawkServer, clock: BusyClock, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before:
        hawk.has(ID, [AT_WORK, before])
        assert isinstance(run.next(), Follow)

    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    def comes_through() -> None:
        if clock.now >= 20 and not came:
            came.append(clock.now)
            hawk.has(ID, [AT_WORK])

    came: list[float] = []
    clock.meanwhile = comes_through
    monkeypatch.setattr(run, "_launched", interrupted)
    with pytest.raises(KeyboardInterrupt), run:
        run.launch(Resume() if before else Submit())
    assert came
    assert hawk.sets[ID].now.status == "deleted"


@pytest.mark.fault("hawk-cancelled")
@pytest.mark.usefixtures("follower")
def test_once_a_launch_without_an_answer_is_seen_at_work_its_end_leaves_whole_logs(
    run: HawkRun, hawk: HawkServer
) -> None:
    hawk.launches = [Launch([AT_WORK])]
    hawk.lose("POST /eval_sets")
    run.next()
    run.launch(Submit())
    assert isinstance(run.next(), Follow)
    leave(run)
    assert (len(hawk.stops), hawk.asked("DELETE")) == (1, 0)


@pytest.mark.fault("hawk-cancelled")
@pytest.mark.usefixtures("follower")
def test_a_cancellation_between_two_pods_of_a_runner_ends_the_eval_set(run: HawkRun, hawk: HawkServer) -> None:
    hawk.has(ID, [AT_WORK, "failed"])
    assert [type(run.next()) for _ in range(2)] == [Follow, Follow]
    leave(run)
    assert hawk.asked("DELETE") == 1


@pytest.mark.fault("hawk-cancelled")
def test_a_ctrl_c_that_repeats_ends_it_all_the_same_and_one_more_leaves_it_to_the_person(
    run: HawkRun, hawk: HawkServer, clock: BusyClock, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    hawk.has(ID, [AT_WORK])
    run.next()
    clock.meanwhile = lambda: signal.raise_signal(signal.SIGINT)
    leave(run)
    assert len(hawk.stops) == 1
    assert "still ending the eval set" in follower.warnings[-1]

    hawk.has(ID, [AT_WORK])
    run.next()
    monkeypatch.setattr("tests.hawk_server.EvalSetOnHawk.become", lambda *_: None)
    monkeypatch.setattr("flows.run.ONCE_MORE_S", 0.0)
    assert ONCE_MORE_S > 0
    leave(run)
    assert hawk.asked("DELETE") == 0
    assert follower.warnings[-1] == f"left as it is: `hawk delete {ID}` ends it"


@pytest.mark.fault("hawk-refuses")
@pytest.mark.usefixtures("follower")
def test_what_hawk_cannot_clear_away_is_resumed_again_later_and_then_ends_in_hawks_words(
    run: HawkRun, hawk: HawkServer, clock: BusyClock
) -> None:
    hawk.has(ID, ["complete"])
    hawk.fail("POST /eval_sets", problem(409, "Could not clear finished job", "run 'hawk delete' first"), times=100)
    ended, posts = None, list[float]()
    while ended is None:
        step = run.next()
        if isinstance(step, Collect):
            posts.append(clock.now)
            ended = run.launch(Resume())
        run.wait()
    assert isinstance(ended, Ended)
    assert "Could not clear finished job: run 'hawk delete' first" in ended.why
    assert min(later - one for one, later in pairwise(posts)) >= STALE_S


@pytest.mark.fault("hawk-complete")
@pytest.mark.usefixtures("follower")
def test_a_runner_that_failed_is_collected_when_nothing_takes_its_place(
    run: HawkRun, hawk: HawkServer, clock: BusyClock
) -> None:
    hawk.has(ID, [AT_WORK, "failed"])
    while isinstance(run.next(), Follow):
        run.wait()
    assert FAILED_S <= clock.now <= FAILED_S + 3 * hawk_run.LOOK_S
