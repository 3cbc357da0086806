from __future__ import annotations

import re
import time

import pytest

from bootstrap.uptime import MARK, mark, stamp, uptime


def stamped() -> float:
    found = re.fullmatch(r"\[\+(\d+\.\d)s\]", stamp())
    assert found is not None
    return float(found[1])


def test_a_line_begins_with_the_seconds_since_the_mark_of_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, f"{time.monotonic() - 1234.5:.3f}")
    assert 1234.4 <= stamped() < 1294.5


def test_every_process_hands_the_first_ones_mark_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "12.345")
    assert mark() == "12.345"
    monkeypatch.delenv(MARK)
    assert float(mark()) <= time.monotonic()


@pytest.mark.parametrize("told", [{}, {MARK: "no number"}])
def test_without_a_mark_it_counts_from_when_the_process_was_loaded(told: dict[str, str]) -> None:
    assert 0 <= uptime(told) <= time.monotonic()


def test_it_is_never_negative() -> None:
    assert uptime({MARK: f"{time.monotonic() + 60:.3f}"}) == 0.0
