"""A rehearsal, in a process that is thrown away: what a first job would import, load and download."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.util import display_type

from . import inside
from .job import Planned
from .settings import job_settings
from .tasks import build


def rehearse(evals: list[dict[str, Any]]) -> None:
    """Run one sample of nothing, then build each task: what raises here will raise, and be told, in the job."""
    display_type()
    asyncio.run(_rehearse(evals))


async def _rehearse(evals: list[dict[str, Any]]) -> None:
    said = ModelOutput.from_content("model", "ok")
    said.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # or it would be counted, by a download
    with tempfile.TemporaryDirectory() as folder:
        async with inside.shared_files():
            with contextlib.suppress(Exception):
                await eval_async(
                    Task(dataset=Planned([(Sample(input="ok", target="ok", id=1), 1)]), scorer=match()),
                    model=get_model("mockllm/model", custom_outputs=[said]),
                    log_dir=folder,
                    **job_settings({}, 1),
                )
            for what in evals:
                with contextlib.suppress(Exception):
                    build(what)
