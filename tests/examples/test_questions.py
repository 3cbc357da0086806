import subprocess

import pytest

from fleet_examples.questions import COUNTS, QUESTIONS, Count, Question
from fleet_examples.table import TABLE, table


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.kind)
def test_a_question_is_recognised_for_every_element(question: Question) -> None:
    assert all(question.recognise(question.put(element)) == element for element in table())


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=lambda question: question.kind)
def test_no_question_is_taken_for_another_kind(question: Question) -> None:
    others = [other for other in QUESTIONS.values() if other is not question]
    assert all(other.recognise(question.put(element)) is None for other in others for element in table())


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: count.kind)
def test_a_count_is_recognised_for_every_value(count: Count) -> None:
    assert all(count.recognise(count.put(value)) == value for value in count.values())


def test_there_are_29_counts() -> None:
    assert [len(count.values()) for count in COUNTS] == [7, 4, 18]


def run(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], cwd=TABLE.parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: count.kind)
def test_the_command_counts_what_is_asked_for(count: Count) -> None:
    assert {value: run(count.command(value)) for value in count.values()} == {
        value: count.answer(value) for value in count.values()
    }


@pytest.mark.parametrize("count", COUNTS, ids=lambda count: count.kind)
def test_a_slip_leads_to_a_wrong_count(count: Count) -> None:
    value = count.values()[0]
    assert run(count.command(value, slip=True)) != count.answer(value)
