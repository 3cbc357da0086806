"""The account's template: its text as it lies in this installation, its parameters, and what it means without its comments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleet.errors import RequestRefused

FILE = Path(__file__).with_name("template.yaml")

BODY_BYTES = 51_200
"""The largest template that CloudFormation takes in a call (AWS CloudFormation User Guide, quotas)."""


class ParameterUnknown(RequestRefused):
    """The template has no parameter of that name."""

    name: str
    known: tuple[str, ...]

    def message(self) -> str:
        """One line: which, and which there are."""
        return f"--param {self.name}: the account's template has {', '.join(self.known)}"


class _Tags(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, each as the tag's name and what it is given."""


def _tag(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> Any:
    value: Any = None
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    return {f"!{name}": value}


_Tags.add_multi_constructor("!", _tag)


def template_text() -> str:
    """The template."""
    return FILE.read_text(encoding="utf-8")


def meaning(text: str) -> dict[str, Any]:
    """A template without its comments and layout: two of one meaning make the same stack. YAMLError."""
    found = yaml.load(text, Loader=_Tags)  # noqa: S506, a safe loader with tags of CloudFormation's
    return found if isinstance(found, dict) else {}


@cache
def parameter_defaults() -> Mapping[str, str]:
    """Each parameter's default, as CloudFormation keeps it."""
    return {name: str(one.get("Default", "")) for name, one in meaning(template_text())["Parameters"].items()}


def chosen_parameters(given: Mapping[str, Any]) -> dict[str, str]:
    """What a person gave, by the template's own spelling of each name. ParameterUnknown."""
    known = {name.lower(): name for name in parameter_defaults()}
    chosen = {}
    for name, value in given.items():
        if name.lower() not in known:
            raise ParameterUnknown(name=name, known=tuple(known.values()))
        chosen[known[name.lower()]] = _text(value)
    return chosen


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
