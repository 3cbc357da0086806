from __future__ import annotations

import re
from typing import Any

import pytest

from fleet.hawk.identity import LONGEST, eval_set_id

CONFIG: dict[str, Any] = {
    "tasks": [{"package": "evals", "name": "evals", "items": [{"name": "one"}]}],
    "packages": ["a==1", "b==2"],
    "temperature": 0,
}


@pytest.mark.parametrize(
    "task", ["evals/one", "evals/" + "long_name_" * 9, "evals/imported", "evals/imported_logs", "e/Ünï", "e/…"]
)
def test_an_id_is_one_that_hawk_takes(task: str) -> None:
    made = eval_set_id(task, CONFIG)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", made)
    assert len(made) <= LONGEST
    assert not made.startswith("imported-")


def test_an_id_is_read_by_its_task() -> None:
    assert re.fullmatch(r"gpqa-diamond-[0-9a-f]{16}", eval_set_id("inspect_evals/gpqa_diamond", CONFIG))


@pytest.mark.parametrize(
    "more",
    [
        {"packages": ["b==2", "a==1"]},
        {"tags": ["x"]},
        {"metadata": {"x": 1}},
        {"runner": {"secrets": [{"type": "env", "name": "KEY"}]}},
        {"max_connections": 7},
        {"log_realtime": False},
    ],
)
def test_what_doesnt_decide_the_result_leaves_the_id(more: dict[str, Any]) -> None:
    assert eval_set_id("evals/one", {**CONFIG, **more}) == eval_set_id("evals/one", CONFIG)


@pytest.mark.parametrize(
    "more",
    [
        {"packages": ["a==1", "b==3"]},
        {"temperature": 1},
        {"limit": 2},
        {"tasks": [{"package": "evals", "name": "evals", "items": [{"name": "two"}]}]},
        {"message_limit": 3},
    ],
)
def test_what_decides_the_result_makes_another(more: dict[str, Any]) -> None:
    assert eval_set_id("evals/one", {**CONFIG, **more}) != eval_set_id("evals/one", CONFIG)


def test_a_nonce_starts_over() -> None:
    assert len({eval_set_id("evals/one", CONFIG, nonce) for nonce in ("", "1", "2")}) == 3
