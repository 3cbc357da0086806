"""The end of a hunt, whatever ends it: nothing is left but what the members have, and each has heard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

import fleet.aws.hunt
from fleet.aws.capacity import Refusal
from fleet.aws.hunt import LOOK_AGAIN_S, Hunt, LaunchStopped, Member, Pace
from fleet.aws.instances import Answer, LaunchOrder, TerminationRefused
from fleet.aws.search import Ask
from tests.fleet.aws.ec2 import BAD, BUG, DRY, LOST, ORDER, SLOW, Clock, FakeEc2, refused
from tests.fleet.aws.hunting import A1, A2, PLACES, hunt, members, nothing_else_is_left

# Cancellation, at each step


def cancelled_at(step: str, ec2: FakeEc2, waiting: list[Member], *, how: str) -> None:
    """Hunt, and cancel the hunt (or let a member go) while EC2 works on `step`."""
    there, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        there.set()
        assert go_on.wait(10)

    if step == "ask":
        ec2.before_answer = hold
    else:
        ec2.before_tag = hold

    async def go() -> None:
        clock = Clock()
        hunting = Hunt(ec2, ORDER, PLACES, waiting, clock=clock, sleep=clock.sleep, draw=lambda: 0.0)

        async def strike(strike_it: Callable[[], object]) -> None:
            while not there.is_set():  # noqa: ASYNC110  a thread sets it
                await anyio.sleep(0.001)
            strike_it()
            go_on.set()

        if how == "task":
            task = asyncio.create_task(hunting.run())
            await strike(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            return
        async with anyio.create_task_group() as group:
            group.start_soon(hunting.run)
            await strike(group.cancel_scope.cancel if how == "scope" else lambda: setattr(waiting[0], "gone", True))

    anyio.run(go)


@pytest.mark.parametrize("how", ["scope", "task"])
@pytest.mark.parametrize("step", ["ask", "tag"])
@pytest.mark.fault("launch-error")
def test_a_hunt_that_is_cancelled_while_ec2_answers_hands_over_or_ends_what_it_launched(step: str, how: str) -> None:
    """A bare cancelled task loses what its thread returns; it must be gone all the same."""
    ec2, waiting = FakeEc2(unseen=1), members(3)
    cancelled_at(step, ec2, waiting, how=how)
    assert len(ec2.asks) == 1
    assert any(isinstance(member.error, LaunchStopped) for member in waiting)
    nothing_else_is_left(ec2, waiting)


@pytest.mark.parametrize("step", ["ask", "tag"])
@pytest.mark.fault("launch-error")
def test_a_member_that_goes_while_its_instance_is_launched_loses_only_its_own(step: str) -> None:
    ec2, waiting = FakeEc2(), members(3)
    cancelled_at(step, ec2, waiting, how="member")
    assert waiting[0].instance is None
    assert all(member.instance is not None for member in waiting[1:])
    assert len(ec2.terminated) == 1
    nothing_else_is_left(ec2, waiting)


def test_nobody_is_left_who_waits_so_that_nothing_is_asked() -> None:
    ec2, waiting = FakeEc2(), members(2)
    for member in waiting:
        member.gone = True
    hunt(ec2, waiting)
    assert ec2.asks == []


@pytest.mark.fault("launch-error")
def test_what_cannot_be_terminated_does_not_hide_why_the_launch_failed(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(FakeEc2):
        def terminate(self, ids: Sequence[str]) -> frozenset[str]:
            raise refused(BAD)

    ec2, waiting = Stubborn([BUG]), members(1)
    hunt(ec2, waiting)
    assert isinstance(waiting[0].error, KeyError)
    assert f"instances left running: {next(iter(ec2.running))}" in caplog.text


@pytest.mark.parametrize("code", [SLOW, LOST, BAD])
@pytest.mark.fault("launch-error")
def test_ending_what_nobody_took_is_tried_again_when_ec2_is_busy_or_lacks_its_tags_yet(code: str) -> None:
    class Busy(FakeEc2):
        left = 2

        def terminate(self, ids: Sequence[str]) -> frozenset[str]:
            self.left -= 1
            if self.left >= 0:
                raise refused(code)
            return super().terminate(ids)

    ec2, waiting = Busy([BUG]), members(2)
    hunt(ec2, waiting)
    nothing_else_is_left(ec2, waiting)


@pytest.mark.fault("launch-error")
def test_instances_of_a_lost_answer_that_ec2_describes_late_are_looked_for_again() -> None:
    ec2, waiting = FakeEc2([LOST], late=1), members(2)
    clock = hunt(ec2, waiting)
    assert LOOK_AGAIN_S in clock.waited
    nothing_else_is_left(ec2, waiting)


def test_a_place_of_a_fleet_that_ec2_failed_at_may_have_an_instance_all_the_same() -> None:
    class Failing(FakeEc2):
        def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
            answer = super().ask(order, ask)
            if not ask.together:
                return answer
            return Answer((), (Refusal(A1, "InternalError", ""), Refusal(A2, DRY, "")))

    ec2, waiting = Failing(), members(2)
    hunt(ec2, waiting)
    assert all(member.instance is not None for member in waiting)
    nothing_else_is_left(ec2, waiting)


@pytest.mark.parametrize("step", ["find", "terminate", "close"])
@pytest.mark.fault("launch-error")
def test_a_bug_while_cleaning_up_keeps_nobody_waiting_and_no_other_step_from_its_turn(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Any:
        ec2.closed += step == "close"
        raise KeyError("a bug")

    ec2, waiting = FakeEc2([BUG]), members(2)
    setattr(ec2, step, broken)
    hunt(ec2, waiting)
    assert [type(member.error) for member in waiting] == [KeyError] * 2
    assert "cleaning up after the launch group-1 failed: instances may be left" in caplog.text
    assert ec2.closed == 1
    assert bool(ec2.running) == (step != "close")


@pytest.mark.fault("throttled")
def test_a_throttled_place_slows_all_launches_down() -> None:
    clock = Clock()
    pace = Pace(clock=clock, sleep=clock.sleep)
    ec2, waiting = FakeEc2(place_answers=[{A2: SLOW}], room={A1: 0, A2: 0}), members(1)
    before = pace.launches.rate
    anyio.run(Hunt(ec2, ORDER, [A1, A2], waiting, pace=pace, clock=clock, sleep=clock.sleep, draw=lambda: 0.5).run)
    assert pace.launches.rate < before


@pytest.mark.fault("launch-error")
def test_one_instance_that_may_not_be_ended_keeps_no_other_running(caplog: pytest.LogCaptureFixture) -> None:
    class Kept(FakeEc2):
        def terminate(self, ids: Sequence[str]) -> frozenset[str]:
            kept = min(self.running)
            unknown = super().terminate([each for each in ids if each != kept])
            if kept in ids:
                facts = {**vars(refused(BAD)), "codes": {kept: BAD}, "unknown": unknown}
                raise TerminationRefused(**facts)
            return unknown

    ec2, waiting = Kept([BUG], unseen=1), members(3)
    hunt(ec2, waiting)
    assert len(ec2.running) == 1
    assert len(ec2.terminated) == 2
    assert f"instances left running: {next(iter(ec2.running))}: " in caplog.text


def test_each_of_several_that_were_refused_is_tried_again_for_its_own_reason(caplog: pytest.LogCaptureFixture) -> None:
    """One is protected for good, and EC2 names that first; another's call was only throttled."""

    class Mixed(FakeEc2):
        codes: Mapping[str, str]

        def terminate(self, ids: Sequence[str]) -> frozenset[str]:
            if not self.terminated:
                protected, throttled, *others = sorted(self.running)
                self.codes = {protected: "OperationNotPermitted", throttled: SLOW}
                super().terminate(others)
            else:
                super().terminate([each for each in ids if self.codes.get(each) == SLOW])
            if codes := {each: self.codes[each] for each in ids if each in self.running}:
                raise TerminationRefused(
                    **vars(refused("OperationNotPermitted")), codes=codes, unknown=frozenset[str]()
                )
            return frozenset()

    ec2, waiting = Mixed([BUG]), members(3)
    hunt(ec2, waiting)
    assert len(ec2.terminated) == 2
    (kept,) = ec2.running
    lines = [line for line in caplog.messages if line.startswith("instances left running: ")]
    assert all(line.startswith(f"instances left running: {kept}: ") for line in lines)
    assert lines


@pytest.mark.parametrize("step", ["terminate", "find", "close"])
def test_a_call_that_hangs_keeps_nobody_waiting_beyond_the_deadline(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def hang(*_: object) -> Any:
        assert go_on.wait(10)
        return frozenset() if step == "terminate" else []

    ec2, waiting = FakeEc2([BUG]), members(2)
    setattr(ec2, step, hang)
    monkeypatch.setattr(fleet.aws.hunt, "CLEAN_UP_S", 0.01)

    async def go() -> None:
        clock = Clock()
        await Hunt(ec2, ORDER, PLACES, waiting, clock=clock, sleep=clock.sleep, draw=lambda: 0.0).run()
        assert not go_on.is_set()
        go_on.set()

    anyio.run(go)
    assert [type(member.error) for member in waiting] == [KeyError] * 2
    assert "cleaning up after the launch group-1 took too long: instances may be left" in caplog.text


def test_a_template_that_cannot_be_removed_is_said_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Kept(FakeEc2):
        def close(self) -> None:
            self.closed += 1
            raise refused(BAD)

    ec2, waiting = Kept(), members(1)
    hunt(ec2, waiting)
    assert "a launch template is left" in caplog.text
    nothing_else_is_left(ec2, waiting)
