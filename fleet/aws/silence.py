"""botocore writes whole requests and answers to its debug log; this keeps those of one call out of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_silent: ContextVar[bool] = ContextVar("botocore_silent", default=False)


@contextmanager
def botocore_silent() -> Iterator[None]:
    """What botocore and what it calls would log below WARNING, in this thread or task, goes nowhere until the end of the block.

    Make the client before: a logger that appears inside the block, with a module that is imported there, isn't silent.
    """
    # A filter holds for the logger it stands on and not for its children.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _LIBRARIES:
            logging.getLogger(name).addFilter(_unless_silent)  # adding it twice changes nothing
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


_LIBRARIES = frozenset({"boto3", "botocore", "urllib3"})


def _unless_silent(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or not _silent.get()
