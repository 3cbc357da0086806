"""One call for many resources. AWS refuses the whole of it for one of them: the others mustn't be left as they are for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleet.aws.capacity import IN_DOUBT
from fleet.aws.failures import BAD_CREDENTIALS, NO_CREDENTIALS, THROTTLED, AwsRefused

OF_THE_CALL = THROTTLED | IN_DOUBT | BAD_CREDENTIALS | NO_CREDENTIALS
"""Refusals that are about none of the resources: asking for each by itself would be refused alike."""


def refused_of(names: Sequence[str], ask: Callable[[Sequence[str]], object]) -> dict[str, AwsRefused]:
    """Ask for all of these at once; where that is refused, for each by itself. Those that were refused, and with what.

    AwsRefused: the call was refused, whatever it was about (`OF_THE_CALL`).
    """
    if not names:
        return {}
    try:
        ask(names)
    except AwsRefused as refused:
        if refused.code in OF_THE_CALL:
            raise
        if len(names) == 1:
            return {names[0]: refused}
    else:
        return {}
    refusals: dict[str, AwsRefused] = {}
    for name in names:
        try:
            ask([name])
        except AwsRefused as refused:
            refusals[name] = refused
    return refusals


def in_one(refusals: Mapping[str, AwsRefused], *, where: str = "") -> AwsRefused:
    """The refusals as one that names all they are about; code and reason are the first one's."""
    first = next(iter(refusals.values()))
    return type(first)(
        service=first.service,
        operation=first.operation,
        code=first.code,
        target=f"{', '.join(refusals)}{where}",
        why=first.why,
    )
