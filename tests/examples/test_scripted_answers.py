"""The scripted model's replies: facts, tools, verdicts."""

import json
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageTool, ChatMessageUser
from inspect_ai.tool import ToolCall, ToolFunction, ToolInfo, ToolParams
from inspect_ai.util import JSONSchema

from fleet_examples.questions import COUNTS, QUESTIONS
from fleet_examples.scripted.answers import Reply, reply
from fleet_examples.scripted.mind import PERSONAS, Mind
from fleet_examples.table import table

CHEMIST = Mind("chemist", PERSONAS["chemist"])
PUBLIC = Mind("public", PERSONAS["public"])


def ask(text: str, mind: Mind = PUBLIC, *, system: str | None = None) -> str:
    before: list[ChatMessage] = [ChatMessageSystem(content=system)] if system else []
    return reply(mind, [*before, ChatMessageUser(content=text)], [], "auto").text


def tool(name: str, **properties: dict[str, Any]) -> ToolInfo:
    schemas = {key: JSONSchema(**value) for key, value in properties.items()}
    return ToolInfo(name=name, description=name, parameters=ToolParams(properties=schemas, required=list(properties)))


def after(said: Reply, *results: str) -> list[ChatMessage]:
    """The messages that a reply and its tools' results add to a conversation."""
    calls = [
        ToolCall(id=str(place), function=call.tool, arguments=call.arguments) for place, call in enumerate(said.calls)
    ]
    return [
        ChatMessageAssistant(content=said.text, tool_calls=calls),
        *(ChatMessageTool(content=text, tool_call_id=str(place)) for place, text in enumerate(results)),
    ]


SUBMIT = tool("submit", answer={"type": "string"})
BASH = tool("bash", cmd={"type": "string"})


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("persona", ["chemist", "student"])
def test_a_persona_gets_its_share_of_the_facts_right(persona: str, kind: str) -> None:
    mind = Mind(persona, PERSONAS[persona])
    question = QUESTIONS[kind]
    right = sum(ask(question.put(element), mind) == question.asked(element) for element in table())
    assert abs(right / 118 - mind.accuracy) < 0.12


def test_another_seed_gets_other_facts_wrong() -> None:
    def wrong(seed: int) -> set[str]:
        mind = Mind("student", 0.6, seed)
        question = QUESTIONS["symbol"]
        return {element.symbol for element in table() if ask(question.put(element), mind) != element.symbol}

    assert wrong(0) == wrong(0)
    assert wrong(0) != wrong(1)


def test_the_same_conversation_gets_the_same_reply() -> None:
    messages = [ChatMessageUser(content="Plan a birthday party for a climber.")]
    again = [ChatMessageUser(content="Plan a birthday party for a climber.")]  # other ids
    assert reply(PUBLIC, messages, [BASH, SUBMIT], "auto") == reply(PUBLIC, again, [BASH, SUBMIT], "auto")


def test_a_multiple_choice_gets_one_of_its_letters() -> None:
    prompt = (
        "Answer the following multiple choice question. The entire content of your response should be of the following "
        "format: 'ANSWER: $LETTER' (without quotes) where LETTER is one of A,B,C.\n\nWhich is a metal?"
    )
    assert re.fullmatch(r"ANSWER: [ABC]", ask(prompt))


def test_a_count_is_run_in_the_shell_and_its_output_submitted() -> None:
    question = COUNTS[1].put("f")
    messages: list[ChatMessage] = [ChatMessageUser(content=question)]
    perfect = Mind("chemist", 1.0)
    first = reply(perfect, messages, [BASH, SUBMIT], "auto")
    assert [call.tool for call in first.calls] == ["bash"]
    assert first.calls[0].arguments["cmd"].startswith("awk")
    last = reply(perfect, [*messages, *after(first, "28\n")], [BASH, SUBMIT], "auto")
    assert [(call.tool, call.arguments) for call in last.calls] == [("submit", {"answer": "28"})]


def test_each_tool_is_used_once_then_the_answer_submitted() -> None:
    tools = [tool("search", query={"type": "string"}), tool("note", text={"type": "string"}), SUBMIT]
    messages: list[ChatMessage] = [ChatMessageUser(content="What is the vacation policy?")]
    used = []
    for _ in range(5):
        said = reply(PUBLIC, messages, tools, "auto")
        used += [call.tool for call in said.calls]
        if used[-1] == "submit":
            break
        messages += after(said, "Twenty days a year. More by agreement.")
    assert used == ["search", "note", "submit"]


def test_a_tool_for_numbered_items_is_called_for_each_of_them() -> None:
    inbox, sort = tool("read_inbox"), tool("sort_mail", email_index={"type": "integer"})
    messages: list[ChatMessage] = [ChatMessageUser(content="Sort my mail.")]
    read = reply(PUBLIC, messages, [inbox, sort], "auto")
    messages += after(read, "Mail 1:\n  hello\n\nMail 2:\n  goodbye")
    said = reply(PUBLIC, messages, [inbox, sort], "auto")
    assert [call.arguments for call in said.calls] == [{"email_index": 1}, {"email_index": 2}]


def test_a_forced_tool_is_called_and_with_none_no_tool_is() -> None:
    messages: list[ChatMessage] = [ChatMessageUser(content="Look at the weather.")]
    forced = reply(PUBLIC, messages, [BASH, SUBMIT], ToolFunction("submit"))
    assert [call.tool for call in forced.calls] == ["submit"]
    assert reply(PUBLIC, messages, [BASH, SUBMIT], "none").calls == ()


SMALL = st.integers(0, 9)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.just({"type": "string"}),
        st.builds(lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more}, SMALL, SMALL),
        st.builds(lambda low, more: {"type": "integer", "minimum": -low, "maximum": more - low}, SMALL, SMALL),
        st.just({"type": "number"}),
        st.just({"type": "boolean"}),
        st.builds(lambda values: {"type": "string", "enum": values}, st.lists(st.text(max_size=5), min_size=1)),
        st.just({"anyOf": [{"type": "null"}, {"type": "integer"}]}),
    ),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda fields: {"type": "object", "properties": fields, "required": list(fields)},
            st.dictionaries(st.sampled_from(["a", "b_id", "text", "index"]), inner, max_size=3),
        ),
    ),
    max_leaves=5,
)


@given(SCHEMAS)
@settings(max_examples=100, deadline=None)
def test_arguments_are_valid_by_the_schema(schema: dict[str, Any]) -> None:
    offered = tool("act", thing=schema)
    said = reply(PUBLIC, [ChatMessageUser(content="Do what CX-1234 wants.")], [offered], "auto")
    for call in said.calls:
        jsonschema.validate(call.arguments, offered.parameters.model_dump(exclude_none=True))


GRADING = """You are comparing a submitted answer to an expert answer on a given question. Here is the data:

[BEGIN DATA]
************
[Question]: Who is it?
************
[Expert]: {wanted}
************
[Submission]: {said}
************
[END DATA]

After assessing the submitted answer, reply with 'GRADE: $LETTER' (without quotes) where LETTER is one of CI."""


def test_a_grader_compares_the_submission_with_the_expert() -> None:
    assert ask(GRADING.format(wanted="Marie Curie", said="It was Marie Curie.")).endswith("GRADE: C")
    assert ask(GRADING.format(wanted="Marie Curie", said="Nobody knows.")).endswith("GRADE: I")


def test_a_grader_answers_in_json_within_the_range_asked_for() -> None:
    system = 'Return only a JSON object: {"rating": "[An integer from 1 to 3]", "reasoning": "Why", "certain": true}'
    verdicts = [json.loads(ask(f"<response>{number}</response>", system=system)) for number in range(20)]
    assert {verdict["rating"] for verdict in verdicts} == {1, 2, 3}
    assert all(verdict["reasoning"] and isinstance(verdict["certain"], bool) for verdict in verdicts)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Is it safe? Answer yes or no.", {"yes", "no"}),
        ("Was the reply right? Respond with CORRECT or INCORRECT.", {"CORRECT", "INCORRECT"}),
        ("Return only 'True' or 'False'.", {"True", "False"}),
    ],
)
def test_a_grader_answers_with_one_of_two_words(prompt: str, words: set[str]) -> None:
    assert {ask(f"Case {number}. {prompt}") for number in range(30)} == words
