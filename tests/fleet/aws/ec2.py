"""A small EC2 with instances in it, whose answers are scripted; and a clock on which waiting takes no time."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio

from fleet.aws.capacity import Candidate, Refusal
from fleet.aws.failures import AwsRefused
from fleet.aws.instances import LAUNCH_TAG, Answer, Instance, LaunchOrder
from fleet.aws.search import Ask

OK, DRY, SLOW, BAD = "", "InsufficientInstanceCapacity", "RequestLimitExceeded", "UnauthorizedOperation"
FULL = "VcpuLimitExceeded"
LOST = "ReadTimeoutError"
"""The instances were launched; the answer never came."""
BUG = "a bug of ours, after the launch"
UNSEEN = "InvalidInstanceID.NotFound"

ORDER = LaunchOrder(
    attempt="group-1",
    image="ami-1",
    root_device="/dev/sda1",
    user_data="#!/bin/bash\n",
    tags={"inspect-fleet:pool": "p"},
    security_groups=("sg-1",),
    instance_profile="inspect-fleet-worker",
    volume_gb=40,
)


@dataclass
class FakeEc2:
    """Tokens are idempotent, tags are kept. `answers` are taken one a call (then: as the last); see `room` for fewer."""

    answers: Sequence[str] = (OK,)
    room: Mapping[Candidate, int] = field(default_factory=dict)
    """Instances that a place has left; a place that isn't named has no end."""
    quota: int | None = None
    """Instances that the account may run."""
    tag_answers: Sequence[str] = ()
    """Likewise one a call of `tag`, then none is refused."""
    untaggable: int = 0
    """How many instances, the first ones, nobody may ever tag."""
    unseen: int = 0
    """How many times each new instance isn't known yet to those who tag or terminate it."""
    late: int = 0
    """How many looks show no instance yet."""
    tries: int | None = None
    """Places of a fleet that it tries; it names no other."""
    place_answers: Sequence[Mapping[Candidate, str]] = ()
    """Codes with which places refuse within a fleet, one mapping a call, then none."""
    together: bool = True
    """Whether CreateFleet is allowed."""
    region: str = "us-east-1"
    asks: list[Ask] = field(default_factory=list)
    running: dict[str, Instance] = field(default_factory=dict)
    tokens: dict[str, tuple[Ask, Answer]] = field(default_factory=dict)
    tagged: list[str] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    closed: int = 0
    before_answer: Callable[[], None] = lambda: None
    before_tag: Callable[[], None] = lambda: None
    refuse: Callable[[], str] | None = None
    """A code for each call, instead of `answers`."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._hidden: Counter[str] = Counter()
        self._taken: Counter[Candidate] = Counter()
        self._born: list[str] = []
        self._looks = 0

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        with self._lock:
            answer = self.refuse() if self.refuse else self.answers[min(len(self.asks), len(self.answers) - 1)]
            self.asks.append(ask)
        self.before_answer()
        with self._lock:
            if ask.together and not self.together:
                raise refused(BAD)
            if answer not in (OK, LOST, BUG):
                raise refused(answer)
            assert len(ask.token) <= 64
            if ask.token not in self.tokens:
                self.tokens[ask.token] = (ask, self._launch(order, ask))
            before, found = self.tokens[ask.token]
            assert before == ask, "the same token with other parameters"
            if answer == LOST:
                raise refused(LOST)
            if answer == BUG:
                raise KeyError("InstanceId")
            return found

    def _launch(self, order: LaunchOrder, ask: Ask) -> Answer:
        if self.quota is not None and len(self.running) + ask.count > self.quota:
            if not ask.together:
                raise refused(FULL)
            return Answer((), tuple(Refusal(place, FULL, "") for place in ask.places))
        found: list[Instance] = []
        dry: list[Refusal] = []
        fleets = sum(before.together for before, _ in self.tokens.values())
        codes = self.place_answers[fleets] if ask.together and fleets < len(self.place_answers) else {}
        for place in ask.places[: self.tries]:
            if place in codes:
                dry.append(Refusal(place, codes[place], ""))
                continue
            left = self.room.get(place, 10**9) - self._taken[place]
            for _ in range(min(left, ask.count - len(found))):
                instance = Instance(
                    id=f"i-{len(self.tagged)}-{len(self.tokens)}-{len(found)}-{len(self.asks)}",
                    region=self.region,
                    state="pending",
                    instance_type=place.instance_type,
                    market=place.market,
                    launched_at=datetime.datetime.now(datetime.UTC),
                    tags={**order.tags, LAUNCH_TAG: order.attempt},
                )
                self._hidden[instance.id] = self.unseen
                self._taken[place] += 1
                self.running[instance.id] = instance
                self._born.append(instance.id)
                found.append(instance)
            if left < ask.count:
                dry.append(Refusal(place, DRY, ""))
        if not found and not ask.together:
            raise refused(DRY)
        return Answer(tuple(found), tuple(dry) if ask.together else ())

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        self.before_tag()
        with self._lock:
            code = self.tag_answers[len(self.tagged)] if len(self.tagged) < len(self.tag_answers) else OK
            self.tagged.append(instance_id)
            if code == BUG:
                raise KeyError("a bug")
            if code:
                raise refused(code)
            if self._is_hidden(instance_id):
                raise refused(UNSEEN)
            if instance_id in self._born[: self.untaggable]:
                raise refused(BAD)
            instance = self.running[instance_id]
            self.running[instance_id] = replace(instance, tags={**instance.tags, **tags})

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        self._looks += 1
        if self._looks <= self.late:
            return []
        return [each for each in self.running.values() if tags.items() <= each.tags.items()]

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        with self._lock:
            unknown = frozenset(each for each in ids if self._is_hidden(each))
            for each in set(ids) - unknown:
                self.terminated.append(each)
                self.running.pop(each, None)
            return unknown

    def close(self) -> None:
        self.closed += 1

    def _is_hidden(self, instance_id: str) -> bool:
        self._hidden[instance_id] -= 1
        return self._hidden[instance_id] >= 0


def refused(code: str) -> AwsRefused:
    """EC2's refusal of a launch."""
    return AwsRefused(service="ec2", operation="RunInstances", code=code, target="", why="as scripted")


@dataclass
class Clock:
    """Time that passes only by waiting: when every task waits, the one that wakes first goes on."""

    now: float = 0.0
    waited: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        self.waited.append(seconds)
        await anyio.lowlevel.checkpoint()
        self.now = max(self.now, until)
