"""The story of a run on Hawk, against a scripted deployment: what it posts, what it waits for, what it comes to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.logging import disable_run_logger

from blocks.ec2_config import Ec2Config
from blocks.hawk import HawkDeployment
from blocks.secrets import WorkerSecrets
from fleet.errors import FleetError
from fleet.evals.listener import Nobody, Seen, listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.hawk.api import HawkForbidden, HawkInvalid, HawkRefusedLogin
from fleet.hawk.following import PATIENCE_S, STALE_S
from fleet.hawk.mapping import EvalSet, ExpectedLog
from flows import hawk_run
from flows import run_on_hawk as story
from flows.watch import CancelledByPerson
from tests.hawk_server import HANG_UP, TOKEN, Fault, HawkServer, Launch, State, detail, eval_log, hawk_server, problem

ID = "evalkit-plain-0123456789ab"
TASK, MODEL = "evalkit/plain", "kit/model"
GOOD = {"1_plain.eval": eval_log(TASK, MODEL)}
BAD = {"1_plain.eval": eval_log(TASK, MODEL, status="error", error="boom", done=1)}


class Follower(Nobody):
    """Hears a run."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def progress(self, progress: Seen) -> None:
        if progress.line() not in self.lines[-1:]:
            self.lines.append(progress.line())


class Clock:
    """Time that passes by being waited for."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Bar:
    """The artifacts of a run, which has no Prefect here."""

    rows: list[Any]

    def __init__(self, table: str) -> None:
        Bar.rows = []

    def bring_up_to_date(self, progress: Seen, rows: list[Any], *, about: str) -> None:
        Bar.rows.append((progress.fraction, rows, about))


@pytest.fixture
def hawk() -> Iterator[HawkServer]:
    with hawk_server() as server:
        yield server


@pytest.fixture
def follower() -> Iterator[Follower]:
    heard = Follower()
    token = listener.set(heard)
    yield heard
    listener.reset(token)


@pytest.fixture
def asked_for_its_end(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a person cancels the run, look by look; then never."""
    answers: list[bool] = []
    monkeypatch.setattr(story, "asked_to_end", lambda: bool(answers) and answers.pop(0))
    return answers


@pytest.fixture
def run(
    hawk: HawkServer, follower: Follower, asked_for_its_end: list[bool], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., RunReport]:
    """Run a request that becomes the eval set `ID`, with no time passing and no Prefect server."""
    clock = Clock()

    class Run(hawk_run.HawkRun):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, clock=clock, sleep=clock.sleep, **named)

    made = EvalSet(ID, {"tasks": []}, ("KEY",), (ExpectedLog(TASK, {}, MODEL),), ())
    monkeypatch.setattr(hawk_run, "LiveArtifacts", Bar)
    monkeypatch.setattr(story, "HawkRun", Run)
    monkeypatch.setattr(story, "make_eval_set", lambda *_: made)
    monkeypatch.setattr(story, "hawk_deployment", lambda _: HawkDeployment(address=hawk.address, token=TOKEN))
    monkeypatch.setattr(story, "show_report", lambda *shown: Bar.rows.append(shown))
    for name in ("launch", "collect_logs", "deliver_logs"):
        monkeypatch.setattr(story, name, getattr(story, name).fn)

    def follow(run: hawk_run.HawkRun, **_: object) -> Any:
        return story_follow(run) or _Done()

    story_follow = story.follow_run.fn
    monkeypatch.setattr(story, "follow_run", follow)
    monkeypatch.setenv("KEY", "sk-secret")

    def whole(log_dir: Path | None = None, block: str | None = None) -> RunReport:
        request = EvalRequest.model_validate(
            {"tasks": [TASK], "models": [MODEL], "secrets": ["KEY"], "log_dir": log_dir and str(log_dir)}
        )
        with disable_run_logger():
            return story.run_on_hawk(request, Ec2Config(), "default", block)

    return whole


class _Done:
    def is_cancelled(self) -> bool:
        return False

    def result(self) -> None:
        pass


def test_an_eval_set_is_launched_followed_and_its_log_delivered(
    run: Callable[..., RunReport], hawk: HawkServer, follower: Follower, tmp_path: Path
) -> None:
    hawk.warnings = ["the rate limit is nearly used up"]
    hawk.launches = [Launch(["pending", State("running", 1, 2), State("running", 2, 2), "complete"], GOOD)]
    report = run(tmp_path)
    assert (report.outcome, report.exit_code, report.instances) == ("success", 0, None)
    (one,) = report.evals
    assert Path(one.log).read_bytes() == GOOD["1_plain.eval"]
    assert (one.stored, [metric.value for metric in one.metrics]) == (f"{ID}/1_plain.eval", [1.0])
    (posted,) = hawk.posted
    assert posted["secrets"] == {"KEY": "sk-secret"}
    assert follower.warnings == ["Hawk: the rate limit is nearly used up"]
    assert follower.lines[-1].startswith("2 of 2 samples")
    *_, (shown, below) = Bar.rows
    assert shown is report
    assert f"(https://viewer.hawk.example.org/eval-set/{ID})" in below
    assert (0.5, 2) in [(fraction, rows[0]["samples"]) for fraction, rows, _ in Bar.rows[:-1] if rows]


def test_the_same_request_is_the_same_eval_set_unless_it_starts_over() -> None:
    request = EvalRequest.model_validate(
        {"tasks": ["evals/plain"], "models": ["openai/gpt-5"], "packages": ["evals==1"]}
    )
    with disable_run_logger():
        made = [
            story.make_eval_set.fn(request, Ec2Config(**more)).id for more in ({}, {"spot": True}, {"new_fleet": True})
        ]
    assert made[0] == made[1] != made[2]


def test_of_a_block_hawk_is_sent_what_the_request_names_alone(
    run: Callable[..., RunReport], hawk: HawkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = WorkerSecrets.model_validate({"values": {"KEY": "sk-block", "AWS_SECRET_ACCESS_KEY": "nobody's business"}})
    monkeypatch.setattr(WorkerSecrets, "load", staticmethod(lambda _: kept))
    hawk.launches = [Launch(["running", "complete"], GOOD)]
    run(block="keys")
    assert [posted["secrets"] for posted in hawk.posted] == [{"KEY": "sk-block"}]


def test_a_log_that_a_resumed_runner_wrote_over_is_fetched_anew(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.has(ID, ["complete"], BAD)
    hawk.launches = [Launch(["running", "complete"], GOOD)]
    assert run(tmp_path).outcome == "success"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == list(GOOD.values())


def test_a_log_that_is_not_delivered_stays_at_hawk(run: Callable[..., RunReport], hawk: HawkServer) -> None:
    hawk.launches = [Launch(["running", "complete"], GOOD)]
    (one,) = run().evals
    assert (one.status, one.log, one.stored) == ("success", "", f"{ID}/1_plain.eval")


def test_a_place_that_takes_no_log_is_named(
    run: Callable[..., RunReport], hawk: HawkServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(story, "deliver", full)
    hawk.launches = [Launch(["running", "complete"], GOOD)]
    (one,) = run(tmp_path).evals
    assert one.log == ""
    assert "stays at Hawk" in one.why
    assert "No space left" in one.why


def test_the_same_request_again_posts_nothing(run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path) -> None:
    hawk.has(ID, ["complete"], GOOD)
    assert run(tmp_path).outcome == "success"
    assert hawk.posted == []


@pytest.mark.fault("hawk-controller-killed")
def test_a_controller_that_comes_later_follows_the_eval_set_that_is_at_work(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.has(ID, ["running", "pending", State("running", 1, 2), "complete"], GOOD)
    assert run(tmp_path).outcome == "success"
    assert hawk.posted == []


def test_what_an_earlier_run_left_unfinished_goes_on_from_what_it_has(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.has(ID, ["complete"], BAD)
    later = {"2_plain.eval": eval_log(TASK, MODEL, created="2026-01-01T11:00:00+00:00")}
    hawk.launches = [Launch(["pending", "running", "complete"], later)]
    report = run(tmp_path)
    assert (report.outcome, Path(report.evals[0].log).name) == ("success", "2_plain.eval")
    assert [(sent["eval_set_config"], sent["eval_set_id"]) for sent in hawk.posted] == [(None, ID)]


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


@pytest.mark.fault("hawk-complete")
def test_success_is_what_the_logs_say_and_never_hawks_complete(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.launches = [Launch(["running", "complete"], BAD)]
    report = run(tmp_path)
    assert (report.outcome, report.exit_code) == ("incomplete", 3)
    assert "boom" in report.line()
    assert len(hawk.posted) == 1


@pytest.mark.fault("hawk-complete")
def test_a_log_that_is_missing_comes_with_the_runners_last_words(
    run: Callable[..., RunReport], hawk: HawkServer, tmp_path: Path
) -> None:
    hawk.runner_log = ["installing", "ModuleNotFoundError: No module named 'evalkit'"]
    hawk.launches = [Launch(["running", "failed"])]
    report = run(tmp_path)
    assert report.exit_code == 3
    assert report.why == "Hawk's runner said last: ModuleNotFoundError: No module named 'evalkit'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("hawk-complete")
def test_no_secret_is_shown_that_a_runner_or_a_log_quotes(
    run: Callable[..., RunReport],
    hawk: HawkServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(story, "get_run_logger", lambda: logging.getLogger("the run's"))
    hawk.runner_log = ["environment: KEY=sk-secret", "401: sk-secret is no key"]
    hawk.launches = [Launch(["running", "failed"])]
    report = run(tmp_path)
    assert report.why == "Hawk's runner said last: 401: <KEY> is no key"
    assert [line for line in caplog.messages if "runner" in line] == [
        "Hawk's runner: environment: KEY=<KEY>",
        "Hawk's runner: 401: <KEY> is no key",
    ]
    bad = {"1_plain.eval": eval_log(TASK, MODEL, status="error", error="401: sk-secret is no key", done=1)}
    hawk.has(ID, ["complete"], bad)
    hawk.launches = [Launch(["running", "complete"])]
    report = run(tmp_path)
    assert report.evals[0].why == "401: <KEY> is no key"
    assert "sk-secret" not in report.model_dump_json() + report.line() + report.markdown()


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
