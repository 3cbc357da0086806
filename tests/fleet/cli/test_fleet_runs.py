"""`fleet list`, `fleet stop` and `fleet reap` without Prefect or AWS: what they print, ask, and their exit codes."""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx
import pytest
from prefect.client import orchestration
from prefect.settings import PREFECT_API_URL, temporary_settings

from fleet.cli import account as accounts
from fleet.cli import list as listing
from fleet.cli import reap as reaping
from fleet.cli import stop as stopping
from fleet.cli.account import asking_prefect
from fleet.cli.main import code_of, fleet
from fleet.reaper import runs as room
from fleet.reaper.overview import RunRow
from fleet.reaper.ownership import KnownRun
from fleet.reaper.report import Done, ReapReport, ReapRow
from fleet.reaper.stopping import Stopped

RUN = KnownRun("aaaa1111-0", "elements · small-cat", "RUNNING", "Running", 0.0)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "prefect_api", lambda: "http://prefect/api")
    for command in (listing, reaping):
        monkeypatch.setattr(command, "the_account", lambda name: None)


class Typed:
    """A terminal at which somebody types this."""

    def __init__(self, text: str) -> None:
        self.text = text

    def isatty(self) -> bool:
        return True

    def readline(self, *_: int) -> str:
        return f"{self.text}\n"


# fleet list

ROWS = [
    RunRow("aaaa1111-0", "elements · cat", "Running", "ada", "2026-01-01T10:00:00+00:00", "alive", "", 25.0, "59/236, $0.12",
           {"spot c7i.large": 2}, {"instance": 2, "queue": 3}),
    RunRow("bbbb2222-0", "\x1b[2Jgpqa", "Running", "bob", "", "gone", "its lock expired", None, "", {}, {"queue": 3, "lock": 1}),
]  # fmt: skip


def test_a_list_shows_who_runs_what_and_what_the_dead_have_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listing, "_look", lambda account, regions: (ROWS, ["volumes: denied"]))
    assert code_of(fleet, ["list"]) == 0
    out, err = capsys.readouterr()
    head, alive, dead = out.splitlines()
    assert head.split() == ["run", "name", "state", "owner", "since", "instances", "progress"]
    assert " ".join(alive.split()) == (
        "aaaa1111 elements · cat Running ada 2026-01-01 10:00:00 2 × spot c7i.large 59/236, $0.12"
    )
    assert " ".join(dead.split()) == "bbbb2222 [2Jgpqa Running, controller gone bob – – –"
    assert "note: bbbb2222 has left 1 lock, 3 × queue: its lock expired. `fleet reap` removes it" in err
    assert "note: not looked at: volumes: denied" in err

    assert code_of(fleet, ["list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in document["runs"]] == ["aaaa1111-0", "bbbb2222-0"]
    assert document["runs"][0]["instances"] == {"spot c7i.large": 2}


def test_an_empty_list_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(listing, "_look", lambda account, regions: ([], []))
    assert code_of(fleet, ["list"]) == 0
    assert capsys.readouterr().out == "no run goes on, and none has left anything\n"


def test_a_server_that_does_not_answer_is_one_line() -> None:
    from fleet.account.change import ServerUnreachable

    with pytest.raises(ServerUnreachable, match="no answer"), asking_prefect():
        raise httpx.ConnectError("no answer")


@pytest.mark.parametrize("command", [["list"], ["stop", "aaaa"], ["reap", "--yes"]])
def test_without_a_prefect_server_nobody_is_asked(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prefect would start one that knows no runs, and the answer would be that there are none."""
    monkeypatch.undo()
    monkeypatch.setattr(orchestration, "get_client", lambda **_: pytest.fail("it was asked"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert code_of(fleet, command) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "no Prefect server is configured" in err
    assert "PREFECT_API_URL" in err


# fleet stop


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Which runs were stopped; they end at once."""
    done: list[list[str]] = []

    def stop_all(meant: Any, wait: float) -> list[Stopped]:
        done.append([run.id for run in meant])
        return [Stopped(run.id, run.name, "Cancelled", True) for run in meant]

    monkeypatch.setattr(room.PrefectRuns, "active", lambda self: [RUN])
    monkeypatch.setattr(stopping, "_stop_all", stop_all)
    return done


def test_a_run_is_stopped_by_the_beginning_of_its_id(
    stops: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(fleet, ["stop", "aaaa"]) == 0
    out, err = capsys.readouterr()
    assert stops == [["aaaa1111-0"]]
    assert out == "aaaa1111 (elements · small-cat) is Cancelled, and its instances are gone\n"
    assert "results so far are kept" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "or --all"), (["nope"], "what runs: aaaa1111"), (["--all"], "pass --yes")],
)
def test_what_can_not_be_stopped_is_one_line(
    arguments: list[str],
    said: str,
    stops: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert code_of(fleet, ["stop", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert stops == []


def test_all_are_stopped_once_a_person_agrees(stops: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Typed("n"))
    assert code_of(fleet, ["stop", "--all"]) == 130
    assert stops == []
    monkeypatch.setattr(sys, "stdin", Typed("y"))
    assert code_of(fleet, ["stop", "--all"]) == 0
    assert stops == [["aaaa1111-0"]]


def test_what_is_left_of_a_stopped_run_is_named(
    stops: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = Stopped("aaaa1111-0", "n", "Cancelling", False, ("instance i-1",))
    monkeypatch.setattr(stopping, "_stop_all", lambda meant, wait: [left])
    assert code_of(fleet, ["stop", "aaaa", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)[0]["left"] == ["instance i-1"]
    assert code_of(fleet, ["stop", "aaaa"]) == 3
    assert "left behind: instance i-1" in capsys.readouterr().err


# fleet reap


def row(done: Done, what: str = "instance i-1", **facts: str) -> ReapRow:
    return ReapRow(
        kind="instance",
        what=what,
        region="us-east-1",
        run="aaaa1111-0",
        run_name="elements",
        owner="ada",
        done=done,
        why="its controller is gone",
        left=facts.get("left", ""),
    )


@pytest.fixture
def reaps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The graces with which something was removed."""
    done: list[float] = []

    def carry_out(account: str, regions: list[str], grace: float) -> ReapReport:
        done.append(grace)
        return ReapReport(dry_run=False, rows=(row("removed"), row("left", "instance i-2", left="Denied")))

    plan = ReapReport(dry_run=True, rows=(row("to remove"), row("kept", "instance i-3"), row("kept", "instance i-4")))
    monkeypatch.setattr(reaping, "_plan", lambda account, regions, grace: plan)
    monkeypatch.setattr(reaping, "_carry_out", carry_out)
    return done


def test_a_dry_run_says_what_would_be_done(reaps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(fleet, ["reap", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "to remove, of elements (ada): its controller is gone",
        "  instance i-1, us-east-1",
        "kept 2 × instance, of elements (ada): its controller is gone",
        "dry run: 1 to remove, 2 kept",
    ]
    assert reaps == []


def test_a_person_sees_the_plan_and_is_asked(
    reaps: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed("n"))
    assert code_of(fleet, ["reap"]) == 130
    assert "  instance i-1, us-east-1" in capsys.readouterr().err
    assert reaps == []
    monkeypatch.setattr(sys, "stdin", Typed("y"))
    assert code_of(fleet, ["reap"]) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "1 left, 1 removed"
    assert "left behind: instance i-2 in us-east-1: Denied" in err
    assert reaps == [reaping.GRACE_MINUTES]


def test_without_a_terminal_the_ways_out_are_named(
    reaps: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert code_of(fleet, ["reap"]) == 2
    assert "pass --yes" in capsys.readouterr().err.splitlines()[-1]
    assert code_of(fleet, ["reap", "--now", "--yes", "--json"]) == 3
    assert [one["done"] for one in json.loads(capsys.readouterr().out)["rows"]] == ["removed", "left"]
    assert reaps == [0.0]


def test_marks_are_taken_off_what_lives_without_a_question(
    reaps: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its old mark, what dies later would go at the first look."""
    plan = ReapReport(dry_run=True, rows=(row("to unmark"),))
    monkeypatch.setattr(reaping, "_plan", lambda account, regions, grace: plan)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert code_of(fleet, ["reap", "--dry-run"]) == 0
    assert (capsys.readouterr().out.splitlines()[-1], reaps) == ("dry run: 1 to unmark", [])
    assert code_of(fleet, ["reap"]) == 3
    assert reaps == [reaping.GRACE_MINUTES]


def test_where_there_is_nothing_to_do_nobody_is_asked(
    reaps: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ReapReport(dry_run=True, rows=(row("kept"),), unseen=("volumes: denied",))
    monkeypatch.setattr(reaping, "_plan", lambda account, regions, grace: plan)
    assert code_of(fleet, ["reap"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "nothing to do: 1 kept"
    assert "volumes: denied" in err
    assert reaps == []
