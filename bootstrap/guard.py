"""Whether this host is still fit for jobs, looked at while they run: disk, inodes, memory, and Docker's engine where they need it.

Pure, but for `Guard`, which carries it out. Two bad looks in a row stop the intake, and what is safe to remove is removed
(`pruning`); a host that is well again takes jobs again; one that stays bad gives its jobs back and ends. Well again means twice
as much as what counts as too little, so that a host on the edge doesn't flap. Where a job has ended for the host's sake
(`delivery`), the intake has stopped already, and one look decides.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace

import anyio

from bootstrap.clockwork import Clockwork
from bootstrap.work import Work

LOOK_SECONDS = 15.0
BAD_LOOKS = 2
"""In a row: one may be a moment's burst, or an engine that is busy."""
PRUNE_EVERY_SECONDS = 120.0
"""While it stays bad: what was too young to be removed gets older."""
GIVE_UP_SECONDS = 300.0
"""How long a host may stay bad: its jobs could run elsewhere."""
PRUNE_SECONDS = 120.0
"""For one round of pruning, which ends itself before that: it must not keep the guard from its next look."""

GIB = 2**30
DISK = (0.05, 5 * GIB)
INODES = (0.03, 200_000)
MEMORY = (0.05, 2 * GIB)
"""Less than this share is too little, but never more than this much: 5% of a large disk are plenty."""
WELL_AGAIN = 2.0


@dataclass(frozen=True, slots=True)
class Filesystem:
    """Room on one filesystem."""

    folder: str
    """A folder on it that matters."""
    free: int
    size: int
    """Bytes."""
    free_inodes: int = 0
    inodes: int = 0
    """0: it has no fixed number of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the host."""

    filesystems: tuple[Filesystem, ...] = ()
    memory: tuple[int, int] | None = None
    """Bytes available, and in all; None: this system doesn't say."""
    engine: str = ""
    """Why Docker's engine doesn't answer; empty: it does, or isn't needed."""
    silent: str = ""
    """Why there is no reading: a host on which a look hangs is as bad as one without a disk."""


@dataclass(frozen=True, slots=True)
class Ailment:
    """One thing that is wrong."""

    kind: str
    """disk, inodes, memory, engine, silent."""
    where: str
    why: str


def ailments(reading: Reading, before: Collection[tuple[str, str]] = ()) -> tuple[Ailment, ...]:
    """What is wrong; for what was wrong `before` (kind, where), the higher bar of being well again counts."""
    found = []

    def check(kind: str, where: str, free: int, size: int, bar: tuple[float, int], why: str) -> None:
        share, most = bar
        wanted = min(size * share, most) * (WELL_AGAIN if (kind, where) in before else 1.0)
        if size and free < wanted:
            found.append(Ailment(kind, where, why))

    for one in reading.filesystems:
        disk = f"{_gib(one.free)} of {_gib(one.size)} free in {one.folder}"
        check("disk", one.folder, one.free, one.size, DISK, disk)
        inodes = f"{one.free_inodes:,} of {one.inodes:,} inodes free in {one.folder}"
        check("inodes", one.folder, one.free_inodes, one.inodes, INODES, inodes)
    if reading.memory is not None:
        available, size = reading.memory
        check("memory", "", available, size, MEMORY, f"{_gib(available)} of {_gib(size)} memory available")
    if reading.engine:
        found.append(Ailment("engine", "", f"Docker's engine doesn't answer ({reading.engine})"))
    if reading.silent:
        found.append(Ailment("silent", "", reading.silent))
    return tuple(found)


class Step(enum.Enum):
    """What a look calls for."""

    NOTHING = "nothing"
    HOLD = "no more jobs are taken, and what is safe to remove is removed"
    PRUNE = "once more"
    RESUME = "jobs are taken again"
    LEAVE = "it stays bad"


@dataclass(frozen=True, slots=True)
class Health:
    """What the looks so far came to."""

    bad_looks: int = 0
    ill: frozenset[tuple[str, str]] = frozenset()
    """What was wrong at the last look, once the intake is stopped."""
    held_at: float | None = None
    """Monotonic seconds: since when no jobs are taken."""
    pruned_at: float = 0.0


def after_look(health: Health, found: Collection[Ailment], at: float, *, held: bool = False) -> tuple[Health, Step]:
    """The health after a look that found this, and what to do. `held`: a job has stopped the intake."""
    if not found:
        return Health(), Step.RESUME if held or health.held_at is not None else Step.NOTHING
    if health.held_at is None:
        if not held and health.bad_looks + 1 < BAD_LOOKS:
            return replace(health, bad_looks=health.bad_looks + 1), Step.NOTHING
        ill = frozenset((one.kind, one.where) for one in found)
        return Health(ill=ill, held_at=at, pruned_at=at), Step.HOLD
    held_for = at - health.held_at
    health = replace(health, ill=frozenset((one.kind, one.where) for one in found))
    if held_for >= GIVE_UP_SECONDS:
        return health, Step.LEAVE
    if at - health.pruned_at >= PRUNE_EVERY_SECONDS:
        return replace(health, pruned_at=at), Step.PRUNE
    return health, Step.NOTHING


ADVICE = {
    "disk": "If it happens again, give instances a larger disk: --ec2-arg volume_gb=…",
    "inodes": "If it happens again, give instances a larger disk, which has more of them: --ec2-arg volume_gb=…",
    "memory": "If it happens again, take a type with more memory (--ec2-arg instance_type=…) or fewer jobs at a time "
    "(--ec2-arg concurrency_per_worker=…)",
    "engine": "If it happens again, run fewer jobs at a time (--ec2-arg concurrency_per_worker=…) or look at the engine's log "
    "on an instance (`journalctl -u docker`)",
    "silent": "If it happens again, look at the instance's disks and its type's limits",
}


def advice(found: Collection[Ailment]) -> str:
    """What helps against the first of these."""
    return next((ADVICE[one.kind] for one in found), "")


def said(found: Iterable[Ailment]) -> str:
    """What is wrong, in one line; empty: nothing is."""
    return "; ".join(one.why for one in found)


class Guard:
    """Looks at the host beside the work, and acts; a call with the work is the guard.

    Nothing it does waits without an end: a look is bounded by its reader, and pruning here.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Reading]],
        prune: Callable[[], Awaitable[str]] | None,
        *,
        clockwork: Clockwork,
        say: Callable[[str], None],
    ) -> None:
        """`prune` makes room and says what it removed; None: there is nothing to remove."""
        self._read, self._prune, self._clockwork, self._say = read, prune, clockwork, say
        self.advice = ""
        """What helps, once it has had the work leave."""

    async def __call__(self, work: Work) -> None:
        """Until the host is given up."""
        health = Health()
        while True:
            found = ailments(await self._read(), health.ill)
            health, step = after_look(health, found, self._clockwork.now(), held=work.held)
            await self._carry_out(step, found, work)
            if step is Step.LEAVE:
                return
            await self._clockwork.sleep(LOOK_SECONDS)

    async def _carry_out(self, step: Step, found: tuple[Ailment, ...], work: Work) -> None:
        why = said(found)
        match step:
            case Step.HOLD:
                work.hold(fewer=any(one.kind == "memory" for one in found))
                self._say(f"this host is unfit: {why}. No more jobs are taken until it is well")
                await work.deliveries.reports.send("host", taking=False, why=why)
                await self._make_room(found)
            case Step.PRUNE:
                await self._make_room(found)
            case Step.RESUME:
                work.resume()
                self._say(f"this host is well again: jobs are taken, {work.slots.now} at a time")
                await work.deliveries.reports.send("host", taking=True, why="")
            case Step.LEAVE:
                self.advice = advice(found)
                self._say(f"this host stays unfit: {why}. Its jobs are given back, and it ends")
                work.leave("host", why, by=self._clockwork.now(), keeps=lambda _elapsed, _durations: False)
            case _:
                pass

    async def _make_room(self, found: tuple[Ailment, ...]) -> None:
        if self._prune is None or not any(one.kind in ("disk", "inodes") for one in found):
            return
        with anyio.move_on_after(PRUNE_SECONDS) as in_time:
            self._say(await self._prune())
        if in_time.cancelled_caught:
            self._say(f"making room didn't end within {PRUNE_SECONDS:g} s")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
