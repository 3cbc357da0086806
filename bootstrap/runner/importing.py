"""Importing what is large, on this side: as `fleet.importing` has it, which can't be imported here."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def for_good() -> Iterator[None]:
    """Leave what the block makes to no garbage collector, neither now nor later, nor in a fork.

    An import of Inspect takes a tenth less. And a collector writes into each object that it looks at: of all that is imported,
    every runner would soon have a copy of its own (some 40 MB) instead of sharing the zygote's.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()
