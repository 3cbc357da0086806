from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleet.aws.failures import AwsRefused, Denied, Throttled
from fleet.evals.handout import Handout
from fleet.evals.secrets import RunSecrets

PATH = "/fleet/run"
SECRETS = RunSecrets({"KEY": "sk-1"}, {"linux": "L=1", "mac": "M=1"})
NAMES = ["i-1.env.linux", "i-1.env.mac", "i-1"]


def refusal(kind: type[AwsRefused] = Denied) -> AwsRefused:
    return kind(service="ssm", operation="PutParameter", code="SomeCode", target="/p", why="so")


class Store:
    """Parameters, kept in memory; `before` and `after` are called around each write."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, str]] = {}
        self.tags: dict[str, Mapping[str, str]] = {}
        self.advanced: set[bool] = set()
        self.deleted: list[list[str]] = []
        self.refuses: dict[str, AwsRefused] = {}
        self.deletes = True
        self.kept: set[str] = set()
        """Those that may not be deleted."""
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None

    def put_secret(
        self,
        name: str,
        values: Mapping[str, str],
        tags: Mapping[str, str],
        *,
        advanced: bool,
        wanted: Callable[[], bool],
    ) -> bool:
        self.before(name)
        if not wanted():
            return False
        short = name.removeprefix(f"{PATH}/")
        if short in self.refuses:
            raise self.refuses[short]
        self.held[short] = dict(values)
        self.tags[short] = tags
        self.advanced.add(advanced)
        self.after(name)
        return True

    def try_delete(self, names: Sequence[str]) -> Mapping[str, AwsRefused]:
        if not self.deletes:
            return dict.fromkeys(names, refusal(Throttled))
        shorts = [name.removeprefix(f"{PATH}/") for name in names]
        self.deleted.append(shorts)
        for name in shorts:
            if name not in self.kept:
                self.held.pop(name, None)
        return {f"{PATH}/{name}": refusal() for name in shorts if name in self.kept}


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def handout(store: Store) -> Handout:
    return Handout(store, PATH, SECRETS, lambda instance: {"InstanceArn": f"arn:{instance}"}, advanced=True)


def test_an_instance_is_given_its_own_parameter_after_those_of_the_settings(store: Store, handout: Handout) -> None:
    assert handout.write("i-1")
    assert list(store.held) == NAMES
    assert store.held == {"i-1.env.linux": {"linux": "L=1"}, "i-1.env.mac": {"mac": "M=1"}, "i-1": {"KEY": "sk-1"}}
    assert list(store.tags.values()) == [{"InstanceArn": "arn:i-1"}] * 3
    assert store.advanced == {True}


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_write_leaves_nothing_of_that_instance(store: Store, handout: Handout, name: str) -> None:
    handout.write("i-2")
    store.refuses[name] = refusal()
    with pytest.raises(Denied):
        handout.write("i-1")
    assert [held for held in store.held if held.startswith("i-1")] == []
    assert len(store.held) == 3, "another's are where they were"


def test_write_refused_for_the_third_of_five_instances(store: Store, handout: Handout) -> None:
    """The others are given theirs; of the third nothing is left, and AWS's reason is told."""
    store.refuses["i-3"] = refusal()

    def written(instance: str) -> bool | str:
        try:
            return handout.write(instance)
        except AwsRefused as refused:
            return refused.code

    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(written, [f"i-{n}" for n in range(1, 6)]))
    assert answers == [True, True, "SomeCode", True, True]
    assert {name.partition(".")[0] for name in store.held} == {"i-1", "i-2", "i-4", "i-5"}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_fetched_is_deleted_and_nothing_else(store: Store, handout: Handout, name: str) -> None:
    handout.write("i-1")
    handout.write("i-2")
    handout.fetched("i-1", f"{PATH}/{name}")
    handout.delete_fetched()
    assert sorted(store.held) == sorted({*NAMES, "i-2.env.linux", "i-2.env.mac", "i-2"} - {name})


@pytest.mark.parametrize(
    "parameter", [f"{PATH}/i-2", "/elsewhere/i-1", f"{PATH}/i-1.env.unknown", f"{PATH}/i-1/x", "None", ""]
)
def test_an_instance_has_no_parameter_deleted_but_its_own(store: Store, handout: Handout, parameter: str) -> None:
    handout.fetched("i-1", parameter)
    handout.delete_fetched()
    assert store.deleted == []


def test_what_can_not_be_deleted_now_is_deleted_at_the_next_look(store: Store, handout: Handout) -> None:
    handout.write("i-1")
    handout.fetched("i-1", f"{PATH}/i-1")
    store.deletes = False
    handout.delete_fetched()
    store.deletes = True
    handout.delete_fetched()
    handout.delete_fetched()
    assert store.deleted == [["i-1"]]


def test_what_is_gone_is_not_asked_for_again_because_another_is_left(store: Store, handout: Handout) -> None:
    handout.write("i-1")
    store.kept = {"i-1.env.mac"}
    handout.ended(["i-1"])
    handout.delete_fetched()
    handout.delete_fetched()
    assert store.deleted == [["i-1", "i-1.env.linux", "i-1.env.mac"], ["i-1.env.mac"]]


def test_a_write_that_is_tried_again_stays_though_what_the_first_had_written_could_not_be_deleted(
    store: Store, handout: Handout
) -> None:
    store.refuses, store.deletes = {"i-1": refusal()}, False
    with pytest.raises(Denied):
        handout.write("i-1")
    store.refuses, store.deletes = {}, True
    assert handout.write("i-1")
    handout.delete_fetched()
    assert list(store.held) == NAMES


def test_an_instance_that_ended_leaves_none_also_if_nobody_heard_that_it_had_fetched_them(
    store: Store, handout: Handout
) -> None:
    handout.write("i-1")
    handout.fetched("i-1", f"{PATH}/i-1.env.mac")
    handout.delete_fetched()
    handout.ended(["i-1"])
    handout.delete_fetched()
    handout.ended(["i-1"])
    handout.delete_fetched()
    assert store.held == {}
    assert store.deleted == [["i-1.env.mac"], ["i-1", "i-1.env.linux"]], "once each"


def test_an_instance_at_work_has_fetched_all_also_if_nobody_heard_it(store: Store, handout: Handout) -> None:
    handout.write("i-1")
    handout.write("i-2")
    handout.fetched("i-1", f"{PATH}/i-1")
    handout.delete_fetched()
    for _ in range(2):
        handout.working("i-1")
        handout.delete_fetched()
    assert {name.partition(".")[0] for name in store.held} == {"i-2"}
    assert store.deleted == [["i-1"], ["i-1.env.linux", "i-1.env.mac"]], "once each"


def test_an_instance_that_ended_is_not_written(store: Store, handout: Handout) -> None:
    handout.ended(["i-1"])
    assert not handout.write("i-1")
    assert store.held == {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["instance", "run"])
def test_whatever_ends_during_a_write_leaves_nothing(
    store: Store, handout: Handout, name: str, when: str, what: str
) -> None:
    """Also when the last write was on its way: nobody else may delete it any more."""

    def end(written: str) -> None:
        if written == f"{PATH}/{name}":
            handout.ended(["i-1"]) if what == "instance" else handout.close()

    setattr(store, when, end)
    assert not handout.write("i-1")
    assert store.held == {}


def test_a_deletion_that_fails_after_a_refused_write_is_made_up_for(store: Store, handout: Handout) -> None:
    store.refuses["i-1"] = refusal()
    store.deletes = False
    with pytest.raises(Denied):
        handout.write("i-1")
    assert set(store.held) == {"i-1.env.linux", "i-1.env.mac"}
    store.deletes = True
    handout.delete_fetched()
    assert store.held == {}


def test_looks_and_writes_of_many_threads_end_with_nothing_left(store: Store, handout: Handout) -> None:
    instances = [f"i-{n}" for n in range(40)]
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for instance in list(store.held):
                handout.fetched(instance.partition(".")[0], f"{PATH}/{instance}")
            handout.delete_fetched()

    watch = threading.Thread(target=look)
    watch.start()
    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(handout.write, instances))
    over.set()
    watch.join()
    handout.ended(instances)
    handout.delete_fetched()
    assert store.held == {}


def test_what_a_repeated_write_puts_back_after_the_fetch_is_deleted_too(store: Store, handout: Handout) -> None:
    """SSM did the write and its answer was lost: the instance had fetched it before the next try wrote it again."""

    def fetched_meanwhile(name: str) -> None:
        store.before = lambda _: None
        handout.fetched("i-1", name)
        handout.delete_fetched()

    store.before = fetched_meanwhile
    assert handout.write("i-1")
    assert "i-1.env.linux" in store.held
    handout.working("i-1")
    handout.delete_fetched()
    assert store.held == {}


def test_what_was_begun_to_be_written_is_known_by_name_for_the_end_of_the_run() -> None:
    """Also what was deleted since, or was refused: a write that was tried again may land late."""
    store = Store()
    store.refuses = {"i-2": refusal()}
    handout = Handout(store, PATH, SECRETS, lambda _: {}, advanced=False)
    assert handout.names() == []
    handout.write("i-1")
    handout.ended(["i-1"])
    handout.delete_fetched()
    with pytest.raises(Denied):
        handout.write("i-2")
    short = [name.removeprefix(f"{PATH}/") for name in handout.names()]
    assert sorted(short) == sorted([*NAMES, *(name.replace("i-1", "i-2") for name in NAMES)])
