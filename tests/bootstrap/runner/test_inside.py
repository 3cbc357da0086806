from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspect_ai._display.rich import display
from inspect_ai.util import _display as kinds
from rich.table import Table

from bootstrap.runner import inside
from bootstrap.runner.job import Jobs


@pytest.mark.parametrize("drawn", [False, True])
def test_a_runner_draws_nothing_where_nobody_looks(
    drawn: bool, what: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inspect lays its panels out also for the display `none`, as the second case shows."""
    laid_out = 0

    def counting(table: Table, *arguments: Any) -> Any:
        nonlocal laid_out
        laid_out += 1
        return of_rich(table, *arguments)

    of_rich = Table.__rich_console__
    monkeypatch.setattr(Table, "__rich_console__", counting)
    monkeypatch.setattr(kinds, "_display_type", "none")
    for name in ("task_live_status", "tasks_live_status", "tasks_results"):
        monkeypatch.setattr(display, name, getattr(display, name))  # to be put back
    if not drawn:
        inside.draw_nothing()
    whole = {"job": "000000-0", "samples": [], "whole": True}
    done = asyncio.run(Jobs().run(what("growing", eval_id="growing-0"), whole, tmp_path, None))
    assert Path(done["log"]).exists()
    assert (laid_out > 0) is drawn


PANELS = vars(display)


@pytest.mark.parametrize("moved", ["inspect_ai._display.rich", "inspect_ai._display.rich.display"])
def test_a_release_that_draws_elsewhere_is_let_draw(moved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = PANELS["tasks_results"]
    monkeypatch.setitem(sys.modules, moved, None)  # for an import: it is not there
    monkeypatch.delattr("inspect_ai._display.rich.display")
    inside.draw_nothing()
    assert PANELS["tasks_results"] is drawing


def test_of_a_release_that_has_no_such_panel_the_others_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("task_live_status", "tasks_results"):
        monkeypatch.setitem(PANELS, name, PANELS[name])  # to be put back
    monkeypatch.delitem(PANELS, "tasks_live_status")
    inside.draw_nothing()
    assert "tasks_live_status" not in PANELS
    assert PANELS["task_live_status"]() == PANELS["tasks_results"]() == ""
