"""CloudFormation with one account in it: change sets are seen a poll later, and an execution takes two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from botocore.exceptions import ClientError

from fleet.aws.session import Aws

ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/inspect-fleet/1"


@dataclass
class FakeCloudFormation:
    """Says what it is told to say, and keeps what was asked."""

    status: str = ""
    """Of the stack; empty: none."""
    parameters: dict[str, str] = field(default_factory=dict)
    template: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    changes: Sequence[dict[str, Any]] = ()
    """What a change set finds."""
    refused: str = ""
    """Why a change set fails."""
    ends: str = ""
    """The state in which an execution ends; empty: as it should."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """Oldest first."""
    during: Sequence[dict[str, Any]] = ()
    """Events of an execution."""
    asked: list[str] = field(default_factory=list)
    sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    _polls: int = 0
    _runs: str = ""

    def describe_stacks(self, **_: Any) -> dict[str, Any]:
        if self._runs:
            self._polls += 1
            if self._polls >= 2:
                self.status = self.ends or self._runs
                self._runs = ""
        if not self.status:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": "no such stack"}}, "DescribeStacks")
        stack = {
            "StackId": ID,
            "StackStatus": self.status,
            "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in self.parameters.items()],
            "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()],
        }
        return {"Stacks": [stack]}

    def get_template(self, **_: Any) -> dict[str, Any]:
        return {"TemplateBody": self.template}

    def create_change_set(self, **request: Any) -> dict[str, str]:
        self.asked.append(f"create {request['ChangeSetType']}")
        name = f"set-{len(self.sets)}"
        self.sets[name] = request
        if not self.status:
            self.status = "REVIEW_IN_PROGRESS"
        self._polls = 0
        return {"Id": name, "StackId": ID}

    def describe_change_set(self, *, ChangeSetName: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._polls += 1
        if self._polls < 2:
            return {"Status": "CREATE_IN_PROGRESS"}
        if self.refused:
            return {"Status": "FAILED", "StatusReason": self.refused}
        return {"Status": "CREATE_COMPLETE", "Changes": list(self.changes)}

    def execute_change_set(self, *, ChangeSetName: str) -> None:  # noqa: N803
        self.asked.append("execute")
        request = self.sets[ChangeSetName]
        self._polls = 0
        self._runs = f"{request['ChangeSetType']}_COMPLETE"
        self.status = f"{request['ChangeSetType']}_IN_PROGRESS"
        self.template = request["TemplateBody"]
        self.parameters = {one["ParameterKey"]: one["ParameterValue"] for one in request["Parameters"]}
        self.events += self.during

    def delete_change_set(self, *, ChangeSetName: str) -> None:  # noqa: N803
        self.asked.append("delete set")
        del self.sets[ChangeSetName]

    def get_paginator(self, operation: str) -> FakeCloudFormation:
        assert operation == "list_change_sets"
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [{"Summaries": [{"ChangeSetId": name, "StackId": ID} for name in self.sets]}]

    def delete_stack(self, **_: Any) -> None:
        self.asked.append("delete stack")
        self.status = ""

    def describe_stack_events(self, **_: Any) -> dict[str, Any]:
        return {"StackEvents": [{"EventId": str(place), **one} for place, one in enumerate(self.events)][::-1]}


def aws_with(fake: FakeCloudFormation) -> Aws:
    """Clients of an account whose CloudFormation is this one."""
    aws = Aws("us-east-1")
    aws._clients["cloudformation"] = cast("object", fake)
    return aws
