"""One call for many resources. AWS refuses the whole of it for one of them: the others mustn't be left as they are for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fleet.aws.advice import UNVERIFIED
from fleet.aws.capacity import IN_DOUBT
from fleet.aws.failures import BAD_CREDENTIALS, NO_ANSWER, NO_CREDENTIALS, NOT_VALIDATED, THROTTLED, AwsRefused

OF_ANY_CALL = NO_ANSWER | BAD_CREDENTIALS | NO_CREDENTIALS | NOT_VALIDATED | UNVERIFIED
"""Refusals that the next call would meet too, whatever it is about: no network, no login, a region that is off."""
OF_THE_CALL = OF_ANY_CALL | THROTTLED | IN_DOUBT
"""Refusals that are about none of the resources: asking for each by itself would be refused alike."""


def refused_of(
    names: Sequence[str], ask: Callable[[Sequence[str]], object], *, at_once: int | None = None
) -> dict[str, AwsRefused]:
    """Ask for these, `at_once` a call (None: all); where that is refused, for each by itself. Those that were refused, with what.

    Where a refusal is about none of them (`OF_THE_CALL`), nothing more is asked: those that are left count as refused with it.
    """
    refusals: dict[str, AwsRefused] = {}
    size = at_once or max(1, len(names))
    for start in range(0, len(names), size):
        some = names[start : start + size]
        try:
            ask(some)
        except AwsRefused as refused:
            if refused.code in OF_THE_CALL:
                return refusals | dict.fromkeys(names[start:], refused)
            refusals |= {some[0]: refused} if len(some) == 1 else each_refused(some, lambda name: ask([name]))
            if refusals and (last := [*refusals.values()][-1]).code in OF_ANY_CALL:
                return refusals | dict.fromkeys(names[start + size :], last)
    return refusals


def each_refused(names: Sequence[str], ask: Callable[[str], object]) -> dict[str, AwsRefused]:
    """Ask for each of these by itself. Those that were refused, with what; after `OF_ANY_CALL`, all that are left are."""
    refusals: dict[str, AwsRefused] = {}
    for number, name in enumerate(names):
        try:
            ask(name)
        except AwsRefused as refused:
            if refused.code in OF_ANY_CALL:
                return refusals | dict.fromkeys(names[number:], refused)
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
