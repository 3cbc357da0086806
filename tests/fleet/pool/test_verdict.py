"""The rules of the watch, as a table."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest

from fleet.aws.instances import Instance
from fleet.pool.verdict import (
    OVER,
    WATCH,
    Limits,
    RunPhase,
    Settle,
    Sight,
    Verdict,
    departure,
    run_phase,
    verdict,
)

LIMITS = Limits(boot=900, grace=30, missing=60, submit=300)


def an_instance(state: str = "running", code: str = "", reason: str = "") -> Instance:
    launched = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    return Instance("i-1", "us-east-1", state, "c7i.large", "spot", launched, {}, code, reason)


UP, GONE = an_instance(), an_instance("terminated", "Client.UserInitiatedShutdown")


@dataclass(frozen=True)
class Row:
    name: str
    instance: Instance | None
    phase: RunPhase
    terminate: bool = False
    settle: Settle | None = None
    over: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: {"age": 10.0})
    superseded: bool = False
    settled: Settle | None = None


CRASHED, CANCELLED = Settle.CRASHED, Settle.CANCELLED
ROWS = [
    Row("booting", UP, RunPhase.PENDING),
    Row("not yet told to Prefect", UP, RunPhase.SUBMITTING),
    Row("at work", UP, RunPhase.ACTIVE, seconds={"age": 1e6}),
    Row("cancelling: terminated at once, and Cancelled", UP, RunPhase.CANCELLING, terminate=True, settle=CANCELLED),
    Row("cancelling, not yet described: terminated all the same", None, RunPhase.CANCELLING, True, CANCELLED),
    Row("cancelling, and going", an_instance("shutting-down"), RunPhase.CANCELLING, settle=CANCELLED),
    Row("cancelling, and gone", GONE, RunPhase.CANCELLING, settle=CANCELLED, over=True),
    Row("cancelled, and going", an_instance("shutting-down"), RunPhase.CANCELLED),
    Row("crashed, and going", an_instance("shutting-down"), RunPhase.CRASHED),
    Row("cancelled", UP, RunPhase.CANCELLED, terminate=True),
    Row("final, within its grace", UP, RunPhase.FINAL, seconds={"age": 99, "over_for": 29.0}),
    Row("final, past its grace", UP, RunPhase.FINAL, terminate=True, seconds={"age": 99, "over_for": 30.0}),
    Row("suspended, past its grace", UP, RunPhase.RELEASED, terminate=True, seconds={"age": 99, "over_for": 30.0}),
    Row("its flow run is deleted", UP, RunPhase.DELETED, terminate=True),
    Row("no boot in time", UP, RunPhase.PENDING, terminate=True, settle=CRASHED, seconds={"age": 901}),
    Row("never told to Prefect", UP, RunPhase.SUBMITTING, terminate=True, settle=CRASHED, seconds={"age": 901}),
    Row("stopped from outside", an_instance("stopped"), RunPhase.ACTIVE, terminate=True, settle=CRASHED),
    Row("stopped, with nothing left to do", an_instance("stopped"), RunPhase.FINAL),
    Row("a later launch works for its flow run", UP, RunPhase.ACTIVE, terminate=True, superseded=True),
    Row("gone, and the flow run is final", GONE, RunPhase.FINAL, over=True),
    Row("taken away, and its engine crashed of it", GONE, RunPhase.CRASHED, settle=CRASHED, over=True),
    Row(
        "crashed, and powered itself off",
        an_instance("terminated", "Client.InstanceInitiatedShutdown"),
        RunPhase.CRASHED,
        over=True,
    ),
    Row("crashed, and terminated by us", GONE, RunPhase.CRASHED, over=True, seconds={"age": 99, "over_for": 31.0}),
    Row("crashed, within its grace", UP, RunPhase.CRASHED, seconds={"age": 99, "over_for": 29.0}),
    Row("gone, and the flow run is suspended", GONE, RunPhase.RELEASED, over=True),
    Row("gone, and cancelled", GONE, RunPhase.CANCELLED, over=True),
    Row("gone, and the flow run is deleted", GONE, RunPhase.DELETED, over=True),
    Row("gone at work", GONE, RunPhase.ACTIVE, settle=CRASHED, over=True),
    Row("going at work", an_instance("shutting-down"), RunPhase.ACTIVE, settle=CRASHED),
    Row("its engine called a cancel a crash", GONE, RunPhase.CRASHED, settle=CANCELLED, over=True, settled=CANCELLED),
    Row("its engine forgot why it crashed", GONE, RunPhase.CRASHED, settle=CRASHED, over=True, settled=CRASHED),
    Row("gone while it booted", GONE, RunPhase.PENDING, settle=CRASHED, over=True),
    Row("gone, while another attempt is submitted", GONE, RunPhase.SUBMITTING),
    Row("gone, and nobody submits", GONE, RunPhase.SUBMITTING, settle=CRASHED, over=True, seconds={"age": 301}),
    Row("gone, superseded", GONE, RunPhase.ACTIVE, over=True, superseded=True),
    Row("not described yet", None, RunPhase.PENDING, seconds={"age": 5, "missing_for": 5}),
    Row("not described at work", None, RunPhase.ACTIVE, seconds={"age": 5e3, "missing_for": 59}),
    Row("not described for long", None, RunPhase.ACTIVE, False, CRASHED, True, {"age": 5e3, "missing_for": 60}),
    Row("not described for long, and final", None, RunPhase.FINAL, over=True, seconds={"age": 5e3, "missing_for": 60}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_two_end_together(row: Row) -> None:
    sight = Sight(
        row.instance,
        row.phase,
        superseded=row.superseded,
        asked="",
        settled=row.settled,
        settled_why="for a reason" if row.settled else "",
        **row.seconds,
    )
    found = verdict(sight, LIMITS)
    assert (found.terminate, found.settle, found.over) == (row.terminate, row.settle, row.over)
    assert bool(found.why) == (found not in (WATCH, OVER))


@pytest.mark.parametrize("instance", [UP, GONE])
def test_whoever_cancelled_keeps_the_word(instance: Instance) -> None:
    assert verdict(Sight(instance, RunPhase.CANCELLING, age=1, asked="no budget"), LIMITS).why.startswith(
        "cancelled (no budget); "
    )
    assert verdict(Sight(instance, RunPhase.CANCELLING, age=1), LIMITS).why.startswith("cancelled; ")


@pytest.mark.fault("boot-fails")
def test_a_missed_boot_says_its_deadline() -> None:
    found = verdict(Sight(UP, RunPhase.PENDING, age=1000), LIMITS)
    assert found.why.startswith("no boot within 900 s")


@pytest.mark.parametrize("phase", RunPhase)
def test_an_instance_that_is_gone_is_never_terminated_again(phase: RunPhase) -> None:
    assert not verdict(Sight(GONE, phase, age=1e6, over_for=1e6), LIMITS).terminate


@pytest.mark.parametrize("phase", RunPhase)
def test_an_instance_that_is_there_is_never_let_go(phase: RunPhase) -> None:
    assert not verdict(Sight(UP, phase, age=1e6, over_for=1e6), LIMITS).over


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (GONE, "it was terminated from outside (Client.UserInitiatedShutdown)"),
        (
            an_instance("terminated", "Server.SpotInstanceTermination", "Spot instance termination"),
            "EC2 took the spot capacity back (Spot instance termination)",
        ),
        (an_instance("terminated", "Client.InstanceInitiatedShutdown", "x"), "it powered itself off before"),
        (an_instance("terminated", "Server.New", "Something new"), "the instance is gone: Something new"),
        (an_instance("terminated"), "EC2 gave no reason"),
        (None, "EC2 doesn't know it any more"),
    ],
)
@pytest.mark.fault("instance-dies")
def test_the_reason_of_a_loss_is_said_in_words_and_in_ec2s_own(instance: Instance | None, words: str) -> None:
    assert words in departure(instance)


@pytest.mark.parametrize(
    ("code", "interrupted"),
    [
        ("Server.SpotInstanceTermination", True),
        ("Server.InternalError", True),
        ("Client.UserInitiatedShutdown", False),
        ("Client.InstanceInitiatedShutdown", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("phase", [RunPhase.PENDING, RunPhase.ACTIVE, RunPhase.CRASHED])
def test_what_ec2_itself_took_is_told_from_other_losses(code: str, interrupted: bool, phase: RunPhase) -> None:
    found = verdict(Sight(an_instance("terminated", code), phase, age=1), LIMITS)
    assert found.interrupted == interrupted


@pytest.mark.parametrize(
    ("kind", "name", "more", "phase"),
    [
        (None, "", {}, RunPhase.SUBMITTING),
        ("PENDING", "Pending", {}, RunPhase.SUBMITTING),
        ("PENDING", "Submitting", {}, RunPhase.SUBMITTING),
        ("PENDING", "InfrastructurePending", {}, RunPhase.PENDING),
        ("RUNNING", "Retrying", {}, RunPhase.ACTIVE),
        ("SCHEDULED", "Late", {"rescheduled": True}, RunPhase.RELEASED),
        ("SCHEDULED", "AwaitingRetry", {"rescheduled": False}, RunPhase.ACTIVE),
        ("SCHEDULED", "AwaitingRetry", {"rescheduled": True}, RunPhase.RELEASED),
        ("PAUSED", "Paused", {}, RunPhase.ACTIVE),
        ("PAUSED", "Suspended", {"suspended": True}, RunPhase.RELEASED),
        ("CANCELLING", "Cancelling", {}, RunPhase.CANCELLING),
        ("CANCELLED", "Cancelled", {}, RunPhase.CANCELLED),
        ("COMPLETED", "CompletedWithErrors", {}, RunPhase.FINAL),
        ("FAILED", "Failed", {}, RunPhase.FINAL),
        ("CRASHED", "Crashed", {}, RunPhase.CRASHED),
        ("A_TYPE_OF_NEXT_YEAR", "", {}, RunPhase.ACTIVE),
    ],
)
def test_phases_of_flow_runs(kind: str | None, name: str, more: dict[str, bool], phase: RunPhase) -> None:
    assert run_phase(kind, name, **{"rescheduled": False, "suspended": False, **more}) is phase


def test_doing_nothing_is_the_default() -> None:
    assert Verdict() == WATCH
