"""A block by its name, with one reason where it can't be had."""

from __future__ import annotations

from typing import TypeVar, cast

from prefect.blocks.core import Block
from pydantic import ValidationError

from fleet.wire import explain

B = TypeVar("B", bound=Block)


class BlockUnusable(Exception):
    """Prefect has no such block, or one that isn't what it should be; why, in one line and without what is in it."""

    def __init__(self, why: str, *, absent: bool) -> None:
        super().__init__(why)
        self.absent = absent
        """Whether there is none of this name."""


def loaded(kind: type[B], name: str) -> B:
    """The block. BlockUnusable; where Prefect can't be asked, what it raises.

    Prefect raises ValueError for a block that isn't there, and RuntimeError for one whose fields aren't this release's, caused
    by pydantic's error, which quotes them: neither stays in the chain, which is logged whole.
    """
    try:
        return cast("B", kind.load(name))
    except ValueError:
        raise BlockUnusable("there is no such block", absent=True) from None
    except RuntimeError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        raise BlockUnusable(explain(error.__cause__), absent=False) from None
