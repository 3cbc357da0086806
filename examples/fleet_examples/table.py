"""The periodic table: 118 elements, read from `elements.csv`.

Groups and blocks follow IUPAC's provisional report of 2021: group 3 is Sc, Y, Lu, Lr, and La–Yb and Ac–No are f-block
elements without a group. Years of discovery are those most tables give; sources differ for some, so no sample asks for one.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "elements.csv"


@dataclass(frozen=True)
class Element:
    """One row of the table."""

    number: int
    symbol: str
    name: str
    group: int | None
    """1 to 18; None in the f-block."""
    period: int
    block: str
    discovered: int | None
    """A year; None: known in antiquity."""


@cache
def table() -> tuple[Element, ...]:
    """All elements, by atomic number."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Element(
                number=int(row["number"]),
                symbol=row["symbol"],
                name=row["name"],
                group=int(row["group"]) if row["group"] else None,
                period=int(row["period"]),
                block=row["block"],
                discovered=None if row["discovered"] == "antiquity" else int(row["discovered"]),
            )
            for row in csv.DictReader(file)
        )
