"""The launch of a group of instances: asks EC2 until each member has one, and leaves nothing else.

The invariant: when a hunt ends, each instance that it launched is a member's, or terminated. Whatever ends it (a refusal, a bug,
cancellation), what nobody has taken is terminated before the members hear of it; the answer that never came is looked for by tag.

A member's instance gets the tags that are its own right after the answer; until then it doesn't count as launched.
Where to ask is `fleet.aws.search`, how often is `fleet.aws.pacing`.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread

from fleet.aws.capacity import IN_DOUBT, Candidate, wait_after
from fleet.aws.failures import DENIED, THROTTLED, AwsRefused
from fleet.aws.instances import LAUNCH_TAG, UNKNOWN_INSTANCE, Answer, Instance, LaunchOrder, TerminationRefused
from fleet.aws.pacing import LAUNCHES, TAGGINGS, Pacer
from fleet.aws.search import Ask, Search
from fleet.errors import FleetError

CLEAN_UP_S = 90.0
"""Seconds that the end of a hunt may take to remove what nobody took; what is left then is found by its tags."""
LOOKS = 2
"""Looks for instances whose answer was lost: EC2 may not describe for some seconds what it has just launched."""
LOOK_AGAIN_S = 2.5
"""Between two of them."""
TAG_S = 60.0
"""Seconds in which an instance must have its tags; it waits for them for longer (`bootstrap.boot`)."""
DENIED_S = 10.0
"""Seconds for which a denied tag is tried again: a policy that goes by tags denies what EC2 doesn't know yet, tags and all."""
TAG_CHANCES = 2
"""Instances that are tried for one member: tags that can't be written twice can't be written."""
DROP_TRIES = 6
"""EC2 may not know for some seconds what it has just launched."""
DROP_AGAIN = THROTTLED | IN_DOUBT | DENIED
"""Refusals of a termination that time may mend: denied too, as in `DENIED_S`."""

MAY_BE_LEFT = f"instances may be left, which their tag {LAUNCH_TAG} finds"

in_thread = partial(anyio.to_thread.run_sync, abandon_on_cancel=True)
"""A blocking call that isn't waited for beyond a deadline; it goes on. For what has nothing to hand over that others don't find."""

log = logging.getLogger(__name__)


class Launcher(Protocol):
    """What a hunt needs of EC2: `fleets.Launches`, or a fake. Blocking; AwsRefused."""

    region: str

    def ask(self, order: LaunchOrder, ask: Ask) -> Answer:
        """Ask once for up to so many instances."""

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Write these tags on an instance."""

    def find(self, tags: Mapping[str, str]) -> list[Instance]:
        """All instances with these tags."""

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        """Ask for the end of these; answers the ids that EC2 doesn't know."""

    def close(self) -> None:
        """Remove what the asking made beside instances."""


class LaunchStopped(FleetError):
    """This process was told to stop while the instance was launched; none is left."""

    def message(self) -> str:
        """One line."""
        return "the pool worker was stopped while it launched the instance"


class TagsRefused(FleetError):
    """The tags of an instance could not be written, so that it could not learn what it is for; it was terminated."""

    instance: str
    region: str
    why: str

    def message(self) -> str:
        """One line: which, why, what to look at."""
        return (
            f"instance {self.instance} in {self.region} was terminated, since its tags could not be written: {self.why}. Does "
            "the pool worker's AWS identity have ec2:CreateTags on instances of its pool?"
        )


@dataclass(eq=False, slots=True)
class Member:
    """Somebody who waits for one instance of a group."""

    attempt: str
    """New for each attempt of what the instance is for."""
    tags: Mapping[str, str]
    """Its own, beside those of the order."""
    instance: Instance | None = None
    """What it was given: it alone answers for it from then on."""
    error: BaseException | None = None
    gone: bool = False
    """It waits no more: set by whoever waited."""
    settling: bool = False
    """An instance is being made ready for it."""
    failures: int = 0
    done: anyio.Event = field(default_factory=anyio.Event)
    """Set once it has an instance or an error."""

    @property
    def missing(self) -> bool:
        """Whether an instance has to be asked for."""
        return not (self.gone or self.settling or self.done.is_set())

    def take(self, instance: Instance) -> None:
        """Here it is."""
        self.instance = instance
        self.done.set()

    def fail(self, error: BaseException) -> None:
        """There is none."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Pace:
    """The pace of all launches with one set of clients."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        self.launches = Pacer(LAUNCHES, clock=clock, sleep=sleep)
        self.taggings = Pacer(TAGGINGS, clock=clock, sleep=sleep)
        self.together = True
        """Whether this account takes requests for several places at once; learnt once."""


class Hunt:
    """One group of launches of equal orders."""

    def __init__(
        self,
        ec2: Launcher,
        order: LaunchOrder,
        places: Sequence[Candidate],
        members: Sequence[Member],
        *,
        pace: Pace | None = None,
        deadline_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._ec2, self._order, self._members = ec2, order, members
        self._pace = pace or Pace(clock=clock, sleep=sleep)
        self._clock, self._sleep, self._draw = clock, sleep, draw
        self._ledger = Ledger(ec2, order)
        self._given: set[str] = set()
        self._dropped: set[str] = set()
        self._search = Search(
            order.attempt,
            places,
            region=ec2.region,
            until=clock() + deadline_seconds,
            seconds=deadline_seconds,
            together=self._pace.together,
        )

    async def run(self) -> None:
        """Until each member has an instance or its error, and nothing else of the group is left. Raises only cancellation."""
        error: BaseException = LaunchStopped()
        try:
            await self._look()
        except Exception as found:  # noqa: BLE001  each member is told, and raises it
            error = found
        finally:
            try:
                with anyio.move_on_after(CLEAN_UP_S, shield=True) as cleaning:
                    await self._clean_up()
                if cleaning.cancelled_caught:
                    log.error("cleaning up after the launch %s took too long: %s", self._order.attempt, MAY_BE_LEFT)
            finally:
                for member in self._members:
                    member.fail(error)

    async def _look(self) -> None:
        while any(member.missing for member in self._members):
            ended: Exception | None = None
            async with anyio.create_task_group() as settling:
                try:
                    await self._ask(settling)
                except Exception as error:  # noqa: BLE001  raised below: here, it would cancel whose instance is made ready
                    ended = error
            if ended is not None:
                raise ended

    async def _ask(self, settling: anyio.abc.TaskGroup) -> None:
        """Ask for what is missing until nothing is. LaunchFailed."""
        while self._missing():
            self._search.next(self._missing())  # nowhere left to ask: no turn is needed to hear that
            await self._pace.launches.turn()
            if not (missing := self._missing()):
                return
            ask = self._search.next(missing)
            try:
                answer = await anyio.to_thread.run_sync(self._ledger.ask, ask)
            except AwsRefused as refused:
                if refused.code in THROTTLED:
                    self._pace.launches.refused()
                wait = self._search.refused(ask, refused.code, refused.why, now=self._clock(), draw=self._draw())
            else:
                if any(refusal.code in THROTTLED for refusal in answer.refusals):
                    self._pace.launches.refused()
                else:
                    self._pace.launches.went()
                self._hand_out(answer.instances, settling)
                wait = self._search.answered(
                    ask, len(answer.instances), answer.refusals, now=self._clock(), draw=self._draw()
                )
            self._pace.together = self._pace.together and self._search.together
            if wait > 0:
                await self._sleep(wait)

    def _missing(self) -> int:
        return sum(member.missing for member in self._members)

    def _hand_out(self, instances: Iterable[Instance], settling: anyio.abc.TaskGroup) -> None:
        """An instance to each who waits; what is over (some have gone meanwhile) is terminated."""
        waiting = iter([member for member in self._members if member.missing])
        for instance in instances:
            member = next(waiting, None)
            if member is None:
                settling.start_soon(self.drop, [instance.id])
            else:
                member.settling = True
                settling.start_soon(self._settle, member, instance)

    async def _settle(self, member: Member, instance: Instance) -> None:
        """Make the instance the member's own. One that fails at this takes no other with it."""
        try:
            await self._tag(instance.id, member.tags)
        except AwsRefused as refused:
            await self.drop([instance.id])
            member.failures += 1
            member.settling = False
            if member.failures >= TAG_CHANCES:
                member.fail(
                    TagsRefused(instance=instance.id, region=instance.region, why=f"{refused.code}: {refused.why}")
                )
            return
        except Exception as error:  # noqa: BLE001  the member raises it
            await self.drop([instance.id])
            member.fail(error)
            return
        if member.gone:
            await self.drop([instance.id])
            return
        self._given.add(instance.id)
        member.take(dataclasses.replace(instance, tags={**self._order.tags, **instance.tags, **member.tags}))

    async def _tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Write the tags; again where EC2 doesn't know the instance yet, throttles, or gives no answer. AwsRefused."""
        began = self._clock()
        tries = 0
        while True:
            await self._pace.taggings.turn()
            try:
                await anyio.to_thread.run_sync(self._ec2.tag, instance_id, tags)
            except AwsRefused as refused:
                if refused.code in THROTTLED:
                    self._pace.taggings.refused()
                tries += 1
                wait = wait_after(tries, self._draw())
                if self._clock() + wait > began + _tagging_seconds(refused.code):
                    raise
                await self._sleep(wait)
            else:
                self._pace.taggings.went()
                return

    async def drop(self, ids: Iterable[str]) -> None:
        """Terminate these; again where EC2 doesn't know them yet. Never raises AwsRefused: what is left is named in the log."""
        left = sorted(set(ids) - self._dropped)
        for tries in range(1, DROP_TRIES + 1):
            if not left:
                return
            codes: Mapping[str, str] = {}
            error: AwsRefused | None = None
            try:
                unknown = await in_thread(self._ec2.terminate, left)
            except TerminationRefused as refused:  # the others go
                unknown, codes, error = refused.unknown, refused.codes, refused
            except AwsRefused as refused:
                unknown, codes, error = frozenset[str](), dict.fromkeys(left, refused.code), refused
            self._dropped |= {*left} - unknown - codes.keys()
            again = {each for each, code in codes.items() if code in DROP_AGAIN and tries < DROP_TRIES}
            if kept := sorted(codes.keys() - again):
                log.error("instances left running: %s: %s", ", ".join(kept), error)
            left = sorted(unknown | again)
            if left and tries < DROP_TRIES:
                await self._sleep(wait_after(tries, self._draw()))
        if left:
            log.warning("instances that EC2 doesn't know after their launch: %s", ", ".join(left))

    async def _clean_up(self) -> None:
        """Remove everything of this group that nobody has taken. Each step has its turn, whatever fails in another."""
        steps: tuple[Callable[[], Awaitable[None]], ...] = (self._drop_untaken, self._close)
        for step in steps:
            try:
                await step()
            except Exception:
                log.exception("cleaning up after the launch %s failed: %s", self._order.attempt, MAY_BE_LEFT)

    async def _drop_untaken(self) -> None:
        launched, in_doubt = await in_thread(self._ledger.end)
        await self.drop(launched - self._given)
        for look in range(LOOKS if in_doubt else 0):
            if look:
                await self._sleep(LOOK_AGAIN_S)
            try:
                found = await in_thread(self._ec2.find, {LAUNCH_TAG: self._order.attempt})
            except AwsRefused as refused:
                log.warning("instances of the launch %s can't be looked for: %s", self._order.attempt, refused)
                continue
            await self.drop({instance.id for instance in found if not instance.leaving} - self._given)

    async def _close(self) -> None:
        try:
            await in_thread(self._ec2.close)
        except AwsRefused as refused:
            log.warning("a launch template is left: %s", refused)


def _tagging_seconds(code: str) -> float:
    """For how long after its first try a tag that was refused with this code is tried again."""
    if code in DENIED:
        return DENIED_S
    return TAG_S if code in UNKNOWN_INSTANCE | THROTTLED | IN_DOUBT else 0.0


class Ledger:
    """What a group has asked for. Its methods run in threads, and outlive an await that was cancelled."""

    def __init__(self, ec2: Launcher, order: LaunchOrder) -> None:
        self._ec2, self._order = ec2, order
        self._launched: set[str] = set()
        self._in_doubt = False
        self._ended = False
        # Held while EC2 is asked: a cancelled task leaves its thread behind, and the end waits here for it.
        self._asking = threading.Lock()

    def ask(self, ask: Ask) -> Answer:
        """One call. The ids are kept here, since a cancelled await loses what its thread returns. AwsRefused."""
        with self._asking:
            if self._ended:
                raise RuntimeError("this group of launches has ended")
            try:
                answer = self._ec2.ask(self._order, ask)
            except AwsRefused as refused:
                self._in_doubt = self._in_doubt or refused.code in IN_DOUBT
                raise
            except BaseException:  # a fault of ours, after the answer for all we know
                self._in_doubt = True
                raise
            self._launched |= {instance.id for instance in answer.instances}
            self._in_doubt = self._in_doubt or any(refusal.code in IN_DOUBT for refusal in answer.refusals)
            return answer

    def end(self) -> tuple[frozenset[str], bool]:
        """No call from here on: the ids that were launched, and whether there may be more."""
        with self._asking:
            self._ended = True
            return frozenset(self._launched), self._in_doubt
