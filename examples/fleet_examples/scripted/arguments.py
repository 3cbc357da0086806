"""Arguments for a tool, valid by its schema and, where the conversation helps, sensible."""

import re
from typing import Any

from inspect_ai.tool import ToolInfo
from inspect_ai.util import JSONSchema

from fleet_examples.scripted.conversation import Conversation
from fleet_examples.scripted.mind import Mind

CODE = {"bash": "echo {}", "shell": "echo {}", "python": "print('{}')"}
"""By tool: a harmless line of its language, around one word."""


def arguments_for(tool: ToolInfo, mind: Mind, conversation: Conversation) -> list[dict[str, Any]]:
    """The arguments of one call, or of several: a tool that takes an item's number is called for each numbered item."""
    wanted = tool.parameters.required or list(tool.parameters.properties)
    arguments = {
        name: _value(tool.parameters.properties[name], name, tool, mind, conversation)
        for name in wanted
        if name in tool.parameters.properties
    }
    number = next((name for name in arguments if name.endswith(("index", "number"))), None)
    items = _numbered_items(conversation)
    if number is None or not items:
        return [arguments]
    calls = []
    for item in items:
        varied = {
            name: _value(tool.parameters.properties[name], f"{name} {item}", tool, mind, conversation)
            for name in arguments
        }
        calls.append({**varied, number: item})
    return calls


def _value(schema: JSONSchema, name: str, tool: ToolInfo, mind: Mind, conversation: Conversation) -> Any:
    about = (tool.name, name, conversation.text)
    if schema.enum:
        return mind.pick(schema.enum, *about)
    if schema.anyOf:
        kind = next((option for option in schema.anyOf if option.type != "null"), schema.anyOf[0])
        return _value(kind, name, tool, mind, conversation)
    kinds = schema.type if isinstance(schema.type, list) else [schema.type]
    match next((kind for kind in kinds if kind != "null"), None):
        case "integer" | "number":
            low = int(schema.minimum if schema.minimum is not None else 1)
            high = int(schema.maximum if schema.maximum is not None else low + 4)
            return mind.pick(range(low, max(low, high) + 1), *about)
        case "boolean":
            return mind.knows(*about)
        case "array":
            return [_value(schema.items, name, tool, mind, conversation)] if schema.items else []
        case "object":
            fields = schema.properties or {}
            return {
                field: _value(fields[field], field, tool, mind, conversation)
                for field in schema.required or fields
                if field in fields
            }
        case "null":
            return None
        case _:
            text = _text(schema, name, tool, mind, conversation)
            text = text.ljust(schema.minLength or 0, ".")
            return text if schema.maxLength is None else text[: schema.maxLength]


def _text(schema: JSONSchema, name: str, tool: ToolInfo, mind: Mind, conversation: Conversation) -> str:
    word = conversation.keywords[0] if conversation.keywords else "this"
    if tool.name in CODE:
        return CODE[tool.name].format(word)
    quoted = re.findall(r"'([\w-]+)'", schema.description or "")
    if len(quoted) > 1:  # "must be 'important', 'normal' or 'spam'"
        return str(mind.pick(quoted, tool.name, name, conversation.text))
    if re.search(r"(^|_)(id|recipient)( |$)", name):
        ids = re.findall(r"\b[A-Z]{2,}-\d+\b", conversation.text)
        addresses = re.findall(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", conversation.text)
        known = addresses if "recipient" in name and addresses else ids
        return str(mind.pick(known, tool.name, name, conversation.text)) if known else word
    if re.search(r"summary|body|content|message|resolution|value|answer|text|reason", name):
        seen = conversation.results[-1] if conversation.results else conversation.request
        return f"About {word}: {_start(seen)}"
    return word


def _start(text: str) -> str:
    """The first lines or so."""
    return " ".join(text.split())[:240]


def _numbered_items(conversation: Conversation) -> list[int]:
    """The numbers of a list in the last tool result (`Email 1: …`, `Email 2: …`), at most ten."""
    if not conversation.results:
        return []
    seen = [int(number) for result in conversation.results for number in re.findall(r"(?m)^\w+ (\d+):", result)]
    return sorted(set(seen))[:10]
