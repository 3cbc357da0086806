"""The list of runs: those that go on, and those that have left something."""

from __future__ import annotations

from fleet.reaper.overview import Progress, overview
from fleet.reaper.ownership import survey
from fleet.reaper.verdict import Patience
from tests.fleet.reaper.kit import NOW, Account, Server, everything_of, known, thing


def test_runs_that_go_on_and_runs_that_left_something_are_listed() -> None:
    things = [
        *everything_of("alive", lock_in=200),
        thing("instance", "i-2", "alive", detail="spot c7i.large, running"),
        *everything_of("dead"),
        *everything_of("strange", lock_in=None),
        thing("launch template", "lt-1", ""),
    ]
    things = [
        one if one.kind != "instance" or one.run != "strange" else thing("instance", one.id, "strange", pool="x")
        for one in things
    ]
    server = Server(
        {"alive": known("alive", "RUNNING"), "dead": known("dead", "CRASHED"), "young": known("young", "PAUSED")}
    )
    found = survey(Account.of(things).look(), server, Patience(), now=NOW)
    active = [server.runs["alive"], server.runs["young"]]
    rows = {row.run: row for row in overview(found, active, {"alive": Progress(25.0, "59/236 samples")})}

    assert {run: (row.state, row.controller) for run, row in rows.items()} == {
        "alive": ("Running", "alive"),
        "young": ("Paused", "unknown"),
        "dead": ("Crashed", "gone"),
        "strange": ("", "unknown"),
    }
    alive = rows["alive"]
    assert (alive.percent, alive.progress, alive.name) == (25.0, "59/236 samples", "name of alive")
    assert alive.instances == {"": 1, "spot c7i.large": 1}
    assert alive.things == {"instance": 2, "queue": 3, "parameter": 1, "lock": 1}
    assert alive.why == ""
    assert "its flow run is Crashed" in rows["dead"].why


def test_prefects_half_is_shown_where_aws_can_not_be_looked_at() -> None:
    (row,) = overview(None, [known("r1", "RUNNING")], {})
    assert (row.run, row.state, row.controller, row.instances, row.percent) == ("r1", "Running", "unknown", {}, None)
