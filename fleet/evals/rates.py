"""Model prices of a run: Inspect's own table (its option --model-cost-config), by which every worker prices alike.

Read where the run starts and written as one JSON text, which is the same for the same prices: it travels as an artifact, and the
eval's identity holds its digest, since one log must not add up costs by two tables, and a cost limit stops samples by it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import yaml

from fleet.errors import RequestRefused

FIELDS = ("input", "output", "input_cache_write", "input_cache_read")
"""Dollars for a million tokens of each kind, as Inspect wants them: all four."""
MOST_BYTES = 1_000_000


class RatesRefused(RequestRefused):
    """The table of prices can't be used."""

    path: str
    why: str

    def message(self) -> str:
        """One line: which file, why, what is wanted."""
        return (
            f"model_cost_config {self.path} refused: {self.why}. It takes Inspect's table, in YAML or JSON: a model's name, and "
            f"below it {', '.join(FIELDS)}, in dollars for a million tokens"
        )


def rates_file(path: str | None, folder: Path) -> Path | None:
    """The table as a JSON file in `folder`; None: the run has none. RatesRefused."""
    content = read_rates(path)
    if content is None:
        return None
    file = folder / "rates.json"
    file.write_bytes(content)
    return file


def read_rates(path: str | None) -> bytes | None:
    """The table as JSON; None: the run has none, and nothing is priced. RatesRefused."""
    if path is None:
        return None
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise RatesRefused(path=path, why=(error.strerror or str(error)).lower()) from error
    if len(content) > MOST_BYTES:
        raise RatesRefused(path=path, why="it is too large")
    try:
        table = yaml.safe_load(content)  # JSON is YAML
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RatesRefused(
            path=path, why=f"it is neither YAML nor JSON ({' '.join(str(error).split())[:200]})"
        ) from error
    if why := problem_of(table):
        raise RatesRefused(path=path, why=why)
    return json.dumps(table, sort_keys=True, indent=1).encode()


def problem_of(table: Any) -> str:
    """Why this is no table of prices; empty: it is one."""
    if not isinstance(table, dict) or not table:
        return "it names no model"
    for model, prices in table.items():
        if not isinstance(model, str):
            return f"{model!r} is no model's name"
        if not isinstance(prices, dict):
            return f"{model} has no prices"
        if missing := [name for name in FIELDS if name not in prices]:
            return f"{model} has no {missing[0]}"
        if unknown := [name for name in prices if name not in FIELDS]:
            return f"{model}: {unknown[0]!r} is no price"
        for name, price in prices.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price) or price < 0:
                return f"{model}: {name} is {price!r}"
    return ""
