"""IAM policies as AWS evaluates them: what a policy document says of one request. Pure, and made for one call in a thousand.

Rules (IAM User Guide, "Policy evaluation logic" and "IAM JSON policy elements"): nothing is allowed unless a statement allows it;
a statement that denies wins over all that allow; all conditions of a statement hold together, one of a condition's values is
enough; a condition on a key that the request doesn't carry fails, unless its operator is a negated one or ends in IfExists.

What isn't known here (an operator, a variable that the request doesn't carry) is never guessed at: a statement that allows
doesn't hold then, one that denies does, and the log says which operator it was.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

log = logging.getLogger(__name__)

Decision = Literal["allowed", "denied", "not allowed"]
"""`denied`: by a statement that denies; `not allowed`: no statement allows it."""

VARIABLE = re.compile(r"\$\{([^}]*)\}")
LITERALS = {"*": "*", "?": "?", "$": "$"}
"""`${*}` in a policy means the character itself, no wildcard."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks to do, as policies see it."""

    action: str
    """`service:Operation`."""
    resource: str
    """An ARN; `*` where the action has no resource."""
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values by condition key, keys in lower case."""


class Undecided(Exception):
    """A statement can't be decided by what is known here. Never leaves this module."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One operator on one key."""

    operator: str
    key: str
    values: tuple[str, ...]

    def holds(self, context: Mapping[str, Sequence[str]]) -> bool:
        """Whether the request's values satisfy it. Undecided."""
        scope, _, rest = self.operator.rpartition(":")
        name = rest.removesuffix("IfExists")
        found = context.get(self.key.lower())
        if name == "Null":
            return (found is None) == (self.values == ("true",))
        compare = OPERATORS.get(name)
        if compare is None or scope not in ("", "ForAnyValue", "ForAllValues"):
            log.warning("the local cloud doesn't know the condition operator %s", self.operator)
            raise Undecided
        negated = "Not" in name
        if not found:
            return negated or rest != name or scope == "ForAllValues"
        wanted = [_resolved(value, context, literal=name not in WILD) for value in self.values]

        def satisfies(value: str) -> bool:
            matches = any(compare(value, one) for one in wanted)
            return matches != negated

        return all(map(satisfies, found)) if scope == "ForAllValues" or negated else any(map(satisfies, found))


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: tuple[Condition, ...]
    other_actions: bool = False
    """`NotAction`: it speaks of all actions but these."""
    other_resources: bool = False

    def speaks_of(self, request: Request) -> bool:
        """Whether it holds for the request, in doubt against it."""
        try:
            return (
                self._names_action(request.action)
                and self._names_resource(request)
                and all(condition.holds(request.context) for condition in self.conditions)
            )
        except Undecided:
            return not self.allows

    def _names_action(self, action: str) -> bool:
        lower = action.lower()
        return any(_matches(lower, pattern) for pattern in self.actions) != self.other_actions

    def _names_resource(self, request: Request) -> bool:
        patterns = (_resolved(pattern, request.context) for pattern in self.resources)
        return any(_matches(request.resource, pattern) for pattern in patterns) != self.other_resources


def decide(documents: Iterable[str], request: Request) -> Decision:
    """What these policy documents (JSON) say of a request."""
    allowed = False
    for document in documents:
        for statement in read_policy(document):
            if (statement.allows and allowed) or not statement.speaks_of(request):
                continue
            if not statement.allows:
                return "denied"
            allowed = True
    return "allowed" if allowed else "not allowed"


@functools.lru_cache(maxsize=256)
def read_policy(document: str) -> tuple[Statement, ...]:
    """The statements of an identity-based policy. ValueError: it isn't JSON; KeyError: it lacks what each policy has."""
    statements = json.loads(document)["Statement"]
    return tuple(_statement(one) for one in _listed(statements))


def _statement(one: Mapping[str, Any]) -> Statement:
    other_actions, other_resources = "NotAction" in one, "NotResource" in one
    return Statement(
        allows=one["Effect"] == "Allow",
        actions=tuple(action.lower() for action in _listed(one["NotAction" if other_actions else "Action"])),
        resources=tuple(_listed(one["NotResource" if other_resources else "Resource"])),
        conditions=tuple(
            Condition(operator, key, tuple(_text(value) for value in _listed(values)))
            for operator, keys in one.get("Condition", {}).items()
            for key, values in keys.items()
        ),
        other_actions=other_actions,
        other_resources=other_resources,
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _resolved(text: str, context: Mapping[str, Sequence[str]], *, literal: bool = False) -> str:
    """`text` with its policy variables replaced. Undecided: the request doesn't carry one of them.

    What a variable brings in is no pattern: its wildcards mean themselves. `literal`: nothing in `text` is a pattern.
    """
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        name, comma, default = found[1].partition(",")
        if name in LITERALS:
            return name if literal else _quoted(name)
        values = context.get(name.strip().lower())
        if values is not None and len(values) == 1:
            return values[0] if literal else _quoted(values[0])
        if not comma:
            raise Undecided
        return default.strip().strip("'")

    return VARIABLE.sub(value, text)


def _quoted(text: str) -> str:
    return re.sub(r"[*?]", lambda found: f"\0{found[0]}", text)


def _matches(text: str, pattern: str) -> bool:
    return text == pattern or pattern == "*" or _compiled(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\0.|[*?])", pattern)
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(part, re.escape(part.removeprefix("\0"))) for part in parts), re.DOTALL)


def _same(value: str, wanted: str) -> bool:
    return value == wanted


def _same_in_any_case(value: str, wanted: str) -> bool:
    return value.lower() == wanted.lower()


OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _same,
    "StringNotEquals": _same,
    "StringEqualsIgnoreCase": _same_in_any_case,
    "StringNotEqualsIgnoreCase": _same_in_any_case,
    "StringLike": _matches,
    "StringNotLike": _matches,
    "ArnEquals": _matches,
    "ArnNotEquals": _matches,
    "ArnLike": _matches,
    "ArnNotLike": _matches,
    "Bool": _same_in_any_case,
}
"""What compares one value of the request with one of the policy."""
WILD = frozenset(name for name, compare in OPERATORS.items() if compare is _matches)
