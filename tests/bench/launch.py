"""A thousand instances and their secrets against AWS's rates as they are modelled here, on virtual clocks.

What decides when to call is the product's own: the launch desk with its hunts and paces, then `Handout`, `Parameters` and the
pace of writes. Only EC2, SSM and Prefect are models. Nothing comes back from the writes to the launches, so that the two are
run one after the other: first when each instance is known, then when each has its parameter.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import anyio
from botocore.exceptions import ClientError

from fleet.aws import hunt
from fleet.aws.capacity import Candidate
from fleet.aws.instances import Answer, LaunchOrder
from fleet.aws.parameters import Parameters
from fleet.aws.search import Ask
from fleet.aws.session import Aws
from fleet.evals.handout import Handout
from fleet.evals.secrets import RunSecrets
from fleet.pool.launch_desk import LaunchDesk
from flows.launch_fleet import batches
from flows.provision_secrets import IN_FLIGHT
from tests.bench.figures import Figure
from tests.fleet.aws.ec2 import ORDER, SLOW, FakeEc2, refused

INSTANCES = 1_000
REQUESTS = (2.0, 5.0)
"""RunInstances, calls: so many a second, and so many at once (AWS's own figures)."""
RESOURCES = (2.0, 1_000.0)
"""RunInstances, instances: likewise."""
TAGGINGS = (10.0, 100.0)
"""CreateTags, calls."""
WRITES = (3.0, 3.0)
"""PutParameter, calls: three a second, a second's worth at once."""
LAUNCH_S, TAG_S, WRITE_S = 1.5, 0.1, 0.1
"""What an answer takes."""
CREATE_S = 0.1
"""What Prefect's server takes to create a flow run."""
POLL_S = 10.0
"""Between two polls of a Prefect worker for flow runs, its default."""
LOOK_S = 1.0
"""Between two looks of the controller."""


@dataclass
class Modelled:
    """AWS's way of throttling: tokens that come at a rate, and a bucket of them."""

    rate: float
    most: float
    clock: Callable[[], float]
    refused: int = 0
    _at: float = 0.0
    _tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = self.most

    def takes(self, count: int = 1) -> bool:
        """Whether so many tokens are there; then they are spent."""
        now = self.clock()
        self._tokens = min(self.most, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < count - 1e-9:
            self.refused += 1
            return False
        self._tokens -= count
        return True


def soonest(count: float, rate: float, most: float) -> float:
    """Seconds in which a bucket gives so many tokens, whoever asks."""
    return max(0.0, (count - most) / rate)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once when nothing is left to do but to wait."""

    def __init__(self) -> None:
        self.now = 0.0
        loop = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                if timeout is not None and timeout > 0:
                    loop.now += timeout
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        """Virtual seconds."""
        return self.now


class ThrottledEc2(FakeEc2):
    """An EC2 that counts calls and instances."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.requests, self.resources = Modelled(*REQUESTS, clock), Modelled(*RESOURCES, clock)
        self.taggings = Modelled(*TAGGINGS, clock)

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        """Refused where either bucket is empty."""
        if not self.requests.takes() or not self.resources.takes(ask.count):
            raise refused(SLOW)
        return super().ask(order, ask)

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Likewise."""
        if not self.taggings.takes():
            raise refused(SLOW)
        super().tag(instance_id, tags)


@dataclass(frozen=True, slots=True)
class Launched:
    """What the launches came to."""

    at: Mapping[str, float]
    """When each instance was its flow run's."""
    calls: int
    refused: int


def launches(created: Sequence[float]) -> Launched:
    """Launch an instance for each flow run by one pool worker; `created` says when each came to be."""
    loop = VirtualLoop()
    ec2 = ThrottledEc2(loop.time)
    at: dict[str, float] = {}

    async def in_virtual_time(call: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        await anyio.sleep(LAUNCH_S if getattr(call, "__name__", "") == "ask" else TAG_S)
        return call(*arguments)

    here = Aws("us-east-1")

    async def one(desk: LaunchDesk, number: int, created: float) -> None:
        await anyio.sleep(POLL_S * (created // POLL_S + 1))
        order = replace(ORDER, attempt=f"attempt-{number}")
        instance = await desk.launch(here, order, [Candidate("a", None, "on-demand")], {})
        at[instance.id] = loop.time()

    async def go() -> None:
        async with anyio.create_task_group() as group:
            desk = LaunchDesk(
                lambda: group, deadline_seconds=300.0, launcher_of=lambda _: ec2, clock=loop.time, draw=lambda: 0.5
            )
            for number, when in enumerate(created):
                group.start_soon(one, desk, number, when)

    with patch.object(anyio.to_thread, "run_sync", in_virtual_time), patch.object(hunt, "in_thread", in_virtual_time):
        loop.run_until_complete(go())
    loop.close()
    return Launched(at, len(ec2.asks), ec2.requests.refused + ec2.resources.refused + ec2.taggings.refused)


class Turns:
    """Virtual time for threads, of which one runs at a time: who waits the shortest goes on when all others wait."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()
        self._running = 0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, threading.Event]] = []

    def __call__(self) -> float:
        """Virtual seconds."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Wait, from a thread that `run` has started."""
        mine = threading.Event()
        with self._lock:
            heapq.heappush(self._waiting, (self.now + max(0.0, seconds), next(self._order), mine))
        self._next()
        mine.wait()

    def run(self, work: Callable[[], None], threads: int) -> None:
        """Have so many threads do this at a time, until each has ended."""

        def begin() -> None:
            self.pause(0.0)
            work()
            self._next()

        self._running = threads
        started = [threading.Thread(target=begin, daemon=True) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    def _next(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._waiting:
                self.now, _, theirs = heapq.heappop(self._waiting)
                self._running = 1
                theirs.set()


class ThrottledSsm:
    """As much of boto3's client as `Parameters` uses for writes."""

    def __init__(self, clock: Turns) -> None:
        self._clock = clock
        self.writes = Modelled(*WRITES, clock)
        self.written: dict[str, float] = {}

    def put_parameter(self, *, Name: str, **_: Any) -> None:  # noqa: N803  boto3's word
        """Refused where the bucket is empty."""
        taken = self.writes.takes()
        self._clock.pause(WRITE_S)
        if not taken:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "PutParameter")
        self.written[Name] = self._clock()


class ModelAws(Aws):
    """A region of which only that client is used."""

    def __init__(self, ssm: ThrottledSsm) -> None:
        super().__init__("us-east-1")
        self._ssm = ssm

    @property
    def ssm_once(self) -> Any:
        """The model."""
        return self._ssm


def writes(known: Mapping[str, float]) -> ThrottledSsm:
    """Write the secrets of each instance from when it is known on."""
    clock = Turns()
    ssm = ThrottledSsm(clock)
    parameters = Parameters(ModelAws(ssm), clock=clock, pause=clock.pause)
    handout = Handout(parameters, "/fleet/run", RunSecrets({"KEY": "value"}), lambda _: {}, advanced=False)
    coming = iter(sorted((when, instance) for instance, when in known.items()))
    lock = threading.Lock()

    def serve() -> None:
        while True:
            with lock:
                when, instance = next(coming, (0.0, ""))
            if not instance:
                return
            clock.pause(when - clock())
            handout.write(instance)

    clock.run(serve, IN_FLIGHT)
    return ssm


def looks(sizes: Sequence[int]) -> tuple[list[float], list[float]]:
    """When each flow run comes to be, and when the controller looks between the batches in which it makes them."""
    created: list[float] = []
    seen: list[float] = []
    now = 0.0
    for size in sizes:
        created += [now + CREATE_S * (number + 1) for number in range(size)]
        now = created[-1] + LOOK_S
        seen.append(now)
    return created, seen


def known(at: Mapping[str, float], seen: Sequence[float]) -> dict[str, float]:
    """When the controller knows each instance: at its first look after that; looks go on after the last batch."""
    found = {}
    for instance, when in at.items():
        look = next((moment for moment in seen if moment >= when), None)
        if look is None:
            look = seen[-1] + LOOK_S * -(-(when - seen[-1]) // LOOK_S)
        found[instance] = look
    return found


def figures() -> Iterator[Figure]:
    """How near to the bound a launch comes."""
    created, seen = looks(batches(INSTANCES))
    launched = launches(created)
    ssm = writes(known(launched.at, seen))
    if not len(set(launched.at)) == len(ssm.written) == INSTANCES:
        raise SystemExit(f"{len(launched.at)} instances and {len(ssm.written)} parameters instead of {INSTANCES}")
    bound = max(soonest(INSTANCES, *RESOURCES), soonest(INSTANCES, *TAGGINGS), soonest(INSTANCES, *WRITES))
    took = max(ssm.written.values())
    yield Figure(
        "launch.vs_bound",
        (took / bound,),
        1.1,
        parts={
            "took_s": took,
            "bound_s": bound,
            "launched_s": max(launched.at.values()),
            "RunInstances": launched.calls,
            "EC2 refused": launched.refused,
            "SSM refused": ssm.writes.refused,
        },
    )
