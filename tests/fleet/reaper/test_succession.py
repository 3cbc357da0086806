"""A run whose eval another one goes on with is ended at once, and nothing but its own things is touched."""

from __future__ import annotations

import dataclasses

import pytest

from fleet.reaper.holdings import NEVER, Seen
from fleet.reaper.removal import Reaper
from fleet.reaper.succession import end_all
from fleet.reaper.verdict import Patience
from tests.fleet.reaper.kit import NOW, Account, Clock, Server, everything_of, known, lock

pytestmark = pytest.mark.fault("controller-killed")


def end(account: Account, server: Server, *dead: str) -> list[str]:
    clock = Clock()
    reaper = Reaper(account, server, Patience(), now=clock, clock=clock, sleep=clock.sleep)
    return end_all(dead, "flow run r9 goes on", reaper)


def test_the_dead_ones_things_go_at_once_in_the_order_of_a_clean_up() -> None:
    """Whatever its lock or mark says: its successor has seen that it is gone. Another eval's lock goes last."""
    other = lock("r1", 250, name="p/evals/other/lock.json")
    account = Account.of([*everything_of("r1", lock_in=None), other])
    server = Server.with_states(r1="RUNNING")
    assert end(account, server, "r1") == []
    assert account.things == {}
    ends = [one.rsplit("-", 1)[-1] for one in account.touched]
    assert ends == ["work", "r1", "r1", "events", "dead", "p/evals/other/lock.json"]
    assert (server.ended, server.settled) == (["r1"], ["r1"])


def test_what_is_anothers_stays() -> None:
    """The successor has the eval's lock, and a lock that can't be read may be anybody's."""
    taken = lock("r9", 250, name="p/evals/the-eval/lock.json")
    unreadable = dataclasses.replace(lock("r1", 0, name="p/evals/unreadable/lock.json"), expires=NEVER)
    theirs = everything_of("r2", marked=NOW)
    account = Account.of([taken, unreadable, *theirs, *everything_of("r1")])
    end(account, Server.with_states(r1="RUNNING", r2="CRASHED"), "r1")
    assert set(account.things.values()) == {taken, unreadable, *theirs}


def test_several_are_ended_and_one_of_which_nothing_is_seen_too() -> None:
    """A pool worker may be about to launch for it."""
    account = Account.of(everything_of("r1"))
    server = Server.with_states(r1="CRASHED", r2="RUNNING")
    assert end(account, server, "r1", "r2") == []
    assert (account.things, server.ended) == ({}, ["r1", "r2"])


def test_nothing_is_removed_of_a_run_that_prefect_does_not_end() -> None:
    """A pool worker would launch instances for what is being removed."""
    account, server = Account.of(everything_of("r1")), Server.with_states(r1="RUNNING")
    server.away = True
    (trouble,) = end(account, server, "r1")
    assert "r1 couldn't be ended: no answer" in trouble
    assert account.touched == []


def test_where_aws_does_not_answer_the_run_is_over_and_the_rest_is_named() -> None:
    class Silent(Account):
        def look(self) -> Seen:
            raise ConnectionError("no answer")

    server = Server.with_states(r1="RUNNING")
    (trouble,) = end(Silent({}), server, "r1")
    assert "what is left of flow run r1 couldn't be looked for: no answer" in trouble
    assert server.ended == ["r1"]


def test_where_its_region_does_not_answer_its_locks_stay_and_that_is_said() -> None:
    other = lock("r1", 250, name="p/evals/other/lock.json")
    far = dataclasses.replace(everything_of("r1")[0], region="eu-west-1")
    account = Account.of([far, other], dark={"eu-west-1"})
    server = Server({"r1": known("r1", "RUNNING", region="eu-west-1")})
    (trouble,) = end(account, server, "r1")
    assert "eu-west-1, which wasn't seen" in trouble
    assert set(account.things.values()) == {far, other}


def test_what_aws_keeps_is_named_and_the_rest_goes() -> None:
    account = Account.of(everything_of("r1"), refuses={"i-r1"})
    troubles = end(account, Server.with_states(r1="RUNNING"), "r1")
    assert [one.partition(" of flow run r1: ")[0] for one in troubles] == ["instance i-r1", f"lock {lock('r1', 0).id}"]
    assert set(account.things) == {"i-r1", lock("r1", 0).id}
