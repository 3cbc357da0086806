"""Reaping an account in memory: the order, what is left, and what is never touched."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.reaper.ownership import survey
from fleet.reaper.removal import Outcome, Reaper
from fleet.reaper.things import Thing
from fleet.reaper.verdict import FINAL, Patience
from tests.fleet.reaper.kit import NOW, POOL, Account, Clock, Server, everything_of, known, lock, thing


def reap(account: Account, server: Server, *, grace: float = 0.0, clock: Clock | None = None) -> list[Outcome]:
    clock = clock or Clock()
    patience = Patience.of(grace)
    found = survey(account.look(), server, patience, now=clock())
    return Reaper(account, server, patience, now=clock, clock=clock, sleep=clock.sleep).carry_out(found)


def done(outcomes: list[Outcome]) -> dict[str, str]:
    return {one.decision.thing.id: one.done for one in outcomes}


@pytest.mark.fault("leftovers")
def test_what_a_killed_controller_left_is_gone_in_the_order_of_a_clean_up() -> None:
    account = Account.of(everything_of("r1"))
    server = Server.with_states(r1="RUNNING")
    assert set(done(reap(account, server)).values()) == {"removed"}
    assert account.things == {}
    assert [one.rsplit("-", 1)[-1] for one in account.touched] == [
        "work",
        "r1",  # the parameter
        "r1",  # the instance
        "events",
        "dead",
        "p/evals/r1/lock.json",
    ]
    assert (server.ended, server.settled) == (["r1"], ["r1"])


@pytest.mark.fault("leftovers")
def test_it_takes_two_looks() -> None:
    account, server, clock = Account.of(everything_of("r1")), Server.with_states(r1="RUNNING"), Clock()
    first = done(reap(account, server, grace=1_800, clock=clock))
    assert sorted(first.values()) == ["kept", "kept", "marked", "marked", "marked", "marked"]
    clock.sleep(1_700)
    assert set(done(reap(account, server, grace=1_800, clock=clock)).values()) == {"kept"}
    clock.sleep(200)
    assert set(done(reap(account, server, grace=1_800, clock=clock)).values()) == {"removed"}
    assert account.things == {}


@pytest.mark.fault("leftovers")
def test_doing_it_again_finds_nothing() -> None:
    account, server = Account.of(everything_of("r1")), Server.with_states(r1="CRASHED")
    reap(account, server)
    assert reap(account, server) == []


def test_two_at_a_time_end_alike() -> None:
    """Both have looked before either acts: the second finds each thing gone, which is what it wants."""
    account, server, clock = Account.of(everything_of("r1")), Server.with_states(r1="CRASHED"), Clock()
    found = survey(account.look(), server, Patience.of(0), now=clock())
    for _ in range(2):
        outcomes = Reaper(account, server, Patience.of(0), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
        assert set(done(outcomes).values()) == {"removed"}


@pytest.mark.fault("reaper-meets-the-living")
def test_a_run_that_is_taken_up_between_the_look_and_the_deed_keeps_everything() -> None:
    account, server, clock = Account.of(everything_of("r1")), Server.with_states(r1="RUNNING"), Clock()
    found = survey(account.look(), server, Patience.of(0), now=clock())
    held = lock("r1", 250)
    account.things[held.id] = held
    outcomes = Reaper(account, server, Patience.of(0), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
    assert set(done(outcomes).values()) == {"kept"}
    assert "holds the eval's lock" in outcomes[0].decision.why
    assert (account.touched, server.ended) == ([], [])


@pytest.mark.fault("reaper-meets-the-living")
def test_a_lock_that_another_run_has_taken_over_stays() -> None:
    """The same request goes on under a new run: the old one's things go, the eval's lock is the new one's."""
    taken = lock("r2", 250, name="p/evals/the-eval/lock.json")
    account = Account.of([*everything_of("r1", lock_in=None), taken])
    server = Server.with_states(r1="RUNNING", r2="RUNNING")
    reap(account, server)
    assert list(account.things) == [taken.id]

    account = Account.of(everything_of("r1"))
    clock = Clock()
    found = survey(account.look(), server, Patience.of(0), now=clock())
    taken = dataclasses.replace(lock("r2", 250, name=lock("r1", 0).id), etag="2")
    account.things[taken.id] = taken
    Reaper(account, server, Patience.of(0), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
    assert list(account.things.values()) == [taken]


@pytest.mark.fault("leftovers")
def test_what_aws_keeps_is_named_and_its_lock_stays_to_say_whose_it_is() -> None:
    account = Account.of(everything_of("r1"), refuses={"i-r1"}, stubborn={"https://sqs/inspect-fleet-r1-dead"})
    outcomes = {one.decision.thing.id: one for one in reap(account, Server.with_states(r1="RUNNING"))}
    left = {name for name, one in outcomes.items() if one.done == "left"}
    assert left == {"i-r1", "https://sqs/inspect-fleet-r1-dead", lock("r1", 0).id} == set(account.things)
    assert "Denied" in outcomes["i-r1"].left
    assert "still there after 180 s" in outcomes["https://sqs/inspect-fleet-r1-dead"].left


def test_a_pool_worker_ends_the_instances_that_this_identity_may_not() -> None:
    account = Account.of(everything_of("r1"), refuses={"i-r1"})
    server = Server.with_states(r1="RUNNING")
    server.account = account
    assert set(done(reap(account, server)).values()) == {"removed"}


@pytest.mark.fault("reaper-meets-the-living")
def test_nothing_is_removed_while_prefect_does_not_answer() -> None:
    account, server, clock = Account.of(everything_of("r1")), Server.with_states(r1="CRASHED"), Clock()
    server.away = True
    with pytest.raises(ConnectionError):
        reap(account, server)
    server.away = False
    found = survey(account.look(), server, Patience.of(0), now=clock())
    server.away = True  # between the look and the deed
    outcomes = Reaper(account, server, Patience.of(0), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
    assert set(done(outcomes).values()) == {"kept"}
    assert account.touched == []


@pytest.mark.fault("reaper-meets-the-living")
def test_runs_of_another_account_on_the_same_server_are_left_to_its_own_reaper() -> None:
    """Their locks lie in another bucket, so that their absence in this one says nothing."""
    account = Account.of([*everything_of("r1", lock_in=None, marked=NOW - 9_000)])
    server = Server({"r1": known("r1", "RUNNING", account="staging")})
    assert set(done(reap(account, server)).values()) == {"kept"}
    assert account.touched == []


@pytest.mark.fault("leftovers")
def test_strays_go_whoever_they_were_made_for() -> None:
    template = thing("launch template", "lt-1", "r2", pool=POOL)
    account = Account.of([template, *everything_of("r2", lock_in=200)])
    reap(account, Server.with_states(r2="RUNNING"))
    assert template.id not in account.things
    assert len(account.things) == 6


STATES = ["RUNNING", "CANCELLING", "PAUSED", "PENDING", "SCHEDULED", *sorted(FINAL), ""]
"""Of Prefect; the last one: it doesn't know the run."""


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    runs = [f"r{number}" for number in range(draw(st.integers(1, 4)))]
    states = {run: draw(st.sampled_from(STATES)) for run in runs}
    locks = {run: draw(st.sampled_from([None, -5_000.0, -400.0, -100.0, 1.0, 250.0])) for run in runs}
    quiet = {run: draw(st.sampled_from([10.0, 9_000.0])) for run in runs}
    pools = {run: draw(st.sampled_from([POOL, "another-servers"])) for run in runs}
    things: list[Thing] = []
    for run in runs:
        marked = draw(st.sampled_from([None, NOW - 60, NOW - 9_000]))
        made = [
            dataclasses.replace(one, pool=pools[run] if one.kind == "instance" else "")
            for one in everything_of(run, lock_in=locks[run], marked=marked)
        ]
        things += [one for one in made if one.kind == "lock" or draw(st.booleans())]
    foreign = {one.id for one in things if one.kind != "lock" and draw(st.integers(0, 3)) == 0}
    return {"things": things, "states": states, "locks": locks, "quiet": quiet, "pools": pools, "foreign": foreign}


@given(worlds(), st.sampled_from([0.0, 1_800.0]))
@pytest.mark.fault("reaper-meets-the-living")
def test_nothing_is_touched_that_lacks_our_tags_or_belongs_to_a_live_run(world: dict[str, Any], grace: float) -> None:
    """Whatever there is, whatever Prefect says, and however impatient a person is."""
    account = Account.of(world["things"], foreign=world["foreign"])
    before = dict(account.things)
    server = Server(
        {run: known(run, state, since=NOW - world["quiet"][run]) for run, state in world["states"].items() if state}
    )
    reap(account, server, grace=grace)

    assert not world["foreign"] & set(account.touched)
    for run, state in world["states"].items():
        expires = world["locks"][run]
        waits = state in ("PAUSED", "PENDING", "SCHEDULED")
        young = state in ("RUNNING", "CANCELLING") and expires is None and world["quiet"][run] < 1_800
        strange = not state and expires is None and world["pools"][run] != POOL
        if (expires is not None and expires > 0) or waits or young or strange:
            assert {one.id for one in before.values() if one.run == run} <= set(account.things)
            assert run not in server.ended
