"""The pool workers of a deployment, in one process and one event loop: two would import Prefect twice.

Run as `python -m fleet.services.launcher fleet.services.pool_workers POOL…`. One JSON line on stdout says when all pools are
ready.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import WorkPoolFilter, WorkPoolFilterName
from prefect.client.schemas.objects import WorkPoolStatus
from prefect.logging.configuration import setup_logging
from prefect.settings import get_current_settings
from prefect.workers.base import BaseWorker
from prefect.workers.process import ProcessWorker

from fleet.pool.worker import EC2Worker

WORKER_NAME = "FLEET_POOL_WORKER_NAME"
"""Environment: the name under which the UI shows the pool workers; `local` where it isn't set."""

logger = logging.getLogger(__name__)


async def serve(workers: Sequence[BaseWorker[Any, Any, Any]], pools: Sequence[str]) -> None:
    """Run all workers until SIGTERM or SIGINT; say when their pools are ready. An error in one ends all."""
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(partial(worker.start, printer=logger.info))
        group.start_soon(_announce, pools)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                group.cancel_scope.cancel()
                return


async def _announce(pools: Sequence[str]) -> None:
    wanted = WorkPoolFilter(name=WorkPoolFilterName(any_=list(pools)))
    async with get_client() as client:
        while True:
            found = await client.read_work_pools(work_pool_filter=wanted)
            if {pool.name for pool in found if pool.status == WorkPoolStatus.READY} >= set(pools):
                break
            await anyio.sleep(0.1)
    print(json.dumps({"pools": list(pools)}), flush=True)  # noqa: T201, whoever started it reads it


def main(pools: Sequence[str]) -> None:
    """Serve the pools named, `controllers` as plain processes and any other as instances."""
    setup_logging()
    # A flow that starts `python` means this one.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # noqa: PTH120
    heartbeat = int(get_current_settings().worker.heartbeat_seconds)
    kinds: list[type[BaseWorker[Any, Any, Any]]] = [
        ProcessWorker if pool == "controllers" else EC2Worker for pool in pools
    ]
    name = os.environ.get(WORKER_NAME, "local")
    workers = [
        kind(work_pool_name=pool, name=name, heartbeat_interval_seconds=heartbeat, create_pool_if_not_found=False)
        for kind, pool in zip(kinds, pools, strict=True)
    ]
    asyncio.run(serve(workers, pools))
