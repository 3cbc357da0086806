"""The table of who lives, and what becomes of what is nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.reaper.verdict import Act, Facts, Life, Patience, decide, decide_stray, standing, unclaimed
from tests.fleet.reaper.kit import NOW, everything_of, lock, thing

PATIENCE = Patience()
AT_ONCE = Patience.of(0)


def running(**facts: Any) -> Facts:
    return Facts("RUNNING", "Running", **facts)


ROWS: dict[str, tuple[Facts, Patience, Life]] = {
    "at work, its lock held": (running(lock_over=-120.0), PATIENCE, Life.ALIVE),
    "called Crashed by Prefect, its lock held": (Facts("CRASHED", "Crashed", lock_over=-1.0), PATIENCE, Life.ALIVE),
    "unknown to Prefect, its lock held": (Facts(None, lock_over=-1.0), PATIENCE, Life.ALIVE),
    "at work, its lock expired just now": (running(lock_over=30.0), PATIENCE, Life.ALIVE),
    "the same, where a person has looked": (running(lock_over=30.0), AT_ONCE, Life.DEAD),
    "a held lock stops a person too": (running(lock_over=-30.0), AT_ONCE, Life.ALIVE),
    "killed: Running for ever, its lock expired": (running(lock_over=601.0), PATIENCE, Life.DEAD),
    "killed while it was being cancelled": (Facts("CANCELLING", "Cancelling", lock_over=700.0), PATIENCE, Life.DEAD),
    "at work, and nothing made yet": (running(quiet=60.0, made=False), PATIENCE, Life.ALIVE),
    "things without a lock: no controller has any": (running(quiet=60.0), PATIENCE, Life.DEAD),
    "the same, for a person": (running(quiet=60.0), AT_ONCE, Life.DEAD),
    "killed while it was being cancelled, its lock another's": (Facts("CANCELLING", "Cancelling"), PATIENCE, Life.DEAD),
    "begun again: preparing, its things an earlier attempt's": (running(quiet=60.0, begun=2), PATIENCE, Life.ALIVE),
    "begun again stops a person too": (running(quiet=60.0, begun=2), AT_ONCE, Life.ALIVE),
    "begun again for long, and never a lock": (running(quiet=1_801.0, begun=2), PATIENCE, Life.DEAD),
    "told to end while it planned": (Facts("CANCELLING", "Cancelling", quiet=60.0, made=False), PATIENCE, Life.ALIVE),
    "told to end long ago, and made nothing": (
        Facts("CANCELLING", "Cancelling", quiet=1_801.0, made=False),
        AT_ONCE,
        Life.DEAD,
    ),
    "waits for a person": (Facts("PAUSED", "Paused", quiet=80_000.0, lock_over=80_000.0), PATIENCE, Life.ALIVE),
    "waits for its retry": (Facts("SCHEDULED", "AwaitingRetry", lock_over=5_000.0), PATIENCE, Life.ALIVE),
    "being submitted": (Facts("PENDING", "Pending", lock_over=None), PATIENCE, Life.ALIVE),
    "completed": (Facts("COMPLETED", "Completed"), PATIENCE, Life.DEAD),
    "failed, its lock left": (Facts("FAILED", "Failed", lock_over=1_000.0), PATIENCE, Life.DEAD),
    "deleted in the UI": (Facts(None, ours=True), PATIENCE, Life.DEAD),
    "another server's": (Facts(None, ours=False), PATIENCE, Life.UNKNOWN),
    "another account's": (running(quiet=90_000.0, ours=False), PATIENCE, Life.UNKNOWN),
    "another server's stays where a person has looked": (Facts(None, ours=False), AT_ONCE, Life.UNKNOWN),
    "somebody's flow run on an instance": (running(evals=False, quiet=90_000.0), PATIENCE, Life.ALIVE),
    "the same, over": (Facts("COMPLETED", "Completed", evals=False), PATIENCE, Life.DEAD),
}


@pytest.mark.parametrize(("facts", "patience", "life"), ROWS.values(), ids=ROWS.keys())
@pytest.mark.fault("leftovers", "reaper-meets-the-living")
def test_who_lives(facts: Facts, patience: Patience, life: Life) -> None:
    found = standing(facts, patience)
    assert found.life is life
    assert found.why


DEAD = standing(Facts("CRASHED", "Crashed", lock_over=2_000.0), PATIENCE)
ALIVE = standing(Facts("RUNNING", "Running", lock_over=-1.0), PATIENCE)
UNKNOWN = standing(Facts(None, ours=False), PATIENCE)


def acts(*given: object) -> dict[str, Act]:
    return {one.thing.kind: one.act for one in decide(*given, now=NOW)}  # type: ignore[arg-type]


@pytest.mark.fault("leftovers")
def test_what_is_nobodys_is_marked_at_the_first_look_and_removed_at_a_later_one() -> None:
    first = acts(everything_of("r1"), DEAD, PATIENCE)
    assert first == {"instance": Act.MARK, "queue": Act.MARK, "parameter": Act.KEEP, "lock": Act.KEEP}
    assert set(acts(everything_of("r1", marked=NOW - 60), DEAD, PATIENCE).values()) == {Act.KEEP}
    assert set(acts(everything_of("r1", marked=NOW - 1_801), DEAD, PATIENCE).values()) == {Act.REMOVE}


def test_all_of_a_run_goes_together() -> None:
    """A work queue is never taken from under an instance that was found later, and may live."""
    later = thing("instance", "i-later", "r1")
    found = decide([*everything_of("r1", marked=NOW - 1_801), later], DEAD, PATIENCE, now=NOW)
    assert {one.act for one in found if one.thing != later} == {Act.KEEP}
    assert [one.act for one in found if one.thing == later] == [Act.MARK]


def test_a_lock_stays_that_may_say_whose_more_is() -> None:
    things = everything_of("r1", marked=NOW - 1_801)
    found = {one.thing.kind: one for one in decide(things, DEAD, PATIENCE, now=NOW, elsewhere="eu-west-1 wasn't seen")}
    assert {kind: one.act for kind, one in found.items()} == {
        "instance": Act.REMOVE,
        "queue": Act.REMOVE,
        "parameter": Act.REMOVE,
        "lock": Act.KEEP,
    }
    assert found["lock"].why.endswith("it stays: eu-west-1 wasn't seen")


def test_a_person_who_has_looked_waits_for_no_second_look() -> None:
    assert set(acts(everything_of("r1"), DEAD, AT_ONCE).values()) == {Act.REMOVE}


@pytest.mark.fault("leftovers")
def test_what_takes_no_mark_goes_by_its_age() -> None:
    assert acts([thing("parameter", "/p", born=NOW - 60)], DEAD, PATIENCE) == {"parameter": Act.KEEP}
    assert acts([thing("parameter", "/p"), lock("r1", -2_000)], DEAD, PATIENCE) == {
        "parameter": Act.REMOVE,
        "lock": Act.REMOVE,
    }


@pytest.mark.fault("reaper-meets-the-living")
def test_a_mark_is_taken_off_what_lives() -> None:
    found = acts(everything_of("r1", marked=NOW - 9_000), ALIVE, AT_ONCE)
    assert found == {"instance": Act.UNMARK, "queue": Act.UNMARK, "parameter": Act.KEEP, "lock": Act.KEEP}


def test_what_nobody_here_knows_stays_as_it_is() -> None:
    assert set(acts(everything_of("r1", marked=NOW - 9_000), UNKNOWN, AT_ONCE).values()) == {Act.KEEP}


def test_volumes_and_templates_go_by_age_and_pool() -> None:
    def act(age: float, *, ours: bool) -> Act:
        return decide_stray(thing("volume", "vol-1", born=NOW - age), PATIENCE, now=NOW, ours=ours).act

    assert act(3_601, ours=True) is Act.REMOVE
    assert act(3_599, ours=True) is Act.KEEP
    assert act(90_000, ours=False) is Act.KEEP


def test_an_instance_without_a_flow_run_gets_time_to_be_told_its_own() -> None:
    def life(age: float, *, ours: bool) -> Life:
        return unclaimed(thing("instance", "i-1", "", born=NOW - age), AT_ONCE, now=NOW, ours=ours).life

    assert life(5, ours=True) is Life.ALIVE
    assert life(1_801, ours=True) is Life.DEAD
    assert life(1_801, ours=False) is Life.UNKNOWN
