from __future__ import annotations

import pytest

from fleet.hawk.requirements import canonical, has_credentials, name_of, problems, unpinned
from tests.fleet.hawk.installed import ask

SHA = "0123456789abcdef0123456789abcdef01234567"
CLEAN = (
    "inspect-evals==0.28.0",
    "inspect_evals[cyber]>=1",
    f"git+https://github.com/org/evals@{SHA}",
    f"git+https://github.com/org/evals@{SHA}#subdirectory=pkg",
    f"evals @ git+https://github.com/org/evals@{SHA}",
    f"git+ssh://git@github.com/org/evals@{SHA}",
    "https://host:8443/evals-1.0-py3-none-any.whl",
)
WITH_CREDENTIALS = (
    f"git+https://user:hunter2@github.com/org/evals@{SHA}",
    f"git+https://hunter2@github.com/org/evals@{SHA}",
    f"evals @ git+https://user:hunter2@github.com/org/evals@{SHA}",
    "https://host/evals-1.0-py3-none-any.whl?token=hunter2",
    "https://host/evals-1.0-py3-none-any.whl?a=1&X-Amz-Signature=hunter2",
)
LOCAL = (
    "./evals",
    "../evals",
    "/srv/evals",
    "~/evals",
    "file:///srv/evals",
    "evals @ file:///srv/evals",
    ".",
    "evals @ /srv/evals",
)

REDACTS = """
import json, sys
from hawk.core import sanitize
print(json.dumps([sanitize.redact_credentials(text) != text for text in json.load(sys.stdin)]))
"""


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("inspect-evals==0.28.0", "inspect-evals"),
        ("inspect_evals[cyber] >= 1", "inspect_evals"),
        ("evals", "evals"),
        ("evals@git+https://h/x", "evals"),
        ("evals ; python_version > '3'", "evals"),
        ("git+https://h/x@1", ""),
        ("https://h/x.whl", ""),
        ("./evals", ""),
    ],
)
def test_a_requirement_names_its_distribution_or_doesnt_say(requirement: str, name: str) -> None:
    assert name_of(requirement) == name


def test_names_are_compared_as_the_index_does() -> None:
    assert canonical("Inspect_Evals.x") == "inspect-evals-x"


@pytest.mark.parametrize("requirement", CLEAN)
def test_what_a_runner_can_install_is_no_problem(requirement: str) -> None:
    assert problems([requirement]) == []


@pytest.mark.parametrize("requirement", LOCAL)
def test_what_lies_on_this_machine_is_a_problem(requirement: str) -> None:
    assert [f"the requirement {requirement} is on this machine" in one for one in problems([requirement])] == [True]


@pytest.mark.parametrize("requirement", WITH_CREDENTIALS)
def test_credentials_are_a_problem_that_doesnt_repeat_them(requirement: str) -> None:
    [problem] = problems(["inspect-ai==0.3.285", requirement])
    assert problem.startswith("requirement 2 of packages has credentials")
    assert "hunter2" not in problem


def test_a_release_and_a_commit_are_pinned() -> None:
    assert unpinned(
        [
            "a==1",
            "b>=1",
            "c",
            f"git+https://h/x@{SHA}",
            "git+https://h/x@main",
            f"d @ git+https://h/x@{SHA}#subdirectory=p",
        ]
    ) == [
        "b>=1",
        "c",
        "git+https://h/x@main",
    ]


@pytest.mark.hawk
def test_the_installed_hawk_sees_credentials_where_we_do() -> None:
    told = [*CLEAN, *WITH_CREDENTIALS]
    assert ask(REDACTS, told) == [has_credentials(text.rpartition(" @ ")[2]) for text in told]
