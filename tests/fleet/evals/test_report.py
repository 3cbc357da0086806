"""What a report says in one line, and as a page."""

from __future__ import annotations

from typing import Any

from fleet.evals.report import EvalReport, Metric, RunReport, outcome_of

LOG = "s3://bucket/evals/e/merged/log.eval"


def an_eval(**other: Any) -> EvalReport:
    whole: dict[str, Any] = {
        "eval_id": "e",
        "task": "elements",
        "model": "scripted/chemist",
        "status": "success",
        "log": LOG,
        "stored": LOG,
        "samples": 24,
        "samples_done": 24,
        "errors": 0,
        "missing": 0,
        "metrics": [Metric(scorer="match", name="accuracy", value=0.9583333)],
    }
    return EvalReport(**{**whole, **other})


def a_report(*evals: EvalReport, why: str = "") -> RunReport:
    return RunReport(run="r", outcome=outcome_of(list(evals)), why=why, evals=list(evals), instances=2, seconds=90)


def test_a_good_run_says_its_samples_and_its_first_metric() -> None:
    assert a_report(an_eval()).line() == "24 of 24 samples, accuracy 0.9583"


def test_several_logs_are_summed_up() -> None:
    assert a_report(an_eval(), an_eval()).line() == "48 of 48 samples, 2 logs"


def test_what_is_missing_comes_with_its_reasons() -> None:
    broken = an_eval(samples_done=20, missing=4, status="error", why="4 samples are missing", metrics=[])
    said = a_report(broken, why="no instance is left").line()
    assert said == "incomplete: 20 of 24 samples; no instance is left; 4 samples are missing"


def test_a_run_that_never_began_says_why() -> None:
    assert RunReport(run="r", outcome="declined", why="nobody wants it").line() == "declined: nobody wants it"


def test_an_estimates_table_is_no_part_of_its_line() -> None:
    """That is the message of the flow run's state."""
    assert (
        RunReport(run="r", outcome="estimated", why="2 × c7i.large\n1  2 h\n2  1 h").line()
        == "estimated: 2 × c7i.large"
    )


def test_the_page_has_the_command_that_shows_the_log() -> None:
    page = a_report(an_eval()).markdown()
    assert "inspect view --log-dir s3://bucket/evals/e/merged\n" in page
    assert page.count(LOG) == 1


def test_the_page_of_a_run_on_others_machines_says_nothing_of_instances() -> None:
    report = RunReport(run="r", outcome="success", evals=[an_eval(stored="")], instances=None, seconds=90, cost=None)
    page = report.markdown()
    assert "1.5 minutes." in page
    assert "instance" not in page
    assert "bucket:" not in page


def test_the_page_of_an_eval_without_a_log_names_none() -> None:
    page = a_report(an_eval(log="", stored="s3://bucket/results")).markdown()
    assert "Log:" not in page
    assert "inspect view" not in page
    assert "In the bucket: `s3://bucket/results`" in page


def test_a_delivered_log_is_named_beside_its_copy_in_the_bucket() -> None:
    page = a_report(an_eval(log="/home/me/logs/log.eval")).markdown()
    assert "`/home/me/logs/log.eval`" in page
    assert f"In the bucket: `{LOG}`" in page
