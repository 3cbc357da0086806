"""What the scripted model says next: a pure function of who answers, the conversation and the tools on offer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from inspect_ai.model import ChatMessage
from inspect_ai.tool import ToolChoice, ToolFunction, ToolInfo

from fleet_examples.questions import COUNTS, QUESTIONS
from fleet_examples.scripted.arguments import arguments_for
from fleet_examples.scripted.conversation import Conversation
from fleet_examples.scripted.grader import verdict
from fleet_examples.scripted.mind import Mind
from fleet_examples.table import table

SHELLS = ("bash", "shell", "bash_session")
SUBMITS = ("submit", "finish", "done", "final_answer")
MOST_TOOLS = 4
"""Tools that are tried before an answer, of many on offer: a conversation has to end."""


@dataclass(frozen=True)
class Call:
    """One tool call."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """Text, tool calls, or both."""

    text: str
    calls: tuple[Call, ...] = ()


def reply(mind: Mind, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo], choice: ToolChoice) -> Reply:
    """The next message: each tool once in the order they are offered, then `submit` if there is one, else a plain answer."""
    conversation = Conversation(messages)
    if choice == "none" or not tools:
        return Reply(verdict(mind, conversation) or _answer(mind, conversation))
    if isinstance(choice, ToolFunction):
        forced = [tool for tool in tools if tool.name == choice.name]
        return _use(forced[0], mind, conversation) if forced else Reply(_answer(mind, conversation))
    submit = next((tool for tool in tools if tool.name in SUBMITS), None)
    others = [tool for tool in tools if tool is not submit]
    shell = next((tool for tool in others if tool.name in SHELLS), None)
    command = _command(mind, conversation) if shell else None
    if shell and command:
        if shell.name not in conversation.called:
            return Reply("Counting with the shell.", (Call(shell.name, {_only_required(shell): command}),))
        return _finish(submit, conversation.results[-1].strip() if conversation.results else "", others, choice)
    unused = [tool for tool in others[:MOST_TOOLS] if tool.name not in conversation.called]
    if unused:
        return _use(unused[0], mind, conversation)
    return _finish(submit, _answer(mind, conversation), others, choice)


def _use(tool: ToolInfo, mind: Mind, conversation: Conversation) -> Reply:
    calls = tuple(Call(tool.name, arguments) for arguments in arguments_for(tool, mind, conversation))
    return Reply(f"Next: {tool.name}.", calls)


def _finish(submit: ToolInfo | None, answer: str, others: Sequence[ToolInfo], choice: ToolChoice) -> Reply:
    if submit:
        return Reply("", (Call(submit.name, {_only_required(submit): answer}),))
    if choice == "any" and others:  # must call one, and has nothing left to ask
        return Reply(answer, (Call(others[0].name, {}),)) if not others[0].parameters.required else Reply(answer)
    return Reply(answer)


def _only_required(tool: ToolInfo) -> str:
    return next(iter(tool.parameters.required or tool.parameters.properties))


def _command(mind: Mind, conversation: Conversation) -> str | None:
    """The shell command for a question that is answered by counting."""
    for count in COUNTS:
        value = count.recognise(conversation.request)
        if value is not None:
            return count.command(value, slip=not mind.knows(count.kind, value))
    return None


def _answer(mind: Mind, conversation: Conversation) -> str:
    return (
        _fact(mind, conversation.last)
        or _choice(mind, conversation.last)
        or _from_tools(mind, conversation)
        or _line(mind, conversation)
    )


def _fact(mind: Mind, text: str) -> str | None:
    """The answer to a question about an element; where the mind is wrong, it thinks of the neighbour."""
    for question in QUESTIONS.values():
        element = question.recognise(text)
        if element is None:
            continue
        right = question.asked(element)
        if mind.knows(question.kind, element.symbol):
            return right
        after = table()[element.number :] + table()[: element.number]
        return next(wrong for other in after if (wrong := question.asked(other)) != right)
    return None


def _choice(mind: Mind, text: str) -> str | None:
    """A letter, where the prompt is a multiple choice in Inspect's form."""
    offered = re.search(r"ANSWER: \$LETTERS?'.*?one of ([A-Z](?:,[A-Z])*)", text, re.DOTALL)
    return f"ANSWER: {mind.pick(offered[1].split(','), 'choice', text)}" if offered else None


def _from_tools(mind: Mind, conversation: Conversation) -> str | None:
    """What the first tool said: its first sentence from a careful mind, all of it from a careless one."""
    if not conversation.results:
        return None
    seen = " ".join(conversation.results[0].split())
    careful = mind.knows("report", conversation.text)
    return re.split(r"(?<=[.!?]) ", seen, maxsplit=1)[0] if careful else seen[:2000]


def _line(mind: Mind, conversation: Conversation) -> str:
    """A plain line of talk about the request; it may use a command that the instructions teach (`say [GIVE $10]`)."""
    words = conversation.keywords[:3] or ["that"]
    line = mind.pick(
        (
            "On {}: I would start with the facts, then decide.",
            "Let me think about {}. The short answer is that it depends on what matters most to you.",
            "Here is a plan for {}: look, choose, act, and check the result.",
            "I can help with {}. Tell me what you have tried so far.",
            "There are two sides to {}, and both deserve a fair hearing.",
        ),
        "line",
        conversation.text,
    ).format(", ".join(words).lower())
    taught = re.findall(r"\b[Ss]ay (\[[A-Z]+ \$?\d+\])", conversation.system)
    if taught and mind.chance("taught", conversation.text) < 0.3:
        line += f" {mind.pick(taught, 'which', conversation.text)}"
    return line
