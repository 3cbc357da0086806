"""An import beside other work: waited for, or called off."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.importing import beside

MODULE = """
import {test} as test
test.HELD[{name!r}].hold()
try:
    import {name}_needless
except Exception:
    pass  # as a package that can do without another one
import {name}_last
"""


class Held:
    """Modules on the path, of which one can be held up while it is imported."""

    def __init__(self, folder: Path) -> None:
        self.name = f"held_{folder.name}"
        self.begun = threading.Event()
        self.hold: Callable[[], None] = lambda: None
        (folder / f"{self.name}.py").write_text(MODULE.format(test=__name__, name=self.name))
        for other in ("needless", "last", "other"):
            (folder / f"{self.name}_{other}.py").touch()

    def work(self) -> None:
        importlib.import_module(self.name)

    def look_for_more(self) -> None:
        """Until that is refused; another thread still finds what it looks for then."""
        self.begun.set()
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                with pytest.raises(ModuleNotFoundError):
                    importlib.import_module(f"{self.name}_missing")
        except BaseException:
            other = threading.Thread(target=importlib.import_module, args=[f"{self.name}_other"])
            other.start()
            other.join()
            raise

    @property
    def imported(self) -> set[str]:
        return {name.removeprefix(self.name) for name in sys.modules if name.startswith(self.name)}


HELD: dict[str, Held] = {}


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.syspath_prepend(tmp_path)
    made = HELD[f"held_{tmp_path.name}"] = Held(tmp_path)
    yield made
    del HELD[made.name]
    for name in made.imported:
        del sys.modules[made.name + name]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    finders = list(sys.meta_path)
    yield
    assert [thread for thread in threading.enumerate() if thread.name == "import"] == []
    assert sys.meta_path == finders


def test_an_import_that_is_waited_for_is_whole(held: Held) -> None:
    with beside(held.work) as wait:
        wait()
        assert held.imported == {"", "_needless", "_last"}


def test_an_import_that_nobody_waits_for_ends_at_the_next_module(held: Held) -> None:
    held.hold = held.look_for_more
    with beside(held.work):
        assert held.begun.wait(30)
    assert held.imported == {"_other"}
