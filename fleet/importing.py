"""Importing what is large: an import makes hundreds of thousands of objects that stay, and the garbage collector walks all of
them again and again. Without it, importing Prefect takes a quarter less.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """Imports in this block aren't interrupted by garbage collection; what they made is not looked at again later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()
