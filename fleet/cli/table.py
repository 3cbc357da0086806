"""Columns as wide as their content, also where nobody knows the terminal's width: an id that is cut is of no use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.cli.display import printable


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A line for the head and for each row. Words from elsewhere lose what would steer a terminal."""
    lines = [list(head), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def counted(counts: Mapping[str, int]) -> str:
    """`1 instance, 3 × queue`: how many there are of what."""
    return ", ".join(f"{count} × {name}" if count > 1 else f"1 {name}" for name, count in sorted(counts.items()))
