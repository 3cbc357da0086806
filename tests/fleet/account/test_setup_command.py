"""`fleet setup` in the emulated account: what it says, what it changes, and its exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from fleet.account.template import parameter_defaults, template_text
from fleet.cli.main import code_of, fleet
from fleet.local import preset
from tests.fleet.account.fake_cloudformation import FakeCloudFormation
from tests.fleet.local.conftest import Host


@pytest.fixture
def run(person: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr("fleet.cli.setup.prefect_api", lambda: None)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = code_of(fleet, ["setup", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def waiting_changes(host: Host) -> list[Any]:
    """Change sets that somebody could still execute."""
    found = host.client("cloudformation").list_change_sets(StackName="inspect-fleet")["Summaries"]
    return [one for one in found if one["ExecutionStatus"] == "AVAILABLE"]


def test_without_a_prefect_api_the_account_is_done_and_the_rest_is_said(run: Any) -> None:
    """Exit code 3: it ran, and something is still to be done."""
    code, out, err = run()
    assert code == 3
    assert (
        out == "stack inspect-fleet in us-east-1 (CREATE_COMPLETE): nothing was changed: there is nothing to change\n"
    )
    assert "no Prefect API is configured" in err


def test_the_check_names_a_missing_prefect_api(run: Any) -> None:
    code, out, _ = run("--check", "--json")
    document = json.loads(out)
    assert (code, document["well"]) == (3, False)
    assert [one["what"] for one in document["findings"] if one["status"] != "ok"] == ["Prefect API"]


def test_a_resource_that_somebody_removed_is_named_made_again_and_then_nothing_changes(run: Any, host: Host) -> None:
    host.client("ec2").delete_security_group(GroupName=preset.SECURITY_GROUP)

    def wrong() -> list[tuple[str, str, bool]]:
        findings = json.loads(run("--check", "--json")[1])["findings"]
        return [(one["what"], one["status"], bool(one["why"])) for one in findings if one["status"] != "ok"]

    group = (f"security group {preset.SECURITY_GROUP}", "missing", True)
    assert group in wrong()
    assert "+ WorkerSecurityGroup" in run("--yes")[1]
    assert group not in wrong()
    assert "nothing was changed" in run("--yes")[1]


def test_a_change_is_shown_and_waits_for_a_yes(run: Any, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal to ask at: exit code 2, and nothing is left of the change set."""
    code, out, err = run("--param", "LogDays=30")
    assert code == 2
    assert out.splitlines() == [
        "~ stack inspect-fleet",
        "  ~ parameter LogDays: '90' becomes '30'",
        "  ~ Bucket (AWS::S3::Bucket)",
    ]
    assert "pass --yes" in err
    assert waiting_changes(host) == []


def test_a_first_plan_that_nobody_wants_leaves_no_stack(run: Any, host: Host) -> None:
    code, out, _ = run("--stack", "another")
    assert (code, out.splitlines()[0]) == (2, "+ stack another")
    assert [one["StackName"] for one in host.client("cloudformation").describe_stacks()["Stacks"]] == ["inspect-fleet"]


def test_a_yes_changes_it_once(run: Any, host: Host) -> None:
    code, out, _ = run("--param", "logdays=45", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["changed"], document["status"]) == (3, True, "UPDATE_COMPLETE")
    rules = host.client("s3").get_bucket_lifecycle_configuration(Bucket=preset.BUCKET)["Rules"]
    assert [rule["Expiration"]["Days"] for rule in rules if rule["ID"] == "instance-logs"] == [45]
    code, out, _ = run("--json")  # it stays as it was said
    assert (json.loads(out)["changed"], json.loads(out)["changes"]) == (False, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--param", "LogDayz=1"], "--param LogDayz: the account's template has BucketName, Prefix"),
        (["--param", "LogDays"], "--param LogDays: write key=value"),
    ],
)
def test_a_parameter_that_is_none_is_refused_before_anything_is_asked(
    run: Any, arguments: list[str], words: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_no_credentials_are_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    code, _, err = run("--check")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "Renew the AWS credentials" in err


def test_a_stack_whose_creation_failed_is_one_line_with_the_way_out(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCloudFormation(status="ROLLBACK_COMPLETE")
    monkeypatch.setattr("fleet.aws.session.Aws.cloudformation", property(lambda _: fake))
    code, _, err = run("--yes")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "aws cloudformation delete-stack --stack-name inspect-fleet --region us-east-1" in err


def test_what_a_change_does_to_a_control_plane_that_runs_is_said_before_anybody_is_asked(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {
        "ResourceChange": {
            "Action": "Modify",
            "LogicalResourceId": "ControlPlaneTemplate",
            "ResourceType": "AWS::EC2::LaunchTemplate",
            "Details": [{"Target": {"Attribute": "Properties", "Name": "LaunchTemplateData"}}],
        }
    }
    fake = FakeCloudFormation(
        status="CREATE_COMPLETE",
        parameters=dict(parameter_defaults()) | {"ControlPlane": "running"},
        template=template_text(),
        changes=[changed],
    )
    monkeypatch.setattr("fleet.aws.session.Aws.cloudformation", property(lambda _: fake))
    monkeypatch.setattr("fleet.account.stack.POLL_SECONDS", 0.0)
    code, out, _ = run("--param", "ControlPlaneInstanceType=t3.medium")
    assert (code, "execute" in fake.asked) == (2, False)
    assert [line.partition(".")[0] for line in out.splitlines() if line.startswith("! ")] == [
        "! The control plane is replaced at once: its instance ends, and the next one serves some minutes later, at another "
        "private address",
        "! The history of runs stays: it is on a volume of its own, from which the next instance goes on",
    ]


def test_a_prefect_api_that_does_not_answer_is_one_line_and_leaves_no_change_set(
    run: Any, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.cli.setup.prefect_api", lambda: "http://127.0.0.1:9/api")
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        code, _, err = run("--param", "LogDays=77", "--yes")
    assert code == 1
    assert "doesn't answer" in err.splitlines()[-1]
    assert waiting_changes(host) == []
