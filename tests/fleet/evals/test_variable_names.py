from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.variable_names import ALLOWED, half_a_key, name_problem, value_problem


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "_x", "A1", "GH_TOKEN", "DOCKERHUB_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"),
        *("AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK", "PYTHONANYWHERE_TOKEN", "INSPECT_LOG_LEVEL", "HF_TOKEN"),
    ],
)
def test_what_providers_and_tools_ask_for_may_be_a_secret(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "letters, digits"),
        ("1KEY", "no digit in front"),
        ("MY-KEY", "letters, digits"),
        ("MY KEY", "letters, digits"),
        ("A=B", "letters, digits"),
        ("KEY\n", "letters, digits"),
        ("É", "letters, digits"),
        ("PATH", "every job gets its own"),
        ("LD_PRELOAD", "load other code"),
        ("DYLD_INSERT_LIBRARIES", "load other code"),
        ("PYTHONPATH", "which Python code"),
        ("BASH_ENV", "every shell script"),
        ("PREFECT_API_KEY", "kept from them"),
        ("PREFECT__FLOW_RUN_ID", "kept from them"),
        ("FLEET_INSTANCE_ID", "kept from them"),
        ("INSPECT_EVAL_MAX_SAMPLES", "from the request alone"),
        ("AWS_PROFILE", "pass AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "what an instance doesn't have"),
    ],
)
def test_a_name_that_would_not_arrive_or_do_harm_is_refused_with_the_reason(name: str, why: str) -> None:
    problem = name_problem(name)
    assert why in problem
    assert problem.startswith(f"{name!r} can't be a secret's name: ")


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_what_is_no_option_of_an_eval_is_allowed(name: str) -> None:
    assert name_problem(name) == ""


@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True))
def test_a_shell_takes_every_name_that_is_allowed(name: str) -> None:
    if not name_problem(name):
        assert name.isidentifier()
        assert name.isascii()


@given(st.text(max_size=30).filter(lambda text: not value_problem(text)))
def test_a_value_that_is_allowed_can_be_put_into_an_environment(value: str) -> None:
    """What a process's environment takes is what `putenv` takes."""
    assert b"\0" not in value.encode()


def test_a_process_is_given_what_is_allowed() -> None:
    value = "line 1\nline 2\r\n\ttab é 🔑 '\"$`\\"
    assert value_problem(value) == ""
    said = subprocess.run(
        [sys.executable, "-c", "import os, sys; sys.stdout.buffer.write(os.environb[b'K'])"],
        env={"K": value},
        capture_output=True,
        check=True,
    )
    assert said.stdout.decode() == value


@pytest.mark.parametrize("value", ["a\0b", "\udc80"])
def test_a_process_is_not_given_what_is_refused(value: str) -> None:
    assert value_problem(value)
    assert "a" not in value_problem(value).partition(" ")[0]


@pytest.mark.parametrize(
    ("given_names", "named"),
    [
        ([], ""),
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], ""),
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"], ""),
        (["AWS_ACCESS_KEY_ID"], "AWS_ACCESS_KEY_ID"),
        (["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"], "AWS_SECRET_ACCESS_KEY"),
        (["AWS_SESSION_TOKEN"], "AWS_SESSION_TOKEN"),
    ],
)
def test_aws_keys_come_as_a_set(given_names: list[str], named: str) -> None:
    """With half of one, every AWS client of a job fails, also those that would have used the instance's role."""
    problem = half_a_key(dict.fromkeys(given_names, "x"))
    assert problem.partition(" ")[0] == named
