"""Success is told by logs: which one counts, which eval it is of, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.evals.report import outcome_of
from fleet.hawk.connect import Hawk
from fleet.hawk.logs import read_logs, reports, whole
from fleet.hawk.mapping import ExpectedLog
from tests.hawk_server import HawkServer, eval_log

ID = "my-eval-0123456789"
ADD, GPQA = "pkg/add", "inspect_evals/gpqa"
ONE, TWO = "openai/one", "openai/two"


def written(folder: Path, *logs: bytes) -> list[Path]:
    paths = []
    for index, log in enumerate(logs):
        path = folder / f"{index}.eval"
        path.write_bytes(log)
        paths.append(path)
    return paths


def told(folder: Path, expected: list[ExpectedLog], *logs: bytes) -> list[tuple[str, str]]:
    """Of each expected eval its status, and the log's name or why there is none."""
    answers = reports(expected, read_logs(written(folder, *logs)))
    assert [(one.task, one.model) for one in answers] == [(one.task, one.model) for one in expected]
    return [(one.status, Path(one.log).name or one.why) for one in answers]


def test_each_task_with_each_model_has_its_log_in_the_order_asked_for(tmp_path: Path) -> None:
    expected = [
        ExpectedLog(ADD, {}, ONE),
        ExpectedLog(ADD, {}, TWO),
        ExpectedLog(GPQA, {}, ONE),
        ExpectedLog(GPQA, {}, TWO),
    ]
    logs = [eval_log(one.task, one.model, task_id=f"{one.task}{one.model}") for one in reversed(expected)]
    assert told(tmp_path, expected, *logs) == [("success", f"{index}.eval") for index in (3, 2, 1, 0)]


def test_a_sample_that_was_asked_for_and_that_the_task_does_not_have_is_missing(tmp_path: Path) -> None:
    """Inspect leaves it out in silence; a fleet refuses the request."""
    expected = [ExpectedLog(ADD, {}, ONE, samples=(1, "2", "x")), ExpectedLog(ADD, {}, TWO, samples=(1, 2))]
    one, two = reports(expected, read_logs(written(tmp_path, eval_log(ADD, ONE), eval_log(ADD, TWO))))
    assert (one.status, one.samples, one.samples_done, one.missing) == ("error", 3, 2, 1)
    assert one.why == "the task has no sample x"
    assert (two.status, two.missing) == ("success", 0)


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_task_that_was_tried_again_the_newest_log_counts(tmp_path: Path, order: int) -> None:
    """By when it was begun: neither by its file's name nor by the text of its time."""
    early = eval_log(ADD, ONE, task_id="t", status="error", created="2026-01-01T10:00:00+00:00", error="first")
    late = eval_log(ADD, ONE, task_id="t", created="2026-01-01T08:30:00-02:00")
    (answer,) = told(tmp_path, [ExpectedLog(ADD, {}, ONE)], *[early, late][::order])
    assert answer == ("success", "1.eval" if order == 1 else "0.eval")


def test_a_success_that_was_followed_by_an_error_is_an_error(tmp_path: Path) -> None:
    early = eval_log(ADD, ONE, task_id="t", created="2026-01-01T10:00:00+00:00")
    late = eval_log(ADD, ONE, task_id="t", status="error", created="2026-01-01T10:00:01+00:00", error="boom")
    (one,) = reports([ExpectedLog(ADD, {}, ONE)], read_logs(written(tmp_path, early, late)))
    assert (one.status, one.why) == ("error", "boom")


@pytest.mark.parametrize("told_args", [True, False])
@pytest.mark.parametrize("args", [{}, {"level": "HARD"}], ids=["as asked for", "in another form"])
def test_of_two_logs_with_task_ids_of_their_own_the_newest_counts(
    tmp_path: Path, args: dict[str, Any], told_args: bool
) -> None:
    early = eval_log(ADD, ONE, task_id="t", args=args, told=told_args, status="error", error="first")
    late = eval_log(ADD, ONE, task_id="u", args=args, told=told_args, created="2026-01-01T11:00:00+00:00")
    expected = [ExpectedLog(ADD, {"level": "hard"} if args else {}, ONE)]
    assert told(tmp_path, expected, late, early) == [("success", "0.eval")]


def test_tasks_that_differ_by_their_arguments_are_told_apart(tmp_path: Path) -> None:
    expected = [
        ExpectedLog(ADD, {}, ONE),
        ExpectedLog(ADD, {"shots": 5}, ONE),
        ExpectedLog(ADD, {"shots": 0}, ONE),
    ]
    logs = [eval_log(ADD, ONE, task_id=str(index), args=one.args) for index, one in enumerate(expected)]
    assert told(tmp_path, expected, *reversed(logs)) == [("success", f"{index}.eval") for index in (2, 1, 0)]


def test_arguments_that_took_effect_do_where_inspect_does_not_say_which_were_given(tmp_path: Path) -> None:
    log = eval_log(ADD, ONE, args={"shots": 5}, told=False)
    expected = [ExpectedLog(ADD, {"shots": 5}, ONE), ExpectedLog(ADD, {}, ONE)]
    assert [answer[0] for answer in told(tmp_path, expected, log)] == ["success", "error"]


def test_arguments_in_another_form_do_where_there_is_no_choice(tmp_path: Path) -> None:
    log = eval_log(ADD, ONE, args={"level": "HARD"})
    assert told(tmp_path, [ExpectedLog(ADD, {"level": "hard"}, ONE)], log) == [("success", "0.eval")]
    two = [ExpectedLog(ADD, {"level": "hard"}, ONE), ExpectedLog(ADD, {"level": "easy"}, ONE)]
    assert [answer[0] for answer in told(tmp_path, two, log)] == ["error", "error"]


def test_a_missing_log_is_a_failure_whose_size_another_model_s_tells(tmp_path: Path) -> None:
    expected = [ExpectedLog(ADD, {}, ONE), ExpectedLog(ADD, {}, TWO), ExpectedLog(GPQA, {}, ONE)]
    answers = reports(expected, read_logs(written(tmp_path, eval_log(ADD, ONE, samples=7))))
    assert [one.status for one in answers] == ["success", "error", "error"]
    assert [(one.log, one.why, one.samples, one.missing) for one in answers[1:]] == [
        ("", "Hawk has no log of it", 7, 7),
        ("", "Hawk has no log of it", 0, 1),
    ]
    assert outcome_of(answers) == "incomplete"
    assert not whole(answers)


@pytest.mark.parametrize(
    ("facts", "status", "why", "missing"),
    [
        ({"status": "error", "errors": 2, "error": "no such file"}, "error", "no such file", 0),
        ({"status": "cancelled", "done": 1}, "error", "cancelled", 1),
        ({"status": "started"}, "error", "its runner ended before the log was finished", 2),
        ({"status": "success", "errors": 1}, "success", "", 0),
    ],
)
def test_a_log_s_own_status_counts(tmp_path: Path, facts: dict[str, Any], status: str, why: str, missing: int) -> None:
    (one,) = reports([ExpectedLog(ADD, {}, ONE)], read_logs(written(tmp_path, eval_log(ADD, ONE, **facts))))
    assert (one.status, one.why, one.missing) == (status, why, missing)


def test_a_log_that_cannot_be_read_is_named_where_one_is_missing(tmp_path: Path) -> None:
    expected = [ExpectedLog(ADD, {}, ONE), ExpectedLog(GPQA, {}, ONE)]
    ((_, added), (status, why)) = told(tmp_path, expected, eval_log(ADD, ONE), b"PK half")
    assert (added, status) == ("0.eval", "error")
    assert why.startswith("Hawk has no log of it; 1.eval can't be read: ")


def test_complete_with_a_log_of_errors_is_no_success(server: HawkServer, hawk: Hawk, tmp_path: Path) -> None:
    server.has(ID, ["complete"], {"a.eval": eval_log(ADD, ONE, status="error", errors=2, error="all failed")})
    answers = reports([ExpectedLog(ADD, {}, ONE)], read_logs(hawk.download(hawk.log_names(ID), tmp_path)))
    assert outcome_of(answers) == "error"
    assert answers[0].why == "all failed"
