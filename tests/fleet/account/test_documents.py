"""The page on permissions explains every statement, and the page on the account names every parameter that it should."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.account.test_template import DOCUMENTS, FULL

DOCS = Path(__file__).parents[3] / "docs"


def test_every_statement_of_every_policy_is_explained() -> None:
    page = (DOCS / "iam.md").read_text()
    policies = [*DOCUMENTS.values(), FULL.resources["BucketPolicy"]["Properties"]["PolicyDocument"]]
    sids = {statement["Sid"] for document in policies for statement in document["Statement"]}
    assert {sid for sid in sids if f"`{sid}`" not in page} == set()


def test_every_policy_and_role_is_named() -> None:
    page = (DOCS / "iam.md").read_text()
    for name in DOCUMENTS:
        assert name.removesuffix(" (inline)") in page


def test_the_page_on_the_account_names_the_parameters_of_the_account() -> None:
    page = (DOCS / "account.md").read_text()
    own = [name for name in FULL.template["Parameters"] if not name.startswith("ControlPlane")]
    assert [name for name in own if f"`{name}`" not in page] == []
