"""A request as it would be sent to Hawk, with the look at its checkout that the mapping itself doesn't take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.evals.request import EvalRequest
from fleet.hawk.mapping import EvalSet, eval_set
from fleet.hawk.pushed import pushed_source


def to_send(request: EvalRequest, options: Mapping[str, Any], nonce: str = "") -> EvalSet:
    """The eval set of a request, as its checkout is now. HawkRefused. `options`, `nonce`: as for `eval_set`."""
    source = pushed_source(Path(request.source).expanduser()) if request.source else None
    return eval_set(request, source=source, options=options, nonce=nonce)
