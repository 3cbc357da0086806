"""Results on their way from S3 to the merge: a few downloads ahead, never all on the disk at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from fleet.aws.objects import Objects

AHEAD = 16
"""Downloads under way: enough to hide the latency of S3, few enough for any disk."""


def fetched(objects: Objects, keys: Iterable[str], folder: Path) -> Iterator[Path]:
    """Each object as a file in `folder`, in the order of `keys`; a file is removed when the next one is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=AHEAD, thread_name_prefix="fetch") as pool:
        waiting: deque[tuple[Path, Future[None]]] = deque()
        todo = iter(keys)

        def start_one() -> None:
            for key in todo:
                path = folder / key.rsplit("/", 1)[1]
                waiting.append((path, pool.submit(objects.download, key, path)))
                return

        for _ in range(AHEAD):
            start_one()
        while waiting:
            path, download = waiting.popleft()
            download.result()
            start_one()
            yield path
            path.unlink(missing_ok=True)
