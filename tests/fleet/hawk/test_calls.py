"""What a refusal's body says."""

from __future__ import annotations

import json

import pytest

from fleet.hawk.calls import words

ROWS = [
    (
        {"title": "Job already exists", "detail": "Stop it\n first.", "status": 409},
        "Job already exists: Stop it first.",
    ),
    ({"title": "Server error"}, "Server error"),
    ({"detail": "Forbidden"}, "Forbidden"),
    (
        {"detail": [{"loc": ["body", "a", 0], "msg": "no", "input": "hush"}, {"loc": ["body"], "msg": "bad"}]},
        "a.0: no; bad",
    ),
    ({"detail": ["one", {"loc": [], "msg": "two"}]}, "one; two"),
    ({"error": "odd"}, '{"error": "odd"}'),
    (["odd"], '["odd"]'),
]


@pytest.mark.parametrize(("body", "said"), ROWS)
def test_a_body_says_itself_in_one_line(body: object, said: str) -> None:
    assert words(json.dumps(body)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [("", ""), ("Not\n found", "Not found"), ("<!DOCTYPE HTML><HTML>…</HTML>", "a web page"), ("3", "3")],
)
def test_a_body_that_is_no_document_is_said_as_it_is(text: str, said: str) -> None:
    assert words(text) == said
