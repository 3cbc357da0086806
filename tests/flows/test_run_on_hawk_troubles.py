"""What comes between a run and Hawk: calls without an answer, a login that ends, refusals, a person who cancels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import FleetError
from fleet.evals.report import RunReport
from fleet.hawk.api import HawkForbidden, HawkInvalid, HawkRefusedLogin
from fleet.hawk.following import PATIENCE_S, STALE_S
from flows import hawk_run
from flows.watch import CancelledByPerson
from tests.flows.hawk_story import BAD, GOOD, ID, Follower
from tests.hawk_server import HANG_UP, Fault, HawkServer, Launch, State, detail, problem


@pytest.mark.fault("hawk-no-answer")
def test_a_resume_that_fails_is_not_made_again_at_once(
    run: Callable[..., RunReport], hawk: HawkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hawk.has(ID, ["running", "complete"], BAD)
    hawk.fail("POST /eval_sets/", Fault(503), times=1000)
    took: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        does = getattr(hawk_run.HawkRun, name)

        def one(*given: Any) -> Any:
            took.append(name)
            return does(*given)

        return one

    for name in ("next", "launch", "wait"):
        monkeypatch.setattr(hawk_run.HawkRun, name, noted(name))
    with pytest.raises(FleetError, match="503"):
        run()
    launches = [index for index, name in enumerate(took) if name == "launch"]
    assert 2 < len(launches) <= PATIENCE_S / STALE_S + 2
    assert {took[index + 1] for index in launches[:-1]} == {"wait"}


@pytest.mark.fault("hawk-no-answer")
def test_what_passes_within_five_minutes_ends_no_run_and_posts_nothing_twice(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.fail("job-status", Fault(503), times=3)
    hawk.fail("POST /eval_sets/", HANG_UP)
    hawk.launches = [Launch(["pending", "running", "complete"], GOOD)]
    assert run(tmp_path).outcome == "success"
    assert len(hawk.posted) == 1


@pytest.mark.fault("hawk-no-answer")
def test_what_does_not_pass_ends_the_run_with_the_cause_and_leaves_the_eval_set(
    run: Callable[..., RunReport], hawk: HawkServer, follower: Follower
) -> None:
    hawk.has(ID, ["running"])
    hawk.fail("job-status", Fault(503), times=1000)
    with pytest.raises(FleetError, match=r"503.* the same request goes on"):
        run()
    assert hawk.stops == []


@pytest.mark.fault("hawk-login")
def test_a_login_that_ends_is_renewed_once_and_else_named(
    run: Callable[..., RunReport],
    hawk: HawkServer,
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hawk.fail("job-status", detail(401, "expired"))
    hawk.launches = [Launch(["running", "complete"], GOOD)]
    assert run(tmp_path).outcome == "success"
    hawk.has(ID, ["running", "running"])
    monkeypatch.setattr(
        hawk_run.HawkRun, "wait", lambda _: hawk.fail("eval-set-status", detail(401, "expired"), times=2)
    )
    with pytest.raises(HawkRefusedLogin, match="hawk login"):
        run()
    assert follower.warnings[-1] == f"the eval set {ID} may go on at Hawk; the same request follows it"
    assert hawk.stops == []


@pytest.mark.fault("hawk-refuses")
@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (detail(422, [{"loc": ["body", "secrets"], "msg": "KEY is missing"}]), HawkInvalid, "secrets: KEY is missing"),
        (problem(422, "Bad package", "git+ssh won't do"), HawkInvalid, "Bad package: git.ssh won't do"),
        (detail(403, "not your model"), HawkForbidden, "not your model"),
    ],
)
def test_what_hawk_does_not_take_ends_the_run_in_its_words(
    fault: Fault,
    error: type[FleetError],
    said: str,
    run: Callable[..., RunReport],
    hawk: HawkServer,
    follower: Follower,
) -> None:
    hawk.fail("POST /eval_sets/", fault)
    with pytest.raises(error, match=said):
        run()
    assert hawk.posted == []
    assert follower.warnings == [], "nothing is at work at Hawk"


@pytest.mark.fault("hawk-refuses")
def test_another_submission_that_is_under_way_is_followed(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.has(ID, ["running", "complete"], GOOD)
    hawk.fail("job-status", detail(404, "Job not found."))
    assert run(tmp_path).outcome == "success"
    assert hawk.posted == []


@pytest.mark.fault("hawk-cancelled")
def test_a_run_that_a_person_cancels_ends_its_eval_set(
    run: Callable[..., RunReport], hawk: HawkServer, asked_for_its_end: list[bool]
) -> None:
    hawk.launches = [Launch([State("running", 1, 2)] * 9)]
    asked_for_its_end += [False, False, False, True]
    with pytest.raises(CancelledByPerson, match="the same request goes on from it"):
        run()
    assert hawk.stops == [{"action": "error"}]


@pytest.mark.fault("hawk-cancelled")
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_run_that_a_signal_ends_ends_its_eval_set(
    end: type[BaseException], run: Callable[..., RunReport], hawk: HawkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hawk.launches = [Launch([State("running", 1, 2)] * 9)]

    def interrupted(run: hawk_run.HawkRun) -> None:
        if run.seen.alive:
            raise end

    monkeypatch.setattr(hawk_run.HawkRun, "wait", interrupted)
    with pytest.raises(end):
        run()
    assert hawk.stops == [{"action": "error"}]


@pytest.mark.fault("hawk-cancelled")
def test_an_interruption_before_hawk_has_answered_a_launch_ends_it_too(
    run: Callable[..., RunReport], hawk: HawkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hawk.launches = [Launch([State("running", 1, 2)] * 9)]
    launched = hawk_run.HawkRun._launched

    def interrupted(*given: Any) -> Any:
        launched(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(hawk_run.HawkRun, "_launched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert hawk.sets[ID].now.status == "deleted"


@pytest.mark.fault("hawk-cancelled")
def test_an_eval_set_that_cannot_be_ended_is_named_with_the_command(
    run: Callable[..., RunReport], hawk: HawkServer, follower: Follower, asked_for_its_end: list[bool]
) -> None:
    hawk.launches = [Launch([State("running", 1, 2)] * 9)]
    asked_for_its_end += [False, False, False, True]
    hawk.fail("/stop", detail(403, "You can only stop eval sets you created."))
    hawk.fail("DELETE", detail(403, "You can only delete eval sets you created."))
    with pytest.raises(CancelledByPerson):
        run()
    assert f"`hawk delete {ID}`" in follower.warnings[-1]
