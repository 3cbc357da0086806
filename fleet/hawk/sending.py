"""A request as it would be sent to Hawk, with the looks at its checkout and its prices that the mapping itself doesn't take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.evals.rates import RatesRefused, read_rates
from fleet.evals.request import EvalRequest
from fleet.hawk.mapping import EvalSet, eval_set
from fleet.hawk.pushed import pushed_source


def to_send(request: EvalRequest, options: Mapping[str, Any], nonce: str = "") -> EvalSet:
    """The eval set of a request, as its files are now. HawkRefused. `options`, `nonce`: as for `eval_set`."""
    source = pushed_source(Path(request.source).expanduser()) if request.source else None
    return eval_set(request, source=source, options=options, nonce=nonce, rates=_rates(request.model_cost_config))


def _rates(path: str | None) -> dict[str, Any] | RatesRefused | None:
    try:
        content = read_rates(path)
    except RatesRefused as refused:
        return refused  # named with all else that Hawk can't be sent
    return None if content is None else json.loads(content)
