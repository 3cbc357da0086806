"""What a policy says of a request, by the rules of AWS's IAM User Guide."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.local.policy import Request, decide

READ = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "arn:p/*"}
OWN = {"StringEquals": {"ssm:resourceTag/InstanceArn": "${ec2:SourceInstanceARN}"}}
NOT_OWN = {"StringNotEquals": {"ssm:resourceTag/InstanceArn": "${ec2:SourceInstanceARN}"}}


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def said(
    *statements: dict[str, Any],
    action: str = "ssm:GetParameter",
    resource: str = "arn:p/a",
    **context: str | tuple[str, ...],
) -> str:
    """Keys of the context are written with `__` for a colon and `_of_` for a slash."""
    values = {
        key.replace("__", ":").replace("_of_", "/").lower(): (value,) if isinstance(value, str) else value
        for key, value in context.items()
    }
    return decide([policy(*statements)], Request(action, resource, values))


def test_nothing_is_allowed_by_itself() -> None:
    assert decide([], Request("s3:GetObject", "arn:b/k")) == "not allowed"
    assert said(READ, action="ssm:PutParameter") == "not allowed"
    assert said(READ, resource="arn:q/a") == "not allowed"


def test_a_statement_that_denies_wins_wherever_it_stands() -> None:
    deny = {"Effect": "Deny", "Action": "ssm:Get*", "Resource": "*"}
    assert said(READ) == "allowed"
    assert said(READ, deny) == "denied"
    assert said(deny, READ) == "denied"
    assert decide([policy(READ), policy(deny)], Request("ssm:GetParameter", "arn:p/a")) == "denied"


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("ssm:GetParameter", "ssm:GetParameter", True),
        ("SSM:getparameter", "ssm:GetParameter", True),  # actions know no case
        ("ssm:GetParameter", "ssm:GetParameters", False),
        ("ssm:GetParameter?", "ssm:GetParameters", True),
        ("ssm:*", "ssm:GetParameter", True),
        ("*", "ssm:GetParameter", True),
        ("s*:Get*", "ssm:GetParameter", True),
        ("ssm.GetParameter", "ssm:GetParameter", False),
    ],
)
def test_an_action_is_named_by_a_pattern(pattern: str, action: str, matches: bool) -> None:
    statement = {"Effect": "Allow", "Action": [pattern], "Resource": "*"}
    assert (said(statement, action=action) == "allowed") is matches


@pytest.mark.parametrize(
    ("pattern", "resource", "matches"),
    [
        ("arn:b/x/*", "arn:b/x/y/z", True),
        ("arn:b/x/*", "arn:b/x", False),
        ("arn:b/*/jobs/*", "arn:b/evals/e1/jobs/j", True),
        ("arn:B/*", "arn:b/x", False),  # resources do
        ("arn:b/a.c", "arn:b/abc", False),
        ("arn:b/${*}", "arn:b/x", False),
        ("arn:b/${*}", "arn:b/*", True),
    ],
)
def test_a_resource_is_named_by_a_pattern(pattern: str, resource: str, matches: bool) -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": pattern}
    assert (said(statement, resource=resource) == "allowed") is matches


def test_all_but_some_can_be_named() -> None:
    statement = {"Effect": "Allow", "NotAction": "ssm:Get*", "NotResource": "arn:p/*"}
    assert said(statement, action="ssm:PutParameter", resource="arn:q") == "allowed"
    assert said(statement, action="ssm:GetParameter", resource="arn:q") == "not allowed"
    assert said(statement, action="ssm:PutParameter", resource="arn:p/a") == "not allowed"


CONDITIONS = [
    ({"StringEquals": {"k": ["a", "b"]}}, {"k": "b"}, True),
    ({"StringEquals": {"k": "a"}}, {"k": "A"}, False),
    ({"StringEquals": {"k": "a*"}}, {"k": "ab"}, False),
    ({"StringEquals": {"k": "a"}}, {}, False),
    ({"StringEqualsIfExists": {"k": "a"}}, {}, True),
    ({"StringEqualsIfExists": {"k": "a"}}, {"k": "b"}, False),
    ({"StringEqualsIgnoreCase": {"k": "a"}}, {"k": "A"}, True),
    ({"StringNotEquals": {"k": "a"}}, {"k": "a"}, False),
    ({"StringNotEquals": {"k": "a"}}, {"k": "b"}, True),
    ({"StringNotEquals": {"k": ["a", "b"]}}, {"k": "b"}, False),
    ({"StringNotEquals": {"k": "a"}}, {}, True),
    ({"StringLike": {"k": "pre/*"}}, {"k": "pre/fix"}, True),
    ({"StringLike": {"k": "pre/*"}}, {"k": "other"}, False),
    ({"StringNotLike": {"k": "pre/*"}}, {"k": "other"}, True),
    ({"ArnLike": {"k": "arn:*:x"}}, {"k": "arn:1:x"}, True),
    ({"Bool": {"k": "false"}}, {"k": "false"}, True),
    ({"Bool": {"k": False}}, {"k": "false"}, True),
    ({"Bool": {"k": "false"}}, {}, False),
    ({"Null": {"k": "true"}}, {}, True),
    ({"Null": {"k": "true"}}, {"k": "a"}, False),
    ({"Null": {"k": "false"}}, {"k": "a"}, True),
    ({"Null": {"k": True}}, {}, True),
    ({"StringEquals": {"K": "a"}}, {"k": "a"}, True),  # keys know no case
    ({"StringEquals": {"k": "a", "j": "b"}}, {"k": "a"}, False),  # all of them
    ({"ForAnyValue:StringEquals": {"k": "a"}}, {"k": ("a", "b")}, True),
    ({"ForAllValues:StringEquals": {"k": "a"}}, {"k": ("a", "b")}, False),
    ({"ForAllValues:StringEquals": {"k": ["a", "b"]}}, {"k": ("a", "b")}, True),
    ({"ForAllValues:StringEquals": {"k": "a"}}, {}, True),
]


@pytest.mark.parametrize(("condition", "context", "holds"), CONDITIONS, ids=lambda value: str(value))
def test_a_condition_limits_a_statement(condition: Any, context: Any, holds: bool) -> None:
    assert (said({**READ, "Condition": condition}, **context) == "allowed") is holds


@pytest.mark.parametrize("condition", [{"DateLessThan": {"k": "2030"}}, {"StringEquals": {"k": "${aws:unknown}"}}])
def test_what_is_not_known_here_allows_nothing_and_denies(condition: Any) -> None:
    """An operator, or a variable that the request doesn't carry."""
    assert said({**READ, "Condition": condition}, k="a") == "not allowed"
    assert said(READ, {**READ, "Effect": "Deny", "Condition": condition}, k="a") == "denied"


def test_a_variable_brings_in_a_text_and_no_pattern() -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "arn:p/${aws:username}/*"}
    assert said(statement, resource="arn:p/me/a", aws__username="me") == "allowed"
    assert said(statement, resource="arn:p/you/a", aws__username="me") == "not allowed"
    assert said(statement, resource="arn:p/you/a", aws__username="*") == "not allowed"
    liked = {**READ, "Condition": {"StringLike": {"k": "${aws:username}"}}}
    assert said(liked, k="you", aws__username="*") == "not allowed"


def test_a_variable_may_have_a_default() -> None:
    statement = {"Effect": "Allow", "Action": "*", "Resource": "arn:p/${aws:username, 'nobody'}"}
    assert said(statement, resource="arn:p/nobody") == "allowed"


ARNS = st.sampled_from(["arn:1", "arn:2", "*", "", "${*}", "arn:?"])


@given(tag=st.none() | ARNS, me=ARNS)
def test_only_a_parameter_with_ones_own_arn_is_ever_read(tag: str | None, me: str) -> None:
    """The rule of the worker's role, as one statement that allows and one that denies: both say the same."""
    carried = {"ec2__SourceInstanceARN": me, **({"ssm__resourceTag_of_InstanceArn": tag} if tag is not None else {})}
    own = tag is not None and tag == me
    assert (said({**READ, "Condition": OWN}, **carried) == "allowed") is own
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    assert (said(everything, {**READ, "Effect": "Deny", "Condition": NOT_OWN}, **carried) == "allowed") is own
