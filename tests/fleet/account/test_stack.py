"""The account's stack: what each state means, what is asked for, and what is left when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.account.stack import (
    PATIENCE_SECONDS,
    AccountStack,
    ResourceChange,
    StackBusy,
    StackChangeFailed,
    StackStuck,
    is_current,
    parameter_changes,
)
from fleet.account.template import parameter_defaults, template_text
from tests.fleet.account.fake_cloudformation import FakeCloudFormation, aws_with

NOTHING = "The submitted information didn't contain changes."
ADD = {"ResourceChange": {"Action": "Add", "LogicalResourceId": "Bucket", "ResourceType": "AWS::S3::Bucket"}}
MODIFY = {
    "ResourceChange": {
        "Action": "Modify",
        "LogicalResourceId": "WorkerRole",
        "ResourceType": "AWS::IAM::Role",
        "Replacement": "True",
        "Details": [{"Target": {"Attribute": "Properties", "Name": "Policies"}}, {"Target": {"Attribute": "Tags"}}],
    }
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def stack_on(fake: FakeCloudFormation, said: list[str] | None = None) -> AccountStack:
    clock = Clock()
    return AccountStack(
        aws_with(fake),
        "inspect-fleet",
        sleep=clock.sleep,
        clock=lambda: clock.now,
        say=(said if said is not None else []).append,
    )


def there(**more: Any) -> FakeCloudFormation:
    return FakeCloudFormation(
        status="CREATE_COMPLETE", parameters=dict(parameter_defaults()), template=template_text(), **more
    )


def test_a_stack_that_is_not_there_is_created_and_tells_what_it_makes() -> None:
    event = {"LogicalResourceId": "Bucket", "ResourceType": "AWS::S3::Bucket", "ResourceStatus": "CREATE_COMPLETE"}
    fake = FakeCloudFormation(changes=[ADD], outputs={"Bucket": "b"}, during=[event])
    said: list[str] = []
    stack = stack_on(fake, said)
    plan = stack.plan(stack.state(), {"LogDays": "30"})
    assert plan.creates
    assert [one.line() for one in plan.resources] == ["+ Bucket (AWS::S3::Bucket)"]
    assert fake.asked == ["create CREATE"]  # nothing is executed before somebody has seen it
    state = stack.carry_out(plan)
    assert (state.status, state.outputs["Bucket"], state.parameters["LogDays"]) == ("CREATE_COMPLETE", "b", "30")
    assert said == ["Bucket: create complete"]


@pytest.mark.fault("stack-fails")
def test_a_creation_that_fails_removes_itself_and_takes_in_a_bucket_that_an_earlier_stack_left() -> None:
    fake = FakeCloudFormation(changes=[ADD])
    stack_on(fake).plan(stack_on(fake).state(), {})
    (request,) = fake.sets.values()
    assert (request["OnStackFailure"], request["ImportExistingResources"]) == ("DELETE", True)
    assert request["Capabilities"] == ("CAPABILITY_NAMED_IAM",)


def test_a_stack_of_this_version_is_left_alone_without_asking_for_a_change() -> None:
    fake = there()
    stack = stack_on(fake)
    assert stack.plan(stack.state(), {}).empty
    assert fake.asked == []


def test_comments_of_the_template_change_nothing() -> None:
    fake = there()
    fake.template = "# another comment\n" + fake.template
    assert is_current(stack_on(fake).state(), {})


def test_a_parameter_that_is_not_given_keeps_its_value() -> None:
    fake = there(changes=[MODIFY])
    fake.parameters["Prefix"] = "mine"
    stack = stack_on(fake)
    plan = stack.plan(stack.state(), {"LogDays": "30"})
    sent = {one["ParameterKey"]: one["ParameterValue"] for one in fake.sets[plan.change_set]["Parameters"]}
    assert (sent["Prefix"], sent["LogDays"]) == ("mine", "30")
    assert plan.parameters == ("~ parameter LogDays: '90' becomes '30'",)
    assert plan.resources == (
        ResourceChange("Modify", "WorkerRole", "AWS::IAM::Role", properties=("Policies", "Tags"), replaced=True),
    )
    assert plan.resources[0].line() == "~ WorkerRole (AWS::IAM::Role): Policies, Tags (REPLACED)"


def test_what_somebody_deleted_is_made_again_by_reverting_drift() -> None:
    fake = there(changes=[ADD])
    stack = stack_on(fake)
    plan = stack.plan(stack.state(), {}, mend=True)
    assert fake.sets[plan.change_set]["DeploymentMode"] == "REVERT_DRIFT"


def test_a_change_set_that_changes_nothing_is_no_plan_and_does_not_stay() -> None:
    fake = there(refused=NOTHING)
    stack = stack_on(fake)
    assert stack.plan(stack.state(), {}, mend=True).empty
    assert fake.sets == {}


@pytest.mark.parametrize("status", ["", "CREATE_COMPLETE"])
def test_a_template_that_aws_refuses_leaves_nothing_behind(status: str) -> None:
    fake = there(refused="Resource type X is not recognized")
    fake.status = status
    stack = stack_on(fake)
    with pytest.raises(StackChangeFailed, match="was not changed: it failed: Resource type X is not recognized"):
        stack.plan(stack.state(), {"LogDays": "7"})
    assert fake.sets == {}
    assert fake.status == status  # a name that was reserved for the first change set is given back


def test_a_plan_that_nobody_wants_leaves_nothing_behind() -> None:
    fake = FakeCloudFormation(changes=[ADD])
    stack = stack_on(fake)
    stack.drop(stack.plan(stack.state(), {}))
    assert (fake.sets, fake.status) == ({}, "")


def test_a_name_that_somebody_else_reserved_stays_with_their_change_set() -> None:
    """Only its own change set goes, also where nobody has executed the other one yet."""
    fake = FakeCloudFormation(changes=[ADD], status="REVIEW_IN_PROGRESS")
    fake.sets["theirs"] = {}
    stack = stack_on(fake)
    stack.drop(stack.plan(stack.state(), {}))
    assert (list(fake.sets), fake.status) == (["theirs"], "REVIEW_IN_PROGRESS")


def test_a_name_on_which_somebody_else_went_on_stays() -> None:
    """While this plan waited for a yes, another one was made on the same name, or carried out."""
    fake = FakeCloudFormation(changes=[ADD])
    stack = stack_on(fake)
    plan = stack.plan(stack.state(), {})
    fake.sets["theirs"] = {}
    stack.drop(plan)
    assert (list(fake.sets), fake.status) == (["theirs"], "REVIEW_IN_PROGRESS")

    done = FakeCloudFormation(changes=[ADD])
    stack = stack_on(done)
    plan = stack.plan(stack.state(), {})
    done.status = "CREATE_IN_PROGRESS"
    stack.drop(plan)
    assert (done.sets, done.status) == ({}, "CREATE_IN_PROGRESS")


@pytest.mark.fault("stack-fails")
def test_a_failed_change_names_the_resource_that_failed_first() -> None:
    """Newest first, the events end with everything that was cancelled for it; those of the change before count no more."""

    def event(resource: str, status: str, why: str) -> dict[str, str]:
        return {
            "LogicalResourceId": resource,
            "ResourceType": "T",
            "ResourceStatus": status,
            "ResourceStatusReason": why,
        }

    fake = there(changes=[MODIFY], ends="UPDATE_ROLLBACK_COMPLETE")
    fake.events = [event("Budget", "CREATE_FAILED", "an old story")]
    fake.during = [
        event("inspect-fleet", "UPDATE_IN_PROGRESS", "User Initiated"),
        event("WorkerRole", "UPDATE_FAILED", "not authorized to perform: iam:PutRolePolicy"),
        event("Bucket", "UPDATE_FAILED", "Resource update cancelled"),
    ]
    stack = stack_on(fake)
    plan = stack.plan(stack.state(), {"LogDays": "7"})
    with pytest.raises(StackChangeFailed, match="failed at WorkerRole: not authorized to perform: iam:PutRolePolicy"):
        stack.carry_out(plan)


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        ("ROLLBACK_COMPLETE", StackStuck, "can only be deleted .`aws cloudformation delete-stack"),
        ("DELETE_FAILED", StackStuck, "can only be deleted"),
        ("UPDATE_ROLLBACK_FAILED", StackStuck, "continue-update-rollback"),
        ("UPDATE_FAILED", StackStuck, "aws cloudformation rollback-stack"),
        ("UPDATE_IN_PROGRESS", StackBusy, "wait until that is over"),
        ("UPDATE_ROLLBACK_IN_PROGRESS", StackBusy, "wait until that is over"),
    ],
)
@pytest.mark.fault("stack-fails")
def test_a_state_that_no_change_begins_from_says_what_helps(status: str, error: type[Exception], words: str) -> None:
    fake = there()
    fake.status = status
    stack = stack_on(fake)
    with pytest.raises(error, match=words) as stuck:
        stack.plan(stack.state(), {"LogDays": "7"})
    assert str(stuck.value).endswith("run `fleet setup --region us-east-1` again")
    assert fake.asked == []


def test_a_change_that_does_not_end_is_given_up() -> None:
    fake = there(changes=[MODIFY], ends="UPDATE_IN_PROGRESS")
    stack = stack_on(fake)
    plan = stack.plan(stack.state(), {"LogDays": "7"})
    with pytest.raises(StackChangeFailed, match=f"after {PATIENCE_SECONDS / 60:.0f} minutes"):
        stack.carry_out(plan)


def test_a_new_parameter_without_a_value_is_no_change() -> None:
    assert parameter_changes({"A": "1"}, {"A": "1", "B": ""}) == ()
    assert parameter_changes({"A": "1"}, {"A": "1", "B": "2"}) == ("~ parameter B: '' becomes '2'",)
