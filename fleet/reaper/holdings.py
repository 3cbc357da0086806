"""What one deployment holds in AWS: all of it listed by our tags, and each thing marked, removed and looked for again.

A thing without our tags isn't listed, so that nothing here can touch it. Only what carries the tag of a run or of a work pool
counts; a queue's name and a parameter's path only say where to look. Locks lie under the deployment's own prefix.

The order of a look is part of its meaning: a run takes its locks before it makes anything, so that locks are read last. What is
seen of a run that lives then has a lock that is seen too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from fleet.aws.failures import AwsRefused, Denied
from fleet.aws.instances import Instances
from fleet.aws.objects import ObjectAbsent
from fleet.aws.queues import QueueGone
from fleet.aws.remains import Remains, Remnant
from fleet.evals.documents import EvalId
from fleet.evals.lock import HOLD_S, LockDocument
from fleet.evals.preparation import EVAL_TAG, HOME_TAG, OWNER_TAG, RUN_TAG, home_of
from fleet.evals.site import Site
from fleet.pool.order import FLOW_RUN_TAG, POOL_TAG
from fleet.reaper.things import MARK_TAG, NO_MARK, Kind, Thing, evals_of, mark_of, read_mark
from fleet.wire import DocumentRefused

QUEUE_PREFIX = "inspect-fleet-"
A_RUN = "00000000-0000-0000-0000-000000000000"
"""As long as any flow run's id; the key of a later attempt goes on after it."""
NEVER = math.inf
"""When a lock expires that doesn't say it."""
AT_ONCE = 16
"""Reads of S3 at a time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything."""

    things: tuple[Thing, ...]
    unseen: tuple[str, ...] = ()
    """What this identity may not look at, and the deployment can live without knowing."""
    regions: tuple[str, ...] = ()
    """Where all that decides was seen."""
    own_region: str = ""
    """The account's: where the fleets of runs are that named no region."""
    home: str = ""
    """Where the locks were looked for."""

    def locks(self, run: str) -> list[Thing]:
        """The locks that name this run."""
        return [thing for thing in self.things if thing.kind == "lock" and thing.run == run]


class Holdings(Protocol):
    """What a deployment holds (`AwsHoldings`, or a fake)."""

    def look(self) -> Seen:
        """Everything there is now. AwsRefused: it can't be seen, so that nothing can be decided."""

    def mark(self, thing: Thing, moment: float | None) -> None:
        """Write down since when it is nobody's; None: it has an owner after all."""

    def remove(self, thing: Thing) -> None:
        """Ask for its end; an absent one is success."""

    def gone(self, thing: Thing) -> bool:
        """Whether it isn't there any more, or can't be kept from going."""

    def locks(self, things: Sequence[Thing]) -> list[Thing]:
        """The locks there are now that may be held for these things of one run; all, where they don't name all of its evals."""


class AwsHoldings:
    """Of one bucket, in the fleet regions of these sites; the locks count as the first one's."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = {site.region: site for site in sites}
        self._home = sites[0]

    def look(self) -> Seen:
        """Everything there is now. AwsRefused: of the first region. Another that doesn't answer is named: a run may have asked for
        one that there isn't."""
        things: list[Thing] = []
        unseen: list[str] = []
        regions: list[str] = []
        for site in self._sites.values():
            try:
                found, blind = _in_region(site)
            except AwsRefused as refused:
                if site is self._home:
                    raise
                unseen.append(f"{site.region}: {refused}")
                continue
            things += found
            unseen += blind
            regions.append(site.region)
        locks, unread = _locks(self._home, things, None)
        return Seen(
            (*things, *locks), (*unseen, *unread), tuple(regions), self._home.bucket_region, home_of(self._home)
        )

    def locks(self, things: Sequence[Thing]) -> list[Thing]:
        """Those of the evals that these things of one run name: of all evals that ever ran there may be thousands. AwsRefused."""
        return _locks(self._home, things, evals_of(things))[0]

    def mark(self, thing: Thing, moment: float | None) -> None:
        """Tag an instance or a queue. AwsRefused."""
        site, tags = self._sites[thing.region], {MARK_TAG: NO_MARK if moment is None else mark_of(moment)}
        if thing.kind == "instance":
            Instances(site.aws).tag(thing.id, tags)
        else:
            site.queues.tag(thing.id, tags)

    def remove(self, thing: Thing) -> None:
        """Ask for the end of a thing; an absent one is success. AwsRefused."""
        site = self._sites[thing.region]
        match thing.kind:
            case "instance":
                Instances(site.aws).terminate([thing.id])
            case "queue":
                site.queues.delete(thing.id)
            case "parameter":
                site.parameters.delete([thing.id])
            case "volume":
                Remains(site.aws).delete_volume(thing.id)
            case "launch template":
                Remains(site.aws).delete_template(thing.id)
            case "lock":
                self._home.objects.delete_if(thing.id, thing.etag)

    def gone(self, thing: Thing) -> bool:
        """Look again. AwsRefused."""
        site = self._sites[thing.region]
        match thing.kind:
            case "instance":
                instance = Instances(site.aws).get(thing.id)
                return instance is None or instance.leaving
            case "queue":
                try:
                    site.queues.tags(thing.id)
                except QueueGone:
                    return True
                return False
            case "parameter":
                return not site.parameters.has(thing.id, RUN_TAG, thing.run)
            case "volume":
                return all(found.id != thing.id for found in Remains(site.aws).volumes(POOL_TAG))
            case "launch template":
                return all(found.id != thing.id for found in Remains(site.aws).templates(POOL_TAG))
            case "lock":
                now = _lock(self._home, thing.id)
                return now is None or (isinstance(now, Thing) and now.run != thing.run)  # another run's by now


def _in_region(site: Site) -> tuple[list[Thing], list[str]]:
    """What there is in one region, and what this identity may not look at."""
    remains, unseen = _remains(site)
    # Queues last: a run makes them first, and they say where its locks lie.
    return [*_instances(site), *_parameters(site), *_queues(site), *remains], unseen


def _instances(site: Site) -> Iterator[Thing]:
    for found in Instances(site.aws).find({POOL_TAG: "*"}):
        if not found.leaving:
            yield Thing(
                "instance",
                found.id,
                site.region,
                run=found.tags.get(RUN_TAG, ""),
                flow_run=found.tags.get(FLOW_RUN_TAG, ""),
                pool=found.tags.get(POOL_TAG, ""),
                evals=found.tags.get(EVAL_TAG, ""),
                owner=found.tags.get(OWNER_TAG, ""),
                detail=f"{found.market} {found.instance_type}, {found.state}",
                born=found.launched_at.timestamp(),
                marked=read_mark(found.tags.get(MARK_TAG)),
            )


def _queues(site: Site) -> Iterator[Thing]:
    for url in site.queues.find(QUEUE_PREFIX):
        try:
            tags = site.queues.tags(url)
        except QueueGone:  # SQS lists a deleted queue for another minute
            continue
        if tags.get(RUN_TAG):
            yield Thing(
                "queue",
                url,
                site.region,
                run=tags[RUN_TAG],
                evals=tags.get(EVAL_TAG, ""),
                home=tags.get(HOME_TAG, ""),
                owner=tags.get(OWNER_TAG, ""),
                marked=read_mark(tags.get(MARK_TAG)),
            )


def _parameters(site: Site) -> Iterator[Thing]:
    """A path names a run's attempt, and the tag has the last word: only the parameters that carry it are the run's."""
    path = site.parameter_path
    keys = {name.removeprefix(f"{path}/").partition("/")[0] for name in site.parameters.find(path)}
    for run in sorted({key[: len(A_RUN)] for key in keys if len(key) >= len(A_RUN)}):
        for name, written in site.parameters.tagged(path, RUN_TAG, run).items():
            yield Thing("parameter", name, site.region, run=run, born=written.timestamp())


def _remains(site: Site) -> tuple[list[Thing], list[str]]:
    """Volumes and launch templates, and what this identity may not look at of them: they cost little, and nothing hangs on them."""
    remains = Remains(site.aws)
    looks: dict[Kind, Callable[[str], list[Remnant]]] = {
        "volume": remains.volumes,
        "launch template": remains.templates,
    }
    things: list[Thing] = []
    unseen: list[str] = []
    for kind, look in looks.items():
        try:
            things += [_remnant(kind, site, found) for found in look(POOL_TAG) if found.tags.get(POOL_TAG)]
        except Denied as denied:
            unseen.append(f"{kind}s in {site.region}: {denied}")
    return things, unseen


def _remnant(kind: Kind, site: Site, found: Remnant) -> Thing:
    return Thing(
        kind,
        found.id,
        site.region,
        run=found.tags.get(RUN_TAG, ""),
        pool=found.tags[POOL_TAG],
        owner=found.tags.get(OWNER_TAG, ""),
        detail=found.detail,
        born=found.born.timestamp(),
    )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A lock that doesn't say whose it is: it protects every run of its eval, since one of them may hold it."""

    key: str
    eval_id: EvalId
    region: str
    etag: str
    why: str

    def line(self) -> str:
        """It for a person."""
        return f"the lock {self.key} ({self.why}): what runs of its eval have is kept. If none is at work, delete the object"

    def claims(self, things: Iterable[Thing]) -> list[Thing]:
        """A lock that holds, for each run among the things that works this eval."""
        runs = {one.run: one.owner for one in things if one.run and self.eval_id in one.evals.split()}
        return [
            Thing("lock", self.key, self.region, run=run, owner=owner, expires=NEVER, etag=self.etag)
            for run, owner in runs.items()
        ]


def _locks(site: Site, things: Sequence[Thing], evals: Iterable[str] | None) -> tuple[list[Thing], list[str]]:
    """The locks of these evals (None: all), and what can't be read among them; such a one counts as held for whatever of `things`
    it may be."""
    names = site.objects.folders(f"{site.layout.prefix}/evals/") if evals is None else evals
    keys = [site.layout.lock(EvalId(name)) for name in names]
    with ThreadPoolExecutor(AT_ONCE) as readers:
        found = list(readers.map(lambda key: _lock(site, key), keys))
    unreadable = [lock for lock in found if isinstance(lock, Unreadable)]
    claims = [claim for lock in unreadable for claim in lock.claims(things)]
    return [*(lock for lock in found if isinstance(lock, Thing)), *claims], [lock.line() for lock in unreadable]


def _lock(site: Site, key: str) -> Thing | Unreadable | None:
    """The lock at `key`, whichever release wrote it; None: there is none."""
    try:
        content, etag = site.objects.get_tagged(key)
    except ObjectAbsent:
        return None
    try:
        held = LockDocument.of_any_release(content)
    except DocumentRefused as refused:
        return Unreadable(key, EvalId(key.split("/")[-2]), site.region, etag, str(refused))
    taken = held.expires - HOLD_S
    return Thing("lock", key, site.region, run=held.run, owner=held.owner, born=taken, expires=held.expires, etag=etag)
