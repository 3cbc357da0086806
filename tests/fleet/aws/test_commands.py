"""Commands in messages work when they are pasted."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.aws.commands import aws_command, fleet_command

ROOT = Path(__file__).parents[3]
ROOMS = ("blocks", "bootstrap", "fleet", "flows", "worker_image")
OFFER = re.compile(r"\baws (?!sso |iam |or )[a-z0-9]+ [a-z-]+|`fleet (setup|connect|image build)\b")
"""A command that is about one region. `aws sso` and `aws iam` aren't."""
DESCRIBED = {
    "blocks/account.py": "the account's region isn't known, and the message says so",
    "fleet/cli/account.py": "no account is known",
    "fleet/pool/runs.py": "where the account's stack is isn't known to a pool",
    "fleet/pool/hold_up.py": "the same",
    "flows/reap.py": "no account is known, so none of its regions",
    "bootstrap/gpu.py": "says what made an image, on an instance",
    "bootstrap/host.py": "says what made an image, on an instance",
}


def test_they_name_their_region_and_are_quoted() -> None:
    assert aws_command("eu-west-1", "ec2", "describe-instances") == "aws ec2 describe-instances --region eu-west-1"
    pasted = fleet_command("eu-west-1", "image", "build", "--account", "my account")
    assert shlex.split(pasted) == ["fleet", "image", "build", "--account", "my account", "--region", "eu-west-1"]


@pytest.mark.parametrize("room", ROOMS)
def test_no_message_spells_a_command_of_one_region_by_itself(room: str) -> None:
    """Else the next one lacks its region."""
    found = {
        f"{name}: {text[:80]}"
        for path in sorted((ROOT / room).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) not in DESCRIBED
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if OFFER.search(text)
    }
    assert found == set()


def texts(tree: ast.Module) -> Iterator[str]:
    """Every string that isn't a docstring."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {one.value for body in bodies for one in body if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value
