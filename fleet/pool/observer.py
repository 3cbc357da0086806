"""The watch over all instances of a pool worker: one paged describe and one read of flow runs for all of them, again and again.

`verdict` decides, this carries out. What it watches is what this process launched, and what carries the pool's tag: after a
restart, or when another pool worker is gone, its instances are adopted. Two pool workers may watch one instance: every
step may be taken twice, and only who really set a state writes it into the flow run's log.

A look that fails decides nothing: an answer that didn't come is never taken for an instance that is gone.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

import anyio
import anyio.to_thread
import httpx

from fleet.aws.failures import AwsRefused
from fleet.aws.instances import Instance, Instances, TerminationRefused
from fleet.aws.session import Aws
from fleet.pool import boot_log
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG, as_uuid
from fleet.pool.settings import PoolSettings
from fleet.pool.verdict import OVER_PHASES, Limits, RunPhase, Settle, Sight, Verdict, verdict
from fleet.pool.watched import EVER, Host, Runs, Terms, Watched

if TYPE_CHECKING:
    from fleet.pool.run_states import RunView
    from fleet.pool.watched import Logger

COMPLAIN_EVERY_S = 60.0
"""The same trouble is logged once a minute, not at each look."""
UNCLAIMED_S = 180.0
"""Beyond the launch deadline, how long an instance may lack the tag with its flow run: whoever launched it had time to write it
and to clean up, and the instance itself waits for less."""
AT_WORK = frozenset({RunPhase.SUBMITTING, RunPhase.PENDING, RunPhase.ACTIVE})
"""Where a flow run needs the instance that it has."""


class Observer:
    """Watches until told to leave. `look` is one round; `run` goes on looking."""

    def __init__(
        self,
        host: Host,
        runs: Runs,
        settings: PoolSettings,
        log: Logger,
        *,
        ec2_of: Callable[[Aws], Instances] = Instances,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._host, self._runs, self._settings, self._log = host, runs, settings, log
        self._ec2_of, self._clock, self._now = ec2_of, clock, now
        self._watches: dict[str, Watched] = {}
        self._launching: dict[UUID, list[anyio.CancelScope]] = {}
        self._home: Sequence[Aws] = ()
        self._next_sweep = float("-inf")
        self._complained: dict[str, float] = {}
        self._leaving = False
        self._wake = anyio.Event()

    @property
    def watched(self) -> frozenset[str]:
        """The ids of the instances that are watched."""
        return frozenset(self._watches)

    @contextmanager
    def launching(self, run_id: UUID) -> Iterator[anyio.CancelScope]:
        """While an instance of this flow run is launched: it is no stranger, and older ones of the run have to go.

        The launch is to happen in the scope that this gives: it is cancelled as soon as the flow run needs no instance.
        """
        for watch in self._watches.values():
            watch.superseded = watch.superseded or watch.run_id == run_id
        scope = anyio.CancelScope()
        self._launching.setdefault(run_id, []).append(scope)
        try:
            yield scope
        finally:
            self._launching[run_id].remove(scope)
            if not self._launching[run_id]:
                del self._launching[run_id]

    def add(self, run_id: UUID, instance: Instance, terms: Terms) -> Watched:
        """Watch an instance that was launched just now."""
        watch = Watched(run_id, instance.id, terms, born=self._clock(), launched_at=instance.launched_at)
        self._watches[instance.id] = watch
        self._wake.set()
        return watch

    def drop(self, watch: Watched) -> None:
        """Watch it no more."""
        if self._watches.get(watch.instance_id) is watch:
            del self._watches[watch.instance_id]
        watch.done.set()

    def leave(self) -> None:
        """End `run` when the instances that this process launched need it no more; adopted ones are found again."""
        self._leaving = True
        self._wake.set()

    async def run(self) -> None:
        """Look, wait, look again. Nothing that goes wrong in one look ends it."""
        self._leaving = False
        while not (self._leaving and not self._launching and all(each.adopted for each in self._watches.values())):
            try:
                await self.look()
            except (AwsRefused, httpx.HTTPError) as error:
                self._complain("a look at the instances", error)
            except Exception:  # noqa: BLE001  the edge of a process whose instances would go unwatched
                self._log.exception("A look at the instances failed; the next one follows")
            busy = self._watches or self._launching
            with anyio.move_on_after(self._settings.poll_seconds if busy else self._settings.idle_seconds):
                await self._wake.wait()
                self._wake = anyio.Event()

    async def look(self) -> None:
        """One round: describe, read, adopt, judge, carry out."""
        pool = self._host.pool()
        if pool is None:
            return
        sweep = self._clock() >= self._next_sweep
        if sweep:
            self._home = await self._host.home()
        scopes = {*self._home, *(watch.terms.aws for watch in self._watches.values())}
        seen = await self._describe(scopes, pool[0])
        strangers = self._strangers(seen)
        asked = {*(watch.run_id for watch in self._watches.values()), *(run_id for run_id, _ in strangers)}
        launching = list(self._launching)
        views = await self._runs.read(list({*asked, *launching}))
        self._give_up([run_id for run_id in launching if run_id not in views or views[run_id].phase in OVER_PHASES])
        await self._end_unclaimed(seen)
        await self._adopt(strangers, views)
        if sweep:
            await self._adopt_recorded(pool[1], {run_id for run_id, _ in strangers})
            self._next_sweep = self._clock() + self._settings.sweep_seconds
        await self._record(seen, views)
        await self._judge(seen, asked, views)

    async def _describe(self, scopes: Iterable[Aws], pool_id: str) -> dict[Aws, dict[str, Instance]]:
        """The pool's instances by scope, of the scopes that answered."""
        seen: dict[Aws, dict[str, Instance]] = {}

        async def one(aws: Aws) -> None:
            try:
                found = await anyio.to_thread.run_sync(self._ec2_of(aws).find, {POOL_TAG: pool_id})
            except AwsRefused as refused:
                self._complain(f"the instances in {aws.region}", refused)
                return
            seen[aws] = {instance.id: instance for instance in found}

        async with anyio.create_task_group() as group:
            for aws in scopes:
                group.start_soon(one, aws)
        return seen

    def _give_up(self, unwanted: Iterable[UUID]) -> None:
        """Stop the launches for flow runs that have ended, or whose end was asked for."""
        for run_id in unwanted:
            for scope in self._launching.get(run_id, []):
                scope.cancel()

    async def _end_unclaimed(self, seen: Mapping[Aws, Mapping[str, Instance]]) -> None:
        """Terminate what a pool worker launched and never said what for: it was killed in between."""
        oldest = self._now() - datetime.timedelta(seconds=self._settings.launch_seconds + UNCLAIMED_S)
        for aws, instances in seen.items():
            unclaimed = [
                instance.id
                for instance in instances.values()
                if not instance.leaving
                and instance.id not in self._watches
                and as_uuid(instance.tags.get(FLOW_RUN_TAG, "")) is None
                and instance.launched_at < oldest
            ]
            if not unclaimed:
                continue
            try:
                await anyio.to_thread.run_sync(self._ec2_of(aws).terminate, unclaimed)
            except AwsRefused as refused:
                self._complain(f"the end of instances in {aws.region}", refused)
            else:
                self._log.warning("Terminated %s: launched for this pool, but for no flow run", ", ".join(unclaimed))

    # Adoption

    def _strangers(self, seen: Mapping[Aws, Mapping[str, Instance]]) -> list[tuple[UUID, Instance]]:
        """Living instances of this pool that nobody here watches, with their flow run."""
        found = []
        for instances in seen.values():
            for instance in instances.values():
                run_id = as_uuid(instance.tags.get(FLOW_RUN_TAG, ""))
                known = instance.id in self._watches or run_id in self._launching
                if run_id is not None and not known and not instance.leaving:
                    found.append((run_id, instance))
        return found

    async def _adopt(self, strangers: Iterable[tuple[UUID, Instance]], views: Mapping[UUID, RunView]) -> None:
        for run_id, instance in strangers:
            view = views.get(run_id)
            terms = await self._host.terms(view.run if view else None, instance.region)
            if instance.id in self._watches or run_id in self._launching:
                continue  # while this waited, its launch came to its end
            age = max(0.0, (self._now() - instance.launched_at).total_seconds())
            self._watches[instance.id] = Watched(
                run_id, instance.id, terms, born=self._clock() - age, launched_at=instance.launched_at, adopted=True
            )
            self._log.info("Watching instance %s of flow run %s, which was launched earlier", instance.id, run_id)

    async def _adopt_recorded(self, pool: str, present: set[UUID]) -> None:
        """Flow runs whose instance nobody watches and nobody sees: it may have ended while no pool worker was there."""
        views = await self._runs.at_work(pool)
        await self._take_up_again(
            [view for view in views if view.phase is RunPhase.SUBMITTING and view.id not in present]
        )
        for view in views:
            watched = {watch.run_id for watch in self._watches.values()} | self._launching.keys() | present
            region, _, instance_id = (view.infrastructure or "").partition("::")
            # A run that is being submitted still has the record of the attempt before.
            if view.id in watched or not instance_id.startswith("i-") or view.phase is RunPhase.SUBMITTING:
                continue
            terms = await self._host.terms(view.run, region)
            self._watches.setdefault(
                instance_id, Watched(view.id, instance_id, terms, born=self._clock(), adopted=True)
            )

    async def _take_up_again(self, submitting: Sequence[RunView]) -> None:
        """Flow runs that a pool worker took up and nobody launches: it was killed in between, and Prefect submits no run twice.

        Where other pool workers are at work, one of them may be launching: then the runs get the time that this may take.
        """
        watched = {watch.run_id for watch in self._watches.values()}
        known = watched | self._launching.keys() | self._host.submitting()
        orphans = [view for view in submitting if view.id not in known]
        if not orphans:
            return
        oldest = self._now() - datetime.timedelta(seconds=self._settings.launch_seconds + UNCLAIMED_S)
        try:
            alone = await self._host.is_alone()
            for view in orphans:
                if alone or (view.since is not None and view.since < oldest):
                    await self._runs.schedule_again(
                        view.id, "the pool worker that took it up was killed before its launch"
                    )
                    self._log.warning("Flow run %s is launched again: whoever took it up is gone", view.id)
        except httpx.HTTPError as error:  # the instances are judged all the same
            self._complain("flow runs that nobody launches", error)

    async def _record(self, seen: Mapping[Aws, Mapping[str, Instance]], views: Mapping[UUID, RunView]) -> None:
        """Write an instance's id on the flow run that doesn't name it: Prefect only logs it when that fails.

        Whoever gives the instance its secrets looks there. A record of an instance that EC2 doesn't show stays: it may be
        a newer one.
        """
        for watch in list(self._watches.values()):
            there = seen.get(watch.terms.aws, {})
            instance, view = there.get(watch.instance_id), views.get(watch.run_id)
            if instance is None or instance.leaving or watch.superseded or view is None or view.phase not in AT_WORK:
                continue
            named = there.get((view.infrastructure or "").rpartition("::")[2])
            if view.infrastructure and (named is None or named.launched_at >= instance.launched_at):
                continue
            try:
                await self._runs.record(watch.run_id, instance.identifier)
            except httpx.HTTPError as error:
                self._complain(f"the record of instance {instance.id}", error)

    # Judgement

    async def _judge(
        self, seen: Mapping[Aws, Mapping[str, Instance]], asked: set[UUID], views: Mapping[UUID, RunView]
    ) -> None:
        newest: dict[str, datetime.datetime] = {}
        for instance in (each for instances in seen.values() for each in instances.values()):
            run = instance.tags.get(FLOW_RUN_TAG, "")
            newest[run] = max(newest.get(run, EVER), instance.launched_at)
        # One that came during this look, or whose scope gave no answer, waits for the next.
        judged = [each for each in self._watches.values() if each.run_id in asked and each.terms.aws in seen]
        verdicts = {
            watch: self._verdict_on(
                watch, seen[watch.terms.aws].get(watch.instance_id), views.get(watch.run_id), newest
            )
            for watch in judged
        }
        going = await self._terminate({watch: found.why for watch, found in verdicts.items() if found.terminate})
        async with anyio.create_task_group() as group:
            for watch, found in verdicts.items():
                if found.settle or found.over:
                    group.start_soon(self._carry_out, watch, found, views.get(watch.run_id), watch in going)

    def _verdict_on(
        self,
        watch: Watched,
        instance: Instance | None,
        view: RunView | None,
        newest: Mapping[str, datetime.datetime],
    ) -> Verdict:
        now = self._clock()
        phase = view.phase if view else RunPhase.DELETED
        if instance is not None:
            watch.missing_since, watch.launched_at = None, instance.launched_at
        elif watch.missing_since is None:
            watch.missing_since = now
        if phase not in (RunPhase.CRASHED, RunPhase.FINAL, RunPhase.RELEASED):
            watch.over_since = None
        elif watch.over_since is None:
            watch.over_since = now
        sight = Sight(
            instance=instance,
            phase=phase,
            age=now - watch.born,
            missing_for=0.0 if watch.missing_since is None else now - watch.missing_since,
            over_for=0.0 if watch.over_since is None else now - watch.over_since,
            asked=view.why if view else "",
            settled=watch.settled,
            settled_why=watch.settled_why,
            superseded=watch.superseded or newest.get(str(watch.run_id), EVER) > watch.launched_at,
        )
        limits = Limits(
            boot=watch.terms.boot_seconds,
            grace=self._settings.grace_seconds,
            missing=self._settings.missing_seconds,
            submit=self._settings.launch_seconds,
        )
        return verdict(sight, limits)

    async def _terminate(self, reasons: Mapping[Watched, str]) -> set[Watched]:
        """Ask for the end of these, in one call a scope; those whose end EC2 took up."""
        going: set[Watched] = set()
        for aws in {watch.terms.aws for watch in reasons}:
            mine = [watch for watch in reasons if watch.terms.aws is aws]
            ids = [watch.instance_id for watch in mine]
            try:
                unknown = await anyio.to_thread.run_sync(self._ec2_of(aws).terminate, ids)
            except TerminationRefused as refused:
                self._complain(f"the end of {', '.join(refused.codes)} in {aws.region}", refused)
                unknown = refused.unknown.union(refused.codes)
            except AwsRefused as refused:
                self._complain(f"the end of instances in {aws.region}", refused)
                continue
            going |= {watch for watch in mine if watch.instance_id not in unknown}
        for watch in going:
            self._log.info("Terminated instance %s: %s", watch.instance_id, reasons[watch])
        return going

    async def _carry_out(self, watch: Watched, found: Verdict, view: RunView | None, terminated: bool) -> None:
        """Set the state, and let go of what is over. What fails is taken up by the next look."""
        if found.terminate and not terminated:
            return  # a state that says the instance is gone must not be set before it goes
        why = f"{watch.instance_id}: {found.why}"
        try:
            if found.settle is Settle.CANCELLED:
                await self._runs.cancel(watch.run_id, why)
            elif found.settle is Settle.CRASHED:
                first = await self._runs.crash(watch.run_id, why, interrupted=found.interrupted)
                if first and view is not None:
                    await self._tell(watch, why, self._host.log_of(view.run))
        except httpx.HTTPError as error:
            self._complain(f"the state of flow run {watch.run_id}", error)
            return
        if found.settle:
            watch.settled, watch.settled_why = found.settle, found.why
        if found.over:
            self.drop(watch)

    async def _tell(self, watch: Watched, why: str, log: Logger) -> None:
        log.error(why)
        last = await anyio.to_thread.run_sync(boot_log.tail, watch.terms.aws, watch.terms.log_folder, watch.instance_id)
        if last:
            log.error("The last lines of the boot log of %s:\n%s", watch.instance_id, last)

    def _complain(self, about: str, error: Exception) -> None:
        now = self._clock()
        if now - self._complained.get(about, float("-inf")) >= COMPLAIN_EVERY_S:
            self._complained[about] = now
            self._log.warning("Trouble with %s, to be tried again: %s", about, error or type(error).__name__)
