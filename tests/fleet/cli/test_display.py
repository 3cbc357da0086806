"""Progress as lines: not too many, nothing that steers a terminal."""

from __future__ import annotations

import dataclasses
import io

import pytest

from fleet.aws.prices import Price
from fleet.cli.display import Display, LiveDisplay, NeedsApproval, display_for, printable
from fleet.evals.cost import estimate
from fleet.evals.progress import Progress, WorkerRow


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(done: int) -> Progress:
    row = WorkerRow("worker 1", "i-1", "working", 1, done, 0, "1/2", 0.5, "")
    return Progress(10, done, 0, 0, 10, done, 0, 0, (row,), None, 1.0)


def test_lines_come_at_most_every_few_seconds_and_the_last_always() -> None:
    stream, clock = io.StringIO(), Clock()
    display = Display(stream, clock)
    for second, done in enumerate([0, 1, 2, 3, 4, 5, 5, 5, 10]):
        clock.now = float(second)
        display.progress(progress(done))
    lines = [line.split("] ")[1].split(" samples")[0] for line in stream.getvalue().splitlines()]
    assert lines == ["0/10", "5/10", "10/10"]


def test_nobody_to_ask_is_an_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    offer = estimate([], prices=[Price("t", "spot", None)], region="r", max_workers=1, concurrency=1, max_hours=1)
    monkeypatch.setattr("sys.stdin", io.StringIO("y"))
    for display in (Display(io.StringIO()), LiveDisplay(io.StringIO())):
        assert not display.can_ask
        with pytest.raises(NeedsApproval, match="auto_confirm=true"):
            display.approve(offer)


def test_text_from_elsewhere_can_not_steer_the_terminal() -> None:
    assert printable("a\x1b[31mred\x07\x9bb\tc\n") == "a[31mredb\tc\n"


def test_a_file_gets_plain_lines() -> None:
    assert type(display_for(io.StringIO())) is Display


def test_a_stage_moves_up_when_the_next_begins_and_at_the_end() -> None:
    stream, clock = io.StringIO(), Clock()
    with LiveDisplay(stream, clock) as display:
        for second, name in enumerate(["Planning", "Running [2 of 3]"]):
            clock.now = float(second)
            display.stage(name)
        display.warn("a [red] herring")
    lines = [line.strip() for line in stream.getvalue().splitlines() if line.strip()]
    assert lines == ["0.0s  Planning", "warning: a [red] herring", "1.0s  Running [2 of 3]"]


def drawn(seen: Progress) -> str:
    from rich.console import Console

    display = LiveDisplay(io.StringIO())
    display.progress(seen)
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(display._view())
    return console.export_text()


def test_the_live_view_draws_every_instance() -> None:
    text = drawn(progress(4))
    assert "4/10 samples" in text
    assert "i-1" in text


def test_a_run_without_instances_has_no_table_of_them() -> None:
    text = drawn(dataclasses.replace(progress(4), workers=()))
    assert "4/10 samples" in text
    assert "minutes" not in text
