"""Where a pool worker's launches meet: those of one moment with the same shape are asked for together.

A flow run comes with its order and waits; the desk opens a group, waits a moment for others with an equal order, and hunts for
all of them in one (`fleet.aws.hunt`). RunInstances is counted by call, so that sixty workers cost one call and not sixty. An
order whose user data names its flow run equals no other, and is launched alone.

The hunts run in the pool worker's own tasks: a flow run that is cancelled leaves its group, and the others go on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from fleet.aws.fleets import Launches
from fleet.aws.hunt import CLEAN_UP_S, Hunt, Launcher, Member, Pace

if TYPE_CHECKING:
    import anyio.abc

    from fleet.aws.capacity import Candidate
    from fleet.aws.instances import Instance, LaunchOrder
    from fleet.aws.session import Aws

WINDOW_S = 0.3
"""How long the first of a group waits for others: they come together, and no machine boots in under ten seconds."""
MOST = 50
"""Members of a group: EC2's own advice is not to ask for more at once."""


@dataclass(eq=False)
class Group:
    """Flow runs that wait for instances of one shape."""

    aws: Aws
    order: LaunchOrder
    places: Sequence[Candidate]
    members: list[Member] = field(default_factory=list)
    hunt: Hunt | None = None


class LaunchDesk:
    """All launches of a pool worker. For the tasks of one event loop."""

    def __init__(
        self,
        tasks: Callable[[], anyio.abc.TaskGroup],
        *,
        deadline_seconds: float,
        window_seconds: float = WINDOW_S,
        most: int = MOST,
        launcher_of: Callable[[Aws], Launcher] = Launches,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`tasks` gives the task group that the hunts run in, once there is one to launch."""
        self._tasks, self._launcher_of = tasks, launcher_of
        self._deadline_seconds, self._window_seconds, self._most = deadline_seconds, window_seconds, most
        self._clock, self._sleep, self._draw = clock, sleep, draw
        self._open: dict[Hashable, Group] = {}
        self._paces: dict[Aws, Pace] = {}

    async def launch(
        self, aws: Aws, order: LaunchOrder, places: Sequence[Candidate], tags: Mapping[str, str]
    ) -> Instance:
        """An instance of its own, with `tags` beside the order's. Whoever is cancelled here leaves none behind.

        LaunchFailed, TagsRefused, LaunchStopped: there is none.
        """
        member = Member(order.attempt, tags)
        group = self._join(aws, order, places, member)
        try:
            await member.done.wait()
        except BaseException:
            member.gone = True  # the hunt ends what it has for it
            if member.instance is not None and group.hunt is not None:  # it was handed over in this very moment
                with anyio.move_on_after(CLEAN_UP_S, shield=True):
                    await group.hunt.drop([member.instance.id])
            raise
        if member.instance is None:
            raise member.error or RuntimeError("a launch ended without an instance and without an error")
        return member.instance

    def _join(self, aws: Aws, order: LaunchOrder, places: Sequence[Candidate], member: Member) -> Group:
        """Into the open group of this shape, or into a new one."""
        key = (aws, tuple(places), _shape(order))
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = Group(aws, order, places)
            self._tasks().start_soon(self._serve, key, group, name="launch")
        group.members.append(member)
        if len(group.members) >= self._most:
            del self._open[key]
        return group

    async def _serve(self, key: Hashable, group: Group) -> None:
        """Wait for the others of the moment, then hunt for all of them. Raises only cancellation."""
        try:
            await self._sleep(self._window_seconds)
        finally:
            if self._open.get(key) is group:
                del self._open[key]
            try:
                hunt = self._hunt(group)
            except Exception as error:  # noqa: BLE001  each member is told, and raises it
                for member in group.members:
                    member.fail(error)
            else:
                await hunt.run()  # where this was cancelled: tells the members, and launches nothing

    def _hunt(self, group: Group) -> Hunt:
        order = dataclasses.replace(group.order, attempt=group_name(group.members))
        group.hunt = Hunt(
            self._launcher_of(group.aws),
            order,
            group.places,
            group.members,
            pace=self._paces.setdefault(group.aws, Pace(clock=self._clock, sleep=self._sleep)),
            deadline_seconds=self._deadline_seconds,
            clock=self._clock,
            sleep=self._sleep,
            draw=self._draw,
        )
        return group.hunt


def group_name(members: Sequence[Member]) -> str:
    """The name of a group: new for each set of attempts, fit for a tag and for a launch template's name."""
    return hashlib.sha256("\0".join(sorted(member.attempt for member in members)).encode()).hexdigest()[:32]


def _shape(order: LaunchOrder) -> Hashable:
    """Everything of an order but whose it is."""
    fields = dataclasses.asdict(dataclasses.replace(order, attempt=""))
    return tuple(
        (name, tuple(sorted(value.items())) if isinstance(value, dict) else value) for name, value in fields.items()
    )
