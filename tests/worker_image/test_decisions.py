"""What is decided of a build from what is seen of it: pure, so in tables."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker_image.amis import OwnImage, tag_text
from worker_image.builder import ABSENT_SECONDS, USER_DATA_BYTES, UserDataTooLarge, user_data, verdict
from worker_image.canary import CanaryReport, read_report, silent_end
from worker_image.debris import is_stale, stale_images
from worker_image.failures import BuildFailed, CanaryFailed
from worker_image.machines import Machine, MachineOrder, run_arguments
from worker_image.names import BUILD_TAG, RECIPE_TAG, STATE_TAG, BuildNames
from worker_image.publish import KEEP, Pointer, to_drop, unchanged
from worker_image.recipe import Recipe
from worker_image.report import BuildReport, rows

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GOOD, BAD = '{"code": 0}', '{"code": 7}'


@pytest.mark.parametrize(
    ("state", "report", "seconds", "says"),
    [
        ("pending", "", 1, None),
        ("running", "", 500, None),
        ("running", GOOD, 500, None),  # baked, not yet stopped
        ("stopping", GOOD, 500, None),
        ("stopped", GOOD, 500, ""),
        ("running", BAD, 500, "exit code 7"),
        ("stopped", BAD, 500, "exit code 7"),
        ("stopped", "", 500, "without a report"),
        ("stopped", '{"code": ', 500, "without a report"),
        ("stopped", "[]", 500, "without a report"),
        ("terminated", "", 500, "was terminated"),
        ("terminated", GOOD, 500, "was terminated"),  # its disk is gone with it
        ("shutting-down", GOOD, 500, "was terminated"),
        ("absent", "", 5, None),
        ("absent", "", ABSENT_SECONDS + 1, "doesn't know"),
    ],
)
def test_what_a_builder_shows_means(state: str, report: str, seconds: float, says: str | None) -> None:
    found = verdict(Machine("i-1", state), report, seconds)
    assert found == says if not says else says in (found or "")


@pytest.mark.parametrize(
    ("state", "seconds", "says"),
    [
        ("pending", 1, ""),
        ("running", 600, ""),
        ("terminated", 60, "without a report"),
        ("stopped", 60, "without a report"),
        ("absent", 5, ""),
        ("absent", ABSENT_SECONDS + 1, "doesn't know"),
    ],
)
def test_a_canary_that_ends_without_a_word_is_no_pass(state: str, seconds: float, says: str) -> None:
    found = silent_end(Machine("i-1", state), seconds)
    assert (says in found) if says else found == ""


def test_a_canarys_report_is_read_and_what_isnt_one_is_no_pass() -> None:
    text = json.dumps(
        {
            "checks": [
                {"name": "docker", "passed": False, "detail": "no"},
                {"name": "uv", "passed": True, "detail": "0.9"},
            ]
        }
    )
    assert read_report(text) == CanaryReport(passed=("uv: 0.9",), failed=("docker: no",))
    for other in ("", "{}", '{"checks": []}', "[1]", '{"checks": [{"name": "x"}]}'):
        with pytest.raises(ValueError, match=r".*"):
            read_report(other)


def image(
    number: int, role: str = "published", *, build: str = "b", state: str = "available", recipe: str = ""
) -> OwnImage:
    tags = {STATE_TAG: role, RECIPE_TAG: recipe} | ({BUILD_TAG: build} if build else {})
    created = (NOW + timedelta(hours=number)).isoformat()
    return OwnImage(f"ami-{number}", f"n-{number}", state, "x86_64", created, (f"snap-{number}",), tags)


def test_the_last_images_stay_and_older_ones_go() -> None:
    images = [image(number) for number in range(KEEP + 2)]
    assert [one.id for one in to_drop(images, pointed=(), used=())] == ["ami-1", "ami-0"]


def test_the_image_that_is_named_or_in_use_stays_however_old() -> None:
    images = [image(number) for number in range(KEEP + 3)]
    assert [one.id for one in to_drop(images, pointed={"ami-0"}, used={"ami-2"})] == ["ami-1"]


@given(
    roles=st.lists(st.tuples(st.sampled_from(["published", "candidate", "rejected", ""]), st.booleans()), max_size=12),
    pointed=st.sets(st.integers(0, 12)),
    used=st.sets(st.integers(0, 12)),
)
def test_nothing_is_dropped_that_isnt_ours_or_is_needed(
    roles: list[tuple[str, bool]], pointed: set[int], used: set[int]
) -> None:
    """Whatever there is: at least KEEP published ones stay, and what goes is ours, published, not named and not in use."""
    images = [image(number, role, build="b" if ours else "") for number, (role, ours) in enumerate(roles)]
    gone = to_drop(images, {f"ami-{one}" for one in pointed}, {f"ami-{one}" for one in used})
    ours = [one for one in images if one.role == "published" and one.build]
    assert len(ours) - len(gone) >= min(KEEP, len(ours))
    assert all(one in ours for one in gone)
    assert not {one.id for one in gone} & ({f"ami-{n}" for n in pointed} | {f"ami-{n}" for n in used})
    newest = sorted(ours, key=lambda one: one.created)[-KEEP:]
    assert not {one.id for one in gone} & {one.id for one in newest}


def test_only_what_is_older_than_any_build_is_swept() -> None:
    oldest = NOW
    images = [
        image(-1, "candidate"),
        image(-2, "rejected"),
        image(-3, "published"),
        image(-4, "candidate", build=""),
        image(-5, "candidate"),
        image(1, "candidate"),
    ]
    assert [one.id for one in stale_images(images, {"ami--5"}, oldest)] == ["ami--1", "ami--2"]
    assert is_stale(Machine("i-1", "running", launched=NOW - timedelta(seconds=1)), oldest)
    assert not is_stale(Machine("i-1", "running", launched=NOW + timedelta(seconds=1)), oldest)
    assert not is_stale(Machine("i-1", "running"), oldest)


def test_an_image_is_up_to_date_if_the_parameter_names_it_and_its_recipe_is_the_same() -> None:
    images = [image(1, recipe="r1"), image(2, recipe="r2"), image(3, recipe="r3", state="failed")]
    assert unchanged(images, Pointer("/p", "ami-2"), "r2") == images[1]
    assert unchanged(images, Pointer("/p", "ami-1"), "r2") is None  # someone went back to an older one
    assert unchanged(images, Pointer("/p", "ami-3"), "r3") is None
    assert unchanged(images, Pointer("/p", ""), "r2") is None


def test_a_list_shows_what_an_image_is_and_what_names_it() -> None:
    found = rows([image(2), image(1, "rejected"), image(3, state="pending"), image(4, "")], [Pointer("/p", "ami-2")])
    assert [(row.id, row.state, row.pointer) for row in found] == [
        ("ami-2", "published", "/p"),
        ("ami-1", "rejected", ""),
        ("ami-3", "pending", ""),
        ("ami-4", "available", ""),
    ]


@given(st.text(max_size=400))
def test_a_reason_becomes_a_tag_that_ec2_takes(text: str) -> None:
    found = tag_text(text)
    assert len(found) <= 256
    assert all(sign.isalnum() or sign in " _.:/=+-@" for sign in found)


def names() -> BuildNames:
    return BuildNames(recipe=Recipe(), base="ami-base", owner="me", prefix="p", id="20260102-030405-abcdef")


class Place:
    """What `user_data` asks of a place."""

    class objects:  # noqa: N801
        class aws:  # noqa: N801
            region = "eu-west-1"

        @staticmethod
        def uri(key: str) -> str:
            return f"s3://{'b' * 63}/{key}"


def test_the_builders_script_fits_and_holds_addresses_only() -> None:
    script = user_data(names(), bundle=f"s3://{'b' * 63}/p/artifacts/{'0' * 64}", sha256="0" * 64, place=Place())  # type: ignore[arg-type]
    assert len(script.encode()) < USER_DATA_BYTES / 2
    assert "#: " not in script
    with pytest.raises(UserDataTooLarge, match="16,384"):
        user_data(names(), bundle="s3://" + "b" * USER_DATA_BYTES, sha256="0", place=Place())  # type: ignore[arg-type]


class RunPlace:
    instance_profile = "inspect-fleet-worker"


@pytest.mark.parametrize(("stops", "behaviour"), [(True, "stop"), (False, "terminate")])
def test_an_instance_of_a_build_lets_nothing_in_and_is_tagged_from_the_first_moment(
    stops: bool, behaviour: str
) -> None:
    order = MachineOrder(names(), "builder", "ami-1", "/dev/sda1", user_data="#!/bin/sh", stops=stops)
    found = run_arguments(order, RunPlace(), "c7i.xlarge", "subnet-1", ["sg-1"])  # type: ignore[arg-type]
    assert found["InstanceInitiatedShutdownBehavior"] == behaviour
    assert found["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "HttpEndpoint": "enabled",
    }
    assert found["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert {one["ResourceType"] for one in found["TagSpecifications"]} == {"instance", "volume"}
    assert all({"Key": BUILD_TAG, "Value": names().id} in one["Tags"] for one in found["TagSpecifications"])
    assert len(found["ClientToken"]) <= 64
    assert found["SecurityGroupIds"] == ["sg-1"]
    other = run_arguments(order, RunPlace(), "m7i.xlarge", "subnet-1", ["sg-1"])  # type: ignore[arg-type]
    assert other["ClientToken"] != found["ClientToken"]


def test_failures_say_themselves_in_a_line_and_survive_a_journey() -> None:
    for failure in (
        BuildFailed(build="b", why="exit code 3", log="s3://b/log", tail="one\ntwo"),
        BuildFailed(build="b", why="no word", log="", tail=""),
        CanaryFailed(image="ami-1", why="docker: no", log="s3://b/canary.json"),
    ):
        assert "\n" not in str(failure)
        assert str(pickle.loads(pickle.dumps(failure))) == str(failure)  # noqa: S301


def test_a_report_says_what_is_named_now_and_what_was_before() -> None:
    report = BuildReport(
        outcome="built",
        image="ami-2",
        architecture="x86_64",
        region="eu-west-1",
        recipe="r",
        base="ami-base",
        parameter="/p",
        previous="ami-1",
        builder="a builder instance",
        checks=("uv: 0.9",),
        removed=("ami-0",),
        minutes=12.0,
    )
    assert report.line() == (
        "ami-2 passed its 1 checks and is published: /p in eu-west-1 names it, before ami-1 (12 min by a builder instance); "
        "removed ami-0"
    )
    assert "| before | `ami-1` |" in report.markdown()
    assert "--force" in report.model_copy(update={"outcome": "unchanged"}).line()
