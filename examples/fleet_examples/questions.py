"""The questions of the example tasks: how each is put, its right answer, and how to recognise it again.

The tasks put them, and the scripted model reads them back from the conversation.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from fleet_examples.table import Element, table


@dataclass(frozen=True)
class Question:
    """One kind of question about one element."""

    kind: str
    text: str
    """With one `{}` for what is given."""
    given: Callable[[Element], str]
    asked: Callable[[Element], str]

    def put(self, element: Element) -> str:
        """The question about `element`."""
        return self.text.format(self.given(element))

    def recognise(self, text: str) -> Element | None:
        """The element that `text` asks about, if it holds this question."""
        found = _read(self.text, text)
        return next((element for element in table() if self.given(element) == found), None)


@dataclass(frozen=True)
class Count:
    """A question that is answered by counting rows of the table in a shell."""

    kind: str
    text: str
    column: int
    """Of `elements.csv`, from 1 as awk counts."""
    property: Callable[[Element], str]

    def values(self) -> list[str]:
        """What can be asked for, in the table's order."""
        return list(dict.fromkeys(value for element in table() if (value := self.property(element))))

    def put(self, value: str) -> str:
        """The question about `value`."""
        return self.text.format(value)

    def answer(self, value: str) -> str:
        """How many elements there are."""
        return str(sum(self.property(element) == value for element in table()))

    def recognise(self, text: str) -> str | None:
        """The value that `text` asks about, if it holds this question."""
        found = _read(self.text, text)
        return found if found in self.values() else None

    def command(self, value: str, *, slip: bool = False) -> str:
        """The shell command that counts; with a `slip`, one that starts halfway down the table."""
        return f"""awk -F, 'NR>{60 if slip else 1} && ${self.column}=="{value}"' elements.csv | wc -l"""


QUESTIONS = {
    question.kind: question
    for question in (
        Question(
            kind="symbol",
            text="What is the chemical symbol of {}? Answer with the symbol alone.",
            given=lambda element: element.name.lower(),
            asked=lambda element: element.symbol,
        ),
        Question(
            kind="number",
            text="What is the atomic number of {}? Answer with the number alone.",
            given=lambda element: element.name.lower(),
            asked=lambda element: str(element.number),
        ),
        Question(
            kind="name",
            text="Which element has the symbol {}? Answer with its name alone.",
            given=lambda element: element.symbol,
            asked=lambda element: element.name,
        ),
        Question(
            kind="block",
            text="To which block of the periodic table (s, p, d or f) does {} belong? Answer with the letter alone.",
            given=lambda element: element.name.lower(),
            asked=lambda element: element.block,
        ),
    )
}

COUNTS = (
    Count("period", "How many elements stand in period {}?", 5, lambda element: str(element.period)),
    Count("block", "How many elements does the {}-block hold?", 6, lambda element: element.block),
    Count("group", "How many elements stand in group {}?", 4, lambda element: str(element.group or "")),
)


def _read(template: str, text: str) -> str | None:
    before, after = template.split("{}")
    found = re.search(re.escape(before) + r"([A-Za-z0-9]+)" + re.escape(after), text)
    return found.group(1) if found else None
