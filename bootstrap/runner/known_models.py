"""What Inspect knows of models (their windows, their reasoning), read once for all forks of a process.

Inspect reads it at a process's first call of a model, by a parser in Python: 0.4 s of a processor in each runner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

ANY = "openai/gpt-4o"
"""A model of which each release knows. Of one that is not there Inspect would make a client, to ask for its other names."""


def read() -> None:
    """Have it read. A release that has none, or has it elsewhere, reads it when it wants to."""
    with contextlib.suppress(Exception), _quickly():
        from inspect_ai.model import get_model_info

        get_model_info(ANY)


@contextlib.contextmanager
def _quickly() -> Iterator[None]:
    """Within, YAML is parsed by libyaml where PyYAML has it: to the same, in an eighth of the time."""
    import yaml

    usual = yaml.SafeLoader
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", usual)  # type: ignore[misc]
    try:
        yield
    finally:
        yaml.SafeLoader = usual  # type: ignore[misc]
