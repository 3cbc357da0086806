"""The account's CloudFormation stack: what it is now, what a change would do to it, and the change itself.

A change is a change set: it is shown before it is executed, and deleted where nobody wants it. A stack whose creation fails removes
itself again (OnStackFailure); one whose update fails goes back to what it was. Whatever fails, the first event that did is named.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from fleet.account.commands import setup_command
from fleet.account.template import meaning, parameter_defaults, template_text
from fleet.aws.commands import aws_command
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws
from fleet.errors import FleetError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import ChangeTypeDef, CreateChangeSetInputTypeDef

ABSENT = "ValidationError"
"""CloudFormation's answer to a question about one stack that isn't there."""
STUCK = frozenset({"CREATE_FAILED", "DELETE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})
"""States that a stack only leaves by being deleted."""
HALF_UPDATED = frozenset({"UPDATE_ROLLBACK_FAILED", "UPDATE_FAILED"})
RESERVED = "REVIEW_IN_PROGRESS"
"""A name that a change set reserved which nobody has executed: there is no resource."""
NOT_THERE = frozenset({RESERVED, "DELETE_COMPLETE"})
"""That, and a stack that was deleted."""
DONE = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE"})
CONTROL_PLANE = "ControlPlaneVolume"
"""Output that is there only where the stack has a control plane: its volume."""
POLL_SECONDS = 3.0
PATIENCE_SECONDS = 30 * 60.0
"""Of one change: a role and a security group take a minute, an image pipeline some more."""
CAPABILITIES: Sequence[Any] = ("CAPABILITY_NAMED_IAM",)

Sleep = Callable[[float], None]
Say = Callable[[str], None]


class StackStuck(FleetError):
    """The stack is in a state that no change can begin from."""

    name: str
    region: str
    status: str
    why: str

    def message(self) -> str:
        """One line: the state, why, and the way out."""
        why = f" ({self.why})" if self.why else ""
        again = setup_command(self.region, self.name)
        if self.status in HALF_UPDATED:
            # An update that was told not to go back takes another call than a way back that failed.
            call = "rollback-stack" if self.status == "UPDATE_FAILED" else "continue-update-rollback"
            command = aws_command(self.region, "cloudformation", call, "--stack-name", self.name)
            return (
                f"stack {self.name} in {self.region} is {self.status}{why}: end its rollback (`{command}`), "
                f"then run `{again}` again"
            )
        command = aws_command(self.region, "cloudformation", "delete-stack", "--stack-name", self.name)
        return (
            f"stack {self.name} in {self.region} is {self.status}{why}: it can only be deleted (`{command}`; the bucket and what "
            f"is in it stay), then run `{again}` again"
        )


class StackBusy(FleetError):
    """Somebody changes the stack at this moment."""

    name: str
    region: str
    status: str

    def message(self) -> str:
        """One line, with what helps."""
        again = setup_command(self.region, self.name)
        return f"stack {self.name} in {self.region} is {self.status}: wait until that is over, then run `{again}` again"


class StackChangeFailed(FleetError):
    """A change was refused, or failed and was undone."""

    name: str
    region: str
    resource: str
    """Empty: the template as a whole."""
    why: str

    def message(self) -> str:
        """One line: what failed first, and AWS's reason."""
        where = f" at {self.resource}" if self.resource else ""
        return f"stack {self.name} in {self.region} was not changed: it failed{where}: {self.why}"


@dataclass(frozen=True, slots=True)
class StackState:
    """A stack as CloudFormation describes it."""

    name: str
    status: str
    """Empty: there is none."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    template: str = ""
    id: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is a stack that holds anything."""
        return bool(self.status) and self.status not in NOT_THERE

    @property
    def has_control_plane(self) -> bool:
        """Whether it has the parts of a control plane, be it paused or not."""
        return CONTROL_PLANE in self.outputs


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What happens to one resource."""

    action: Literal["Add", "Modify", "Remove", "Other"]
    resource: str
    kind: str
    """CloudFormation's type."""
    properties: tuple[str, ...] = ()
    replaced: bool = False
    """Its old self is removed: what it held is gone."""

    def line(self) -> str:
        """As a person reads it."""
        sign = {"Add": "+", "Modify": "~", "Remove": "-"}.get(self.action, "?")
        what = f": {', '.join(self.properties)}" if self.properties else ""
        return f"{sign} {self.resource} ({self.kind}){what}{' (REPLACED)' if self.replaced else ''}"


@dataclass(frozen=True, slots=True)
class StackPlan:
    """What would change. `change_set` is empty where nothing does."""

    change_set: str = ""
    stack_id: str = ""
    creates: bool = False
    reserves: bool = False
    """The stack's name is there only since this change set was made."""
    resources: tuple[ResourceChange, ...] = ()
    parameters: tuple[str, ...] = ()
    """Lines: name, old and new value."""

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return not self.change_set


class AccountStack:
    """The stack `name` of one region. Every method raises AwsRefused where AWS refuses."""

    def __init__(
        self,
        aws: Aws,
        name: str,
        *,
        sleep: Sleep = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        say: Say = lambda _: None,
    ) -> None:
        self.aws = aws
        self.name = name
        self._sleep = sleep
        self._clock = clock
        self._say = say

    def state(self) -> StackState:
        """What there is now."""
        try:
            with calling("cloudformation", self._target):
                found = self.aws.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]
        except AwsRefused as refusal:
            if refusal.code == ABSENT:
                return StackState(self.name, "")
            raise
        status = str(found["StackStatus"])
        template = "" if status in NOT_THERE else self._template()
        return StackState(
            name=self.name,
            status=status,
            parameters={one["ParameterKey"]: one.get("ParameterValue", "") for one in found.get("Parameters", [])},
            outputs={one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", [])},
            template=template,
            id=found["StackId"],
        )

    def plan(self, now: StackState, chosen: Mapping[str, str], *, mend: bool = False) -> StackPlan:
        """A change set from what there is to this version's template with `chosen` parameters; those not chosen stay.

        `mend`: also what somebody changed or deleted past CloudFormation. StackStuck, StackBusy, StackChangeFailed.
        """
        if now.status in STUCK | HALF_UPDATED:
            raise StackStuck(name=self.name, region=self.aws.region, status=now.status, why=self._first_failure()[1])
        if now.exists and now.status.endswith("_IN_PROGRESS"):
            raise StackBusy(name=self.name, region=self.aws.region, status=now.status)
        wanted = {name: now.parameters.get(name, default) for name, default in parameter_defaults().items()} | dict(
            chosen
        )
        if now.exists and not mend and is_current(now, chosen):
            return StackPlan()
        request: CreateChangeSetInputTypeDef = {
            "StackName": self.name,
            "ChangeSetName": f"fleet-setup-{uuid4().hex[:12]}",
            "ChangeSetType": "UPDATE" if now.exists else "CREATE",
            "TemplateBody": template_text(),
            "Parameters": [{"ParameterKey": name, "ParameterValue": value} for name, value in wanted.items()],
            "Capabilities": CAPABILITIES,
        }
        if not now.exists:
            request["OnStackFailure"] = "DELETE"
            # The bucket outlives its stack: a later one takes it in with what it holds.
            request["ImportExistingResources"] = True
        elif mend:
            request["DeploymentMode"] = "REVERT_DRIFT"
        with calling("cloudformation", self._target):
            made = self.aws.cloudformation.create_change_set(**request)
        unseen = StackPlan(
            change_set=made["Id"],
            stack_id=made["StackId"],
            creates=not now.exists,
            reserves=now.status != RESERVED and not now.exists,
        )
        try:
            changes = self._described(made["Id"])
        except BaseException:  # interrupted too: nobody else knows of this change set
            self.drop(unseen)
            raise
        if changes is None:
            self.drop(unseen)
            return StackPlan()
        return dataclasses.replace(
            unseen,
            resources=tuple(map(resource_change, changes)),
            parameters=parameter_changes(now.parameters, wanted) if now.exists else (),
        )

    def carry_out(self, plan: StackPlan) -> StackState:
        """Execute a plan, say each resource as it is done, and return what there is then. StackChangeFailed: it was undone."""
        seen = self._seen_events(plan.stack_id)
        with calling("cloudformation", self._target):
            self.aws.cloudformation.execute_change_set(ChangeSetName=plan.change_set)
        deadline = self._clock() + PATIENCE_SECONDS
        while True:
            with calling("cloudformation", self._target):
                found = self.aws.cloudformation.describe_stacks(StackName=plan.stack_id)["Stacks"]
            self._tell_events(plan.stack_id, seen)
            status = str(found[0]["StackStatus"]) if found else "DELETE_COMPLETE"
            if status in DONE:
                return self.state()
            if not status.endswith("_IN_PROGRESS"):
                resource, why = self._first_failure(plan.stack_id)
                raise StackChangeFailed(name=self.name, region=self.aws.region, resource=resource, why=why or status)
            if self._clock() > deadline:
                why = f"it is still {status} after {PATIENCE_SECONDS / 60:.0f} minutes; look in the CloudFormation console"
                raise StackChangeFailed(name=self.name, region=self.aws.region, resource="", why=why)
            self._sleep(POLL_SECONDS)

    def drop(self, plan: StackPlan) -> None:
        """Delete a plan that nobody carries out; with it, the name that it reserved, unless somebody else goes on from there."""
        if plan.empty:
            return
        with calling("cloudformation", self._target):
            self.aws.cloudformation.delete_change_set(ChangeSetName=plan.change_set)
            if plan.reserves and self._is_bare(plan):
                self.aws.cloudformation.delete_stack(StackName=plan.stack_id)

    @property
    def _target(self) -> str:
        return f"stack {self.name} in {self.aws.region}"

    def _is_bare(self, plan: StackPlan) -> bool:
        """Whether a plan's stack is a name with nothing behind it: no resource, and no other's change set waiting."""
        cloudformation = self.aws.cloudformation
        found = cloudformation.describe_stacks(StackName=plan.stack_id)["Stacks"]
        if not found or found[0]["StackStatus"] != RESERVED:
            return False
        pages = cloudformation.get_paginator("list_change_sets").paginate(StackName=plan.stack_id)
        waiting = {one["ChangeSetId"] for page in pages for one in page["Summaries"] if one["StackId"] == plan.stack_id}
        return not waiting - {plan.change_set}

    def _template(self) -> str:
        with calling("cloudformation", self._target):
            body: Any = self.aws.cloudformation.get_template(StackName=self.name, TemplateStage="Original")[
                "TemplateBody"
            ]
        return body if isinstance(body, str) else ""  # boto3 reads a JSON one: none of ours

    def _described(self, change_set: str) -> list[ChangeTypeDef] | None:
        """The changes of a change set, once they are known; None: it changes nothing. StackChangeFailed: AWS refuses it."""
        deadline = self._clock() + PATIENCE_SECONDS
        while True:
            with calling("cloudformation", self._target):
                found = self.aws.cloudformation.describe_change_set(ChangeSetName=change_set)
            status, why = found["Status"], found.get("StatusReason", "")
            if status == "CREATE_COMPLETE":
                changes = list(found.get("Changes", []))
                while token := found.get("NextToken"):
                    with calling("cloudformation", self._target):
                        found = self.aws.cloudformation.describe_change_set(ChangeSetName=change_set, NextToken=token)
                    changes += found.get("Changes", [])
                return changes
            if status == "FAILED" and changes_nothing(why):
                return None
            if status == "FAILED" or self._clock() > deadline:
                raise StackChangeFailed(name=self.name, region=self.aws.region, resource="", why=why or status)
            self._sleep(POLL_SECONDS)

    def _events(self, stack: str) -> list[Any]:
        """Newest first."""
        with calling("cloudformation", self._target):
            return list(self.aws.cloudformation.describe_stack_events(StackName=stack)["StackEvents"])

    def _seen_events(self, stack: str) -> set[str]:
        return {event["EventId"] for event in self._events(stack)}

    def _tell_events(self, stack: str, seen: set[str]) -> None:
        for event in reversed(self._events(stack)):
            if event["EventId"] in seen:
                continue
            seen.add(event["EventId"])
            status = str(event.get("ResourceStatus", ""))
            if not status.endswith("_IN_PROGRESS") and event.get("ResourceType") != "AWS::CloudFormation::Stack":
                self._say(f"{event.get('LogicalResourceId', '')}: {status.lower().replace('_', ' ')}")

    def _first_failure(self, stack: str = "") -> tuple[str, str]:
        """The resource that failed first in the latest change, and why; what it took down with it says nothing."""
        first = ("", "")
        for event in self._events(stack or self.name):
            status, why = str(event.get("ResourceStatus", "")), event.get("ResourceStatusReason", "")
            if status.endswith("_FAILED") and why:
                first = (event.get("LogicalResourceId", ""), why)
            if why == "User Initiated":
                break  # the change before this one
        return first


def wanted_parameters(now: StackState, chosen: Mapping[str, str]) -> dict[str, str]:
    """All parameters of a change: as chosen, else as they are, else the template's defaults."""
    kept = {name: now.parameters.get(name, default) for name, default in parameter_defaults().items()}
    return {**kept, **chosen}


def is_current(now: StackState, chosen: Mapping[str, str]) -> bool:
    """Whether the stack has this template's meaning and these parameters: CloudFormation need not be asked."""
    same = all(now.parameters.get(name, "") == value for name, value in wanted_parameters(now, chosen).items())
    return same and bool(now.template) and meaning(now.template) == meaning(template_text())


def changes_nothing(why: str) -> bool:
    """Whether a change set failed only because there is nothing to change.

    By AWS's text, for want of anything else: it gives no code. Another wording is shown as the failure it then looks like.
    """
    return "didn't contain changes" in why or "No updates are to be performed" in why


def resource_change(change: ChangeTypeDef) -> ResourceChange:
    """One change of a change set."""
    found = change.get("ResourceChange", {})
    properties = {
        detail.get("Target", {}).get("Name") or detail.get("Target", {}).get("Attribute", "")
        for detail in found.get("Details", [])
    }
    action = found.get("Action", "")
    return ResourceChange(
        action=action if action in ("Add", "Modify", "Remove") else "Other",
        resource=found.get("LogicalResourceId", ""),
        kind=found.get("ResourceType", ""),
        properties=tuple(sorted(name for name in properties if name)),
        replaced=found.get("Replacement") == "True",
    )


def parameter_changes(now: Mapping[str, str], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """A line for each parameter whose value changes."""
    return tuple(
        f"~ parameter {name}: {now.get(name, '')!r} becomes {value!r}"
        for name, value in wanted.items()
        if now.get(name, "") != value and not (name not in now and not value)
    )
