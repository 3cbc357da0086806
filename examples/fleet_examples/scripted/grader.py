"""Verdicts, in the form that the grading prompt asks for.

Three forms cover most public graders: a last line `GRADE: C` (Inspect's model_graded_qa and model_graded_fact), a JSON
object with a score in it, and one of two words.
"""

import json
import re

from fleet_examples.scripted.conversation import Conversation
from fleet_examples.scripted.mind import Mind

SCORE_FIELDS = ("score", "rating", "grade")
WORD_PAIRS = (("yes", "no"), ("true", "false"), ("correct", "incorrect"), ("pass", "fail"), ("safe", "unsafe"))


def verdict(mind: Mind, conversation: Conversation) -> str | None:
    """The answer of a grader; None if nobody asks for a verdict."""
    text = f"{conversation.system}\n{conversation.last}"
    return _letter(mind, text) or _json_score(mind, text) or _word(mind, text)


def _letter(mind: Mind, text: str) -> str | None:
    if not re.search(r"\bGRADE: ?\$?\w", text):
        return None
    offered = re.search(r"\bone of ([A-Z]{2,5})\b", text)
    letters = offered.group(1) if offered else "CI"
    compared = re.search(
        r"\[Submission\]: (?P<answer>.*?)\n\*{3,}\n\[Criterion\]: (?P<wanted>.*?)\n\*{3,}"
        r"|\[Expert\]: (?P<expert>.*?)\n\*{3,}\n\[Submission\]: (?P<said>.*?)\n\*{3,}",
        text,
        re.DOTALL,
    )
    if compared:
        wanted = (compared["wanted"] or compared["expert"] or "").strip().casefold()
        right = wanted in (compared["answer"] or compared["said"] or "").casefold()
        reason = f"The submission {'holds' if right else 'does not hold'} what was asked for."
    else:
        right = mind.knows("grade", text)
        reason = "Weighed against the instructions."
    letter = letters[0] if right else mind.pick(letters[1:], "grade", text)
    return f"{reason}\n\nGRADE: {letter}"


def _json_score(mind: Mind, text: str) -> str | None:
    if "JSON" not in text:
        return None
    field = rf'"(?:{"|".join(SCORE_FIELDS)})"\s*:'
    example = re.search(r"\{[^{}]*" + field + r"[^{}]*\}", text)
    if not example:
        return None
    verdict: dict[str, object] = {}
    for name, hint in re.findall(r'"(\w+)"\s*:\s*("[^"]*"|[^,}\n]*)', example.group(0)):
        if name in SCORE_FIELDS:
            low, high = _range(hint, text)
            verdict[name] = mind.pick(range(low, high + 1), name, text)
        elif re.search(r"\btrue\b|\bfalse\b", hint):
            verdict[name] = mind.knows(name, text)
        elif hint.startswith("["):
            verdict[name] = []
        else:
            verdict[name] = "Weighed against the instructions, point by point."
    return json.dumps(verdict, indent=2)


def _range(hint: str, text: str) -> tuple[int, int]:
    """The whole numbers on offer: what stands beside the field, else what the instructions say, else 1 to 5."""
    for place in (hint, text):
        found = re.search(r"(?:integer|from|between|<|scale of)\s*(?:from )?(\d)\s*(?:-|–|to|and)\s*(\d+)", place)
        if found and int(found[1]) < int(found[2]):
            return int(found[1]), int(found[2])
    return 1, 5


def _word(mind: Mind, text: str) -> str | None:
    for right, wrong in WORD_PAIRS:
        offered = re.search(
            rf"(?i:answer|respond|reply|output|return|say)\b[^.\n]{{0,80}}?\W({right}\W{{1,4}}(?:or\W{{1,3}})?{wrong})\b",
            text,
            re.IGNORECASE,
        )
        if offered:
            word = right if mind.knows("word", text) else wrong
            written = re.search(rf"\b{word}\b", offered.group(1), re.IGNORECASE)
            return written.group(0) if written else word
    return None
