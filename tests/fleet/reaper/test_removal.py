"""Reaping an account in memory: the order, what is left, and what is never touched."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.reaper.holdings import Seen
from fleet.reaper.ownership import FORGOTTEN_S, elsewhere, survey
from fleet.reaper.removal import Outcome, Reaper
from fleet.reaper.things import Thing
from fleet.reaper.verdict import FINAL, Patience
from tests.fleet.reaper.kit import HOME, NOW, POOL, Account, Clock, Server, everything_of, known, lock, thing


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


@pytest.mark.fault("reaper-meets-the-living")
def test_a_run_whose_locks_lie_elsewhere_by_its_own_word_is_left_alone() -> None:
    """A block that names another bucket by now: the run goes on with the old one, where nobody looks for its lock."""
    moved = [dataclasses.replace(one, home="s3://before/p") for one in everything_of("r1", lock_in=None)]
    for state in ("RUNNING", "CRASHED"):  # the latter, where Prefect didn't hear of it for a while
        account = Account.of(moved)
        assert set(done(reap(account, Server.with_states(r1=state))).values()) == {"kept"}
        assert account.touched == []


@pytest.mark.fault("leftovers")
def test_a_run_of_another_block_with_the_same_bucket_is_reaped() -> None:
    things = [dataclasses.replace(one, home=HOME) for one in everything_of("r1", lock_in=None)]
    server = Server({"r1": known("r1", "CRASHED", account="staging")})
    assert set(done(reap(Account.of(things), server)).values()) == {"removed"}


@pytest.mark.fault("leftovers")
def test_what_a_run_without_its_lock_has_is_reaped_at_once_by_a_person_and_marked_by_the_flow() -> None:
    """Its eval was taken over by the same request's next run, and Prefect hasn't missed its heartbeats yet."""
    things = everything_of("r1", lock_in=None)
    server = Server({"r1": known("r1", "RUNNING", since=NOW - 420)})
    assert sorted(done(reap(Account.of(things), server, grace=1_800)).values()) == ["kept", *["marked"] * 4]
    account = Account.of(things)
    assert set(done(reap(account, server)).values()) == {"removed"}
    assert (account.things, server.ended) == ({}, ["r1"])


@pytest.mark.fault("reaper-meets-the-living")
def test_a_lock_that_was_taken_since_the_look_keeps_everything() -> None:
    """The run was begun again: it holds a lock that the look couldn't see."""
    account, clock = Account.of(everything_of("r1", lock_in=None)), Clock()
    server = Server.with_states(r1="CRASHED")
    found = survey(account.look(), server, Patience.of(0), now=clock())
    held = lock("r1", 250)
    account.things[held.id] = held
    outcomes = Reaper(account, server, Patience.of(0), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
    assert set(done(outcomes).values()) == {"kept"}
    assert (account.touched, server.ended) == ([], [])


@pytest.mark.fault("leftovers")
def test_a_lock_stays_until_the_region_of_its_runs_fleet_was_seen() -> None:
    """It is all that says whose the queues there are, once Prefect has forgotten the run."""
    far = [
        dataclasses.replace(one, region="eu-west-1") if one.kind != "lock" else one
        for one in everything_of("r1", lock_in=-2_000)
    ]
    account, server = Account.of(far, dark={"eu-west-1"}), Server.with_states()
    server.runs["r1"] = known("r1", "CRASHED", region="eu-west-1")
    (outcome,) = reap(account, server)
    assert outcome.done == "kept"
    assert "eu-west-1, which wasn't seen" in outcome.decision.why
    assert account.touched == []
    account.dark = set()
    assert set(done(reap(account, server)).values()) == {"removed"}
    assert account.things == {}


@pytest.mark.parametrize(
    ("region", "seen", "goes"),
    [
        ("us-east-1", ("us-east-1",), True),
        ("", ("us-east-1",), True),
        ("", ("eu-west-1",), False),  # a person chose where to look
        ("eu-west-1", ("us-east-1", "ap-south-1"), False),
        ("eu-west-1", ("eu-west-1", "us-east-1"), True),
        ("eu-west-1", ("eu-west-1",), False),  # the option's default, which may stand for the account's own
    ],
)
def test_where_a_runs_fleet_may_have_been(region: str, seen: tuple[str, ...], *, goes: bool) -> None:
    looked = Seen((), (), seen, "us-east-1", HOME)
    run = known("r1", "CRASHED", region=region)
    assert (elsewhere([lock("r1", -2_000)], run, looked, now=NOW) == "") is goes


@pytest.mark.fault("leftovers")
def test_the_lock_of_a_run_that_prefect_does_not_know_stays_for_as_long_as_it_may_have_something_anywhere() -> None:
    account, clock = Account.of([lock("r1", -2_000)]), Clock()
    assert set(done(reap(account, Server({}), clock=clock)).values()) == {"kept"}
    clock.sleep(FORGOTTEN_S)
    assert set(done(reap(account, Server({}), clock=clock)).values()) == {"removed"}


@pytest.mark.fault("leftovers")
def test_a_mark_that_aws_refuses_is_named() -> None:
    account = Account.of(everything_of("r1"), refuses={"i-r1"})
    outcomes = {one.decision.thing.id: one for one in reap(account, Server.with_states(r1="CRASHED"), grace=1_800)}
    assert outcomes["i-r1"].done == "left"
    assert outcomes["i-r1"].left.startswith("it couldn't be marked: ")
    assert "Denied" in outcomes["i-r1"].left


@pytest.mark.fault("reaper-meets-the-living")
def test_a_mark_that_stays_on_what_lives_is_named() -> None:
    """With it, what dies later would go at the first look."""
    account = Account.of(everything_of("r1", lock_in=200, marked=NOW - 60), refuses={"i-r1"})
    outcomes = {one.decision.thing.id: one for one in reap(account, Server.with_states(r1="RUNNING"), grace=1_800)}
    assert outcomes["i-r1"].left.startswith("its mark couldn't be taken off: ")
    assert sorted(one.done for one in outcomes.values()) == ["kept", "kept", "left", *["unmarked"] * 3]


@pytest.mark.fault("leftovers")
def test_what_goes_by_itself_before_it_is_marked_is_nothing_left() -> None:
    account, clock = Account.of(everything_of("r1")), Clock()
    server = Server.with_states(r1="CRASHED")
    found = survey(account.look(), server, Patience.of(1_800), now=clock())
    del account.things["i-r1"]
    outcomes = Reaper(account, server, Patience.of(1_800), now=clock, clock=clock, sleep=clock.sleep).carry_out(found)
    assert done(outcomes)["i-r1"] == "removed"


def stopped_long_ago(**more: Any) -> Server:
    return Server({"r1": known("r1", "CANCELLING", since=NOW - 1_801, **more)})


def ended(account: Account, server: Server, *, meanwhile: Thing | None = None) -> list[tuple[str, str]]:
    clock = Clock()
    found = survey(account.look(), server, Patience(), now=clock())
    if meanwhile:
        account.things[meanwhile.id] = meanwhile
    outcomes = Reaper(account, server, Patience(), now=clock, clock=clock, sleep=clock.sleep).end_unheeded(found)
    return [(one.run.id, one.done) for one in outcomes]


@pytest.mark.fault("leftovers")
def test_a_run_that_was_told_to_end_and_has_nobody_to_do_so_is_ended() -> None:
    """It was killed while it planned: it has no things by which it would be found, and Prefect takes no Crashed for it."""
    server = stopped_long_ago()
    assert ended(Account.of([]), server) == [("r1", "ended")]
    assert server.ended == ["r1"]


@pytest.mark.fault("reaper-meets-the-living")
def test_one_that_may_still_end_itself_is_not() -> None:
    young = Server({"r1": known("r1", "CANCELLING", since=NOW - 600)})
    other = stopped_long_ago(account="staging")
    planning = Server({"r1": known("r1", "RUNNING", since=NOW - 90_000)})  # a person may think about its price
    for server in (young, other, planning):
        assert ended(Account.of([]), server) == []
    held = lock("r1", 250)
    assert ended(Account.of([held]), stopped_long_ago()) == []
    server = stopped_long_ago()
    assert ended(Account.of([]), server, meanwhile=held) == [("r1", "kept")]
    assert server.ended == []


@pytest.mark.fault("leftovers")
def test_an_end_that_prefect_refuses_is_named_and_keeps_no_other() -> None:
    server = stopped_long_ago()
    server.runs["r2"] = dataclasses.replace(server.runs["r1"], id="r2")
    server.stubborn = {"r1"}
    assert ended(Account.of([]), server) == [("r1", "left"), ("r2", "ended")]


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
    begun = {run: draw(st.sampled_from([1, 2])) for run in runs}
    homes = {run: draw(st.sampled_from(["", HOME, "s3://elsewhere/p"])) for run in runs}
    pools = {run: draw(st.sampled_from([POOL, "another-servers"])) for run in runs}
    things: list[Thing] = []
    for run in runs:
        marked = draw(st.sampled_from([None, NOW - 60, NOW - 9_000]))
        made = [
            dataclasses.replace(
                one, pool=pools[run] if one.kind == "instance" else "", home=homes[run] if one.kind == "queue" else ""
            )
            for one in everything_of(run, lock_in=locks[run], marked=marked)
        ]
        things += [one for one in made if one.kind == "lock" or draw(st.booleans())]
    foreign = {one.id for one in things if one.kind != "lock" and draw(st.integers(0, 3)) == 0}
    runs_of = {
        run: known(run, state, since=NOW - quiet[run], begun=begun[run]) for run, state in states.items() if state
    }
    return {"things": things, "states": states, "locks": locks, "runs": runs_of, "pools": pools, "foreign": foreign}


@given(worlds(), st.sampled_from([0.0, 1_800.0]))
@pytest.mark.fault("reaper-meets-the-living")
def test_nothing_is_touched_that_lacks_our_tags_or_belongs_to_a_live_run(world: dict[str, Any], grace: float) -> None:
    """Whatever there is, whatever Prefect says, and however impatient a person is."""
    account = Account.of(world["things"], foreign=world["foreign"])
    before = dict(account.things)
    server = Server(world["runs"])
    reap(account, server, grace=grace)

    assert not world["foreign"] & set(account.touched)
    for run, state in world["states"].items():
        expires = world["locks"][run]
        waits = state in ("PAUSED", "PENDING", "SCHEDULED")
        found = server.runs.get(run)
        at_work = state in ("RUNNING", "CANCELLING") and found is not None and found.since > NOW - 1_800
        young = at_work and expires is None and found is not None and found.begun > 1
        strange = not state and expires is None and world["pools"][run] != POOL
        homes = {one.home for one in before.values() if one.run == run and one.home and one.id not in world["foreign"]}
        moved = expires is None and homes and HOME not in homes
        if (expires is not None and expires > 0) or waits or young or strange or moved:
            assert {one.id for one in before.values() if one.run == run} <= set(account.things)
            assert run not in server.ended
