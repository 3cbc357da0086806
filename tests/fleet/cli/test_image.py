"""`fleet image`, without Prefect or AWS: what it prints and its exit codes. Whole builds: tests/worker_image, tests/docker."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from blocks.account import AccountUnknown
from fleet.aws import images
from fleet.aws.images import AmiParameterMissing, WorkerImage
from fleet.cli import image as command
from fleet.cli.main import code_of, fleet
from worker_image import publish
from worker_image.amis import Amis, OwnImage
from worker_image.names import BUILD_TAG, STATE_TAG
from worker_image.publish import Pointer

FOUND = WorkerImage(
    "ami-2", "ami-2 (from /inspect-fleet/worker-image)", "x86_64", "eu-west-1", contract=1, version="0.1.0"
)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block whose AWS side is nobody."""
    site = SimpleNamespace(
        aws=SimpleNamespace(region="eu-west-1", ec2=None), objects=None, prefix="p", region="eu-west-1"
    )
    home = SimpleNamespace(
        site=lambda region: site, image_parameter="/inspect-fleet/worker-image", instance_profile="w"
    )
    monkeypatch.setattr(command, "the_account", lambda name: home)


def own(number: int) -> OwnImage:
    tags = {BUILD_TAG: "b", STATE_TAG: "published", "inspect-fleet:version": "0.1.0", "inspect-fleet:contract": "1"}
    return OwnImage(f"ami-{number}", "n", "available", "x86_64", f"2026-01-0{number}", ("snap",), tags)


def listed(monkeypatch: pytest.MonkeyPatch, *images: OwnImage) -> None:
    monkeypatch.setattr(Amis, "own", lambda self: list(images))
    names = {"x86_64": Pointer("/inspect-fleet/worker-image", "ami-2"), "arm64": Pointer("/…-arm64", "")}
    monkeypatch.setattr(publish, "read_pointer", lambda place, architecture: names[architecture])


def test_a_list_shows_each_image_whole_and_which_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed(monkeypatch, own(2), own(1))
    assert code_of(fleet, ["image", "list"]) == 0
    head, second, first = capsys.readouterr().out.splitlines()
    assert head.split() == ["image", "version", "contract", "architecture", "created", "state", "named", "by"]
    assert second.split() == ["ami-2", "0.1.0", "1", "x86_64", "2026-01-02", "published", "/inspect-fleet/worker-image"]
    assert first.split() == ["ami-1", "0.1.0", "1", "x86_64", "2026-01-01", "published"]


def test_an_empty_list_names_the_command_that_builds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed(monkeypatch)
    assert code_of(fleet, ["image", "list"]) == 0
    assert "fleet image build --region eu-west-1" in capsys.readouterr().out
    assert code_of(fleet, ["image", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_check_says_what_fleets_boot_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def found(aws: object, **what: Any) -> WorkerImage:
        asked.append(what)
        return FOUND

    monkeypatch.setattr(images, "check_image", found)
    assert code_of(fleet, ["image", "check", "--instance-type", "g6.xlarge"]) == 0
    assert capsys.readouterr().out == f"{FOUND.line()}\n"
    assert asked[0]["requested"] is None
    assert asked[0]["instance_types"] == ("g6.xlarge",)
    assert code_of(fleet, ["image", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "ami-2"


def test_a_check_that_finds_no_image_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(aws: object, **_: object) -> WorkerImage:
        raise AmiParameterMissing(parameter="/p", ami="", region="eu-west-1", why="the parameter doesn't exist")

    monkeypatch.setattr(images, "check_image", absent)
    assert code_of(fleet, ["image", "check"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_account_that_prefect_doesnt_know_is_one_line_with_the_command_that_makes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(name: str) -> Any:
        raise AccountUnknown(account=name, why="Unable to find block document")

    monkeypatch.setattr(command, "the_account", unknown)
    assert code_of(fleet, ["image", "list", "--account", "other"]) == 2
    assert "no Fleet Account block 'other'" in (told := capsys.readouterr().err)
    assert "fleet setup" in told
    assert "PREFECT_API_URL" in told  # without it, setup makes no block


def test_what_isnt_an_architecture_or_a_builder_is_a_usage_error() -> None:
    assert code_of(fleet, ["image", "build", "--architecture", "sparc"]) == 2
    assert code_of(fleet, ["image", "build", "--builder", "hand"]) == 2
