"""The story of a run on Hawk, against a scripted deployment: what it posts, what it waits for, what it comes to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from blocks.ec2_config import Ec2Config
from blocks.secrets import WorkerSecrets
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from flows import run_on_hawk as story
from tests.flows.hawk_story import BAD, GOOD, ID, MODEL, TASK, Bar, Follower
from tests.hawk_server import HawkServer, Launch, State, eval_log


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
