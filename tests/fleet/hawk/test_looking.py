"""A look at an eval set and its end, against a scripted server, through both clients; and whole stories of a run."""

from __future__ import annotations

import pytest

from fleet.hawk.api import HawkConflict, HawkError, HawkFailed, HawkForbidden, HawkRefusedLogin, HawkUnreachable
from fleet.hawk.connect import Hawk
from fleet.hawk.following import PASSING, STALE_S, Collect, Ended, Follow, Resume, Seen, Submit, after_launch, next_step
from fleet.hawk.looking import AGAIN_S, OPEN_S, QUICK_S, STOP_S, end, look
from fleet.hawk.looking import Launch as Launched
from fleet.hawk.plain import ANSWER_S, answers_within, longest
from tests.hawk_server import HANG_UP, EvalSetOnHawk, Fault, HawkServer, Launch, State, detail, problem

ID = "my-eval-0123456789"


class Clock:
    """Time that passes by waiting for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_look_has_the_state_and_the_progress(server: HawkServer, hawk: Hawk) -> None:
    assert look(hawk, ID).job is None
    server.has(ID, [State("running", done=3, total=8)])
    seen = look(hawk, ID)
    assert seen.job is not None
    assert seen.progress is not None
    assert (seen.job.status, seen.progress.progress.completed) == ("running", 3)


def test_a_progress_that_cannot_be_had_is_left_out(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["running"])
    for fault in (detail(403, "You do not have permission to view this eval set."), detail(503, "later"), HANG_UP):
        server.forgive()
        server.fail("eval-set-status", fault, times=2)  # Hawk's own client asks again by itself where nobody answered
        seen = look(hawk, ID)
        assert seen.job is not None
        assert (seen.error, seen.progress) == (None, None)


@pytest.mark.parametrize("fault", [problem(500, "Server error", "oops"), HANG_UP])
def test_what_time_mends_is_part_of_the_look(server: HawkServer, hawk: Hawk, fault: object) -> None:
    server.has(ID, ["running"])
    server.fail("job-status", fault, times=2)  # type: ignore[arg-type]
    assert isinstance(look(hawk, ID).error, PASSING)


@pytest.mark.parametrize(
    ("call", "fault", "kind"),
    [
        ("job-status", detail(403, "no"), HawkForbidden),
        ("job-status", detail(401, "no"), HawkRefusedLogin),
        ("eval-set-status", detail(401, "no"), HawkRefusedLogin),
    ],
)
def test_what_time_does_not_mend_is_raised(
    server: HawkServer, hawk: Hawk, call: str, fault: object, kind: type[HawkError]
) -> None:
    server.has(ID, ["running"])
    server.fail(call, fault, times=2)  # type: ignore[arg-type]
    with pytest.raises(kind):
        look(hawk, ID)


def ended(hawk: Hawk, launch: Launched = Launched.SEEN) -> float:
    """The seconds that it took."""
    clock = Clock()
    end(hawk, ID, launch=launch, sleep=clock.sleep, clock=clock)
    return clock.now


@pytest.fixture
def heedless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that hears of nothing, and a cluster that takes nothing off."""
    monkeypatch.setattr("tests.hawk_server.EvalSetOnHawk.become", lambda *_: None)


@pytest.mark.parametrize("state", ["running", "stuck", "waiting_for_capacity"])
def test_a_runner_at_work_is_told_to_stop_and_ends_by_itself(server: HawkServer, hawk: Hawk, state: str) -> None:
    server.has(ID, [State(state, 1, 4)], {"a.eval": b""})
    ended(hawk)
    assert (len(server.stops), server.asked("DELETE")) == (1, 0)


@pytest.mark.parametrize("state", ["pending", "failed", "running"])
def test_a_runner_that_has_no_logs_to_make_whole_is_taken_off_at_once(
    server: HawkServer, hawk: Hawk, state: str
) -> None:
    """One that hasn't begun would forget that it was told to stop, and so would one that the cluster starts again."""
    server.has(ID, [State(state)])
    assert ended(hawk) == 0.0
    assert (server.stops, server.asked("DELETE")) == ([], 1)


def test_a_runner_that_fails_instead_of_ending_is_taken_off(
    server: HawkServer, hawk: Hawk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.has(ID, [State("running", 1, 4)])
    become = EvalSetOnHawk.become
    monkeypatch.setattr(
        EvalSetOnHawk, "become", lambda its, status: become(its, "failed" if status == "complete" else status)
    )
    assert ended(hawk) == AGAIN_S
    assert (len(server.stops), server.asked("DELETE")) == (1, 1)


@pytest.mark.parametrize("state", ["complete", "deleted", None])
def test_what_is_over_is_left_alone(server: HawkServer, hawk: Hawk, state: str | None) -> None:
    if state:
        server.has(ID, [state])
    ended(hawk)
    assert (server.stops, server.asked("DELETE")) == ([], 0)


@pytest.mark.usefixtures("heedless")
def test_a_runner_that_does_not_heed_a_stop_is_taken_off(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, [State("running", 1, 4)], {"a.eval": b""})
    took = ended(hawk)
    assert (len(server.stops), server.asked("DELETE")) == (1, 1)
    assert STOP_S <= took < STOP_S + AGAIN_S
    assert STOP_S + AGAIN_S + 2 * QUICK_S < 30, "a process pool kills a cancelled run then"
    assert server.asked("eval-set-status") == 1


@pytest.mark.parametrize("fault", [problem(500, "Server error", "oops"), HANG_UP, detail(403, "no")])
@pytest.mark.parametrize("call", ["job-status", "/stop", "eval-set-status"])
def test_one_call_that_fails_leaves_nothing_at_work(server: HawkServer, hawk: Hawk, call: str, fault: Fault) -> None:
    """It is made again, and what can't be known or told to stop is taken off."""
    server.has(ID, [State("running", 1, 4)], {"a.eval": b""})
    server.fail(call, fault, times=2)
    ended(hawk)
    assert server.sets[ID].now.status == "complete"
    refused = fault.status == 403 and call == "/stop"
    assert (len(server.stops), server.asked("DELETE")) == ((0, 1) if refused else (1, 0)), (
        "its logs are whole if they can be"
    )


def test_to_be_taken_off_is_asked_for_until_hawk_answers_and_else_is_an_error(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["pending"])
    server.fail("DELETE", problem(500, "Server error", "oops"), times=5)
    ended(hawk)
    assert server.sets[ID].now.status == "deleted"
    server.has(ID, ["pending"])
    server.fail("DELETE", problem(500, "Server error", "oops"), times=1_000)
    with pytest.raises(HawkFailed, match="oops"):
        ended(hawk)
    server.forgive()
    server.fail("", HANG_UP, times=1_000)
    with pytest.raises(HawkUnreachable):
        ended(hawk)


@pytest.mark.parametrize("state", ["complete", "failed", None])
def test_what_was_launched_a_moment_ago_is_taken_off_whatever_hawk_shows(
    server: HawkServer, hawk: Hawk, state: str | None
) -> None:
    """That is the run before."""
    if state:
        server.has(ID, [state])
    assert ended(hawk, Launched.ANSWERED) == 0.0
    assert server.asked("DELETE /eval_sets/") == 1


@pytest.mark.parametrize("state", ["complete", "deleted", None])
def test_a_launch_that_comes_through_after_its_end_was_asked_for_is_ended(
    server: HawkServer, hawk: Hawk, state: str | None
) -> None:
    """As of a Ctrl-C while Hawk still resolves packages: it launches the eval set all the same, seconds later."""
    if state:
        server.has(ID, [state])
    clock = Clock()
    came: list[float] = []

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now >= 30 and not came:
            came.append(clock.now)
            server.has(ID, [State("running", 1, 4)])

    end(hawk, ID, launch=Launched.OPEN, sleep=sleep, clock=clock)
    assert came
    assert server.sets[ID].now.status == "deleted"
    assert STALE_S <= clock.now < STALE_S + OPEN_S


def test_no_call_waits_long_while_an_eval_set_is_ended(hawk: Hawk, server: HawkServer) -> None:
    """Neither client's."""
    server.has(ID, ["pending"])
    server.slow = 1.0
    with pytest.raises(HawkUnreachable), answers_within(0.2):
        hawk.job_status(ID)
    assert longest(ANSWER_S) == ANSWER_S
    server.slow = 0.0
    server.fail("DELETE", HANG_UP, times=2)
    waits: list[float] = []
    end(hawk, ID, sleep=lambda _: waits.append(longest(ANSWER_S)))
    assert set(waits) <= {QUICK_S}
    assert server.sets[ID].now.status == "deleted"


def story(hawk: Hawk, looks: int) -> list[type]:
    """The steps of a run as its flow takes them, up to so many looks."""
    seen, clock, steps = Seen(ID), Clock(), list[type]()
    for _ in range(looks):
        seen, step = next_step(seen, look(hawk, ID), clock())
        steps.append(type(step))
        if isinstance(step, Collect | Ended):
            break
        if isinstance(step, Submit | Resume):
            error: HawkError | None = None
            try:
                hawk.submit(ID, {"tasks": []}, secrets={})
            except (HawkConflict, *PASSING) as refused:
                error = refused
            seen, _ = after_launch(seen, clock(), error)
        clock.sleep(5.0)
    return steps


def test_a_run_from_its_launch_to_its_end(server: HawkServer, hawk: Hawk) -> None:
    server.launches = [Launch(["pending", "running", "pending", "running", "complete"])]
    assert story(hawk, 20) == [Submit, *[Follow] * 4, Collect]
    assert len(server.posted) == 1


def test_a_5xx_while_following_is_borne(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["running", "running", "complete"])
    server.fail("job-status", problem(500, "Server error", "oops"))
    server.fail("job-status", Fault(502, "<html>Bad gateway</html>", "text/html"))
    assert story(hawk, 20) == [*[Follow] * 4, Collect]


def test_a_controller_that_was_killed_is_followed_by_the_next_without_a_second_launch(
    server: HawkServer, hawk: Hawk
) -> None:
    server.launches = [Launch(["pending", *["running"] * 4, "complete"])]
    assert story(hawk, 3) == [Submit, Follow, Follow]
    assert story(hawk, 20) == [*[Follow] * 3, Collect]
    assert len(server.posted) == 1


def test_a_launch_whose_answer_is_lost_is_not_made_again(server: HawkServer, hawk: Hawk) -> None:
    server.launches = [Launch(["running", "complete"])]
    server.lose("POST /eval_sets")
    assert story(hawk, 20) == [Submit, Follow, Collect]
    assert len(server.posted) == 1


def test_a_launch_that_meets_another_follows_that(server: HawkServer, hawk: Hawk) -> None:
    server.fail("POST /eval_sets", problem(409, "Launch already in progress", "Retry once it finishes."))
    server.fail("job-status", detail(404, "Job not found."))
    server.has(ID, ["running", "complete"])
    assert story(hawk, 20) == [Submit, Follow, Collect]
    assert server.posted == []


def test_a_runner_that_the_cluster_starts_again_is_followed(server: HawkServer, hawk: Hawk) -> None:
    """Hawk calls it failed in between, and tells of the failed pod."""
    server.launches = [Launch(["running", *["failed"] * 16, "running", "complete"])]
    assert story(hawk, 40) == [Submit, *[Follow] * 18, Collect]


def test_a_launch_whose_pods_are_gone_is_not_followed_for_ever(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["pending"])
    assert story(hawk, 200)[-1] is Collect
