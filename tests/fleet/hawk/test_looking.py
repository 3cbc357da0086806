"""A look at an eval set and its end, against a scripted server, through both clients; and whole stories of a run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.hawk.api import HawkConflict, HawkError, HawkForbidden, HawkRefusedLogin
from fleet.hawk.connect import Hawk
from fleet.hawk.following import PASSING, Collect, Ended, Follow, Resume, Seen, Submit, after_launch, next_step
from fleet.hawk.looking import AGAIN_S, STOP_S, end, look
from tests.hawk_server import HANG_UP, Fault, HawkServer, Launch, State, detail, problem

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


@pytest.mark.parametrize("state", ["running", "stuck", "waiting_for_capacity"])
def test_a_runner_at_work_is_told_to_stop_and_ends_by_itself(server: HawkServer, hawk: Hawk, state: str) -> None:
    server.has(ID, [state], {"a.eval": b""})
    end(hawk, ID, sleep=Clock().sleep)
    assert (len(server.stops), server.asked("DELETE")) == (1, 0)


def test_a_runner_that_has_not_begun_is_taken_off(server: HawkServer, hawk: Hawk) -> None:
    """When it began it would forget that it was told to stop."""
    server.has(ID, ["pending"])
    end(hawk, ID, sleep=Clock().sleep)
    assert (server.stops, server.asked("DELETE")) == ([], 1)


@pytest.mark.parametrize("state", ["complete", "failed", "deleted", None])
def test_what_is_over_is_left_alone(server: HawkServer, hawk: Hawk, state: str | None) -> None:
    if state:
        server.has(ID, [state])
    end(hawk, ID, sleep=Clock().sleep)
    assert (server.stops, server.asked("DELETE")) == ([], 0)


def test_a_runner_that_does_not_heed_a_stop_is_taken_off(
    server: HawkServer, hawk: Hawk, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.has(ID, ["running"], {"a.eval": b""})
    monkeypatch.setattr("tests.hawk_server.EvalSetOnHawk.become", lambda *_: None)
    monkeypatch.setattr("fleet.hawk.looking.STOP_S", 3 * AGAIN_S)
    clock = Clock()
    end(hawk, ID, sleep=clock.sleep, clock=clock)
    assert (len(server.stops), server.asked("DELETE"), clock.now) == (1, 1, 3 * AGAIN_S)
    assert STOP_S > 10 * AGAIN_S


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
    steps: Sequence[type] = story(hawk, 2)
    server.has(ID, ["running", "complete"])
    assert [*steps, *story(hawk, 20)] == [Submit, Follow, Follow, Collect]
    assert server.posted == []
