"""What the scripted model reads of a conversation: text, tool calls and tool results, never ids or times."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about above after again answer anything because before being below between could doing during each every from "
        "have having into itself more most must only other over please same should some such than that their them then "
        "there these they this those through under until very want were what when where which while with would your",
    )
)


@dataclass(frozen=True)
class Conversation:
    """The messages so far."""

    messages: Sequence[ChatMessage]

    @cached_property
    def text(self) -> str:
        """All of it: what every draw of chance depends on."""
        return "\n".join(f"{message.role}: {_content(message)}" for message in self.messages)

    @cached_property
    def system(self) -> str:
        """What the system messages say."""
        return "\n".join(message.text for message in self.messages if message.role == "system")

    @cached_property
    def request(self) -> str:
        """What the first user message asks for."""
        return next((message.text for message in self.messages if message.role == "user"), "")

    @cached_property
    def last(self) -> str:
        """What the last user message says."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @cached_property
    def called(self) -> list[str]:
        """Names of the tools called so far, in order."""
        return [
            call.function
            for message in self.messages
            if isinstance(message, ChatMessageAssistant)
            for call in message.tool_calls or []
        ]

    @cached_property
    def results(self) -> list[str]:
        """What the tools answered; an error counts as an answer."""
        return [
            message.error.message if message.error else message.text
            for message in self.messages
            if isinstance(message, ChatMessageTool)
        ]

    @cached_property
    def keywords(self) -> list[str]:
        """The words that the request seems to be about, the longest first."""
        words = dict.fromkeys(re.findall(r"[A-Za-z]{4,}", self.last or self.request))
        return sorted((word for word in words if word.lower() not in STOP_WORDS), key=len, reverse=True)


def count_tokens(text: str) -> int:
    """A simple, stable count: words and punctuation marks."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def _content(message: ChatMessage) -> str:
    if isinstance(message, ChatMessageTool) and message.error:
        return message.error.message
    calls = message.tool_calls if isinstance(message, ChatMessageAssistant) else None
    return message.text + "".join(
        f"\n{call.function}({json.dumps(call.arguments, sort_keys=True, default=str)})" for call in calls or []
    )
