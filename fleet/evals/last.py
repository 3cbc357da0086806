"""Which eval ran last for a task and a model, so that a request that doesn't go on with it says which input changed.

An eval id is a digest of all that decides the result: a person who starts the same command again, and sees everything run
anew, wants to know why. One small object for each task and model, since looking through all evals of a bucket takes minutes.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import ClassVar, Literal

from fleet.aws.objects import ObjectAbsent
from fleet.evals.documents import EvalId, EvalManifest
from fleet.evals.plan import changed, slug
from fleet.evals.site import Site
from fleet.wire import DocumentRefused, Wire

NAMES = {
    "task": "task arguments",
    "model": "model arguments",
    "solver": "solver",
    "eval_config": "eval config",
    "generate_config": "generate config",
    "source": "source",
    "settings": "settings",
    "packages": "package versions of the job environment",
    "python": "Python of the job environment",
    "samples": "sample contents",
    "new_fleet": "new_fleet",
    "model_cost_config": "model prices",
}
"""The parts of an eval's identity, as a person calls them."""


class LastEval(Wire):
    """What lies at `last/<task and model>.json`."""

    VERSION: ClassVar[int | None] = 1

    version: Literal[1] = 1
    eval_id: EvalId
    identity: dict[str, str]
    """As in its manifest."""
    at: str


def note_as_last(site: Site, manifest: EvalManifest, at: str) -> None:
    """Write down that this eval is the last of its task and model. `at`: ISO 8601."""
    last = LastEval(eval_id=manifest.eval_id, identity=manifest.identity, at=at)
    site.objects.put(site.layout.last(name_of(manifest)), last.write().encode())


def why_new(site: Site, manifest: EvalManifest) -> str:
    """Why an eval that never ran isn't the one that ran last for its task and model, in a line; empty: there is none."""
    with suppress(ObjectAbsent, DocumentRefused):
        last = LastEval.read(site.objects.get(site.layout.last(name_of(manifest))))
        parts = [NAMES.get(part, part) for part in changed(last.identity, manifest.identity)]
        if parts == ["new_fleet"]:
            return f"{manifest.eval_id} starts over: it is {last.eval_id} of {last.at} but for new_fleet"
        return f"{manifest.eval_id} is a new eval: since {last.eval_id} of {last.at} changed: {', '.join(parts)}"
    return ""


def name_of(manifest: EvalManifest) -> str:
    """The name that a task with a model has among what is kept from run to run."""
    names = json.dumps([manifest.task.name, manifest.model.name])
    return f"{slug(manifest.task.name)}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
