from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.job_environment import KIT


@pytest.fixture(scope="package")
def kit() -> Iterator[None]:
    """The kit's tasks, registered in this process: as a folder on the path, so its names have no `evalkit/` before them."""
    sys.path.insert(0, str(KIT / "src"))
    import evalkit.registry  # type: ignore[import-not-found,unused-ignore]  # noqa: F401

    yield
    sys.path.remove(str(KIT / "src"))


@pytest.fixture
def what(kit: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """An eval as the runner takes it, started in the kit's folder."""
    monkeypatch.chdir(KIT)

    def made(task: str, args: dict[str, Any] | None = None, model: str = "kit/m", **fields: Any) -> dict[str, Any]:
        return {
            "task": {"name": task, "args": args or {}, "sample_ids": []},
            "model": {"name": model, "args": {}, "base_url": None, "roles": {}},
            "solver": None,
            "eval_config": {},
            "generate_config": {},
            "tags": [],
            "metadata": {},
            **fields,
        }

    return made
