"""What EC2 announces to this instance by its metadata service: that it takes the instance back, or recommends to replace it.

`fits` and `heeds` decide; `NoticeWatch` asks every few seconds while jobs run, and has the work leave.

- The notice of an interruption comes two minutes before the end. Intake stops at once. A job goes on if it will more likely than
  not be done in time, by what jobs of its eval took here; the others are back on the queue within seconds.
- A rebalance recommendation says that an interruption has become likely. It may come long before the notice, with it, or with no
  notice ever following. Intake stops where a notice would come too late for the jobs there are; what runs may finish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from statistics import median
from typing import Literal

from bootstrap.clockwork import Clockwork
from bootstrap.identity import MetadataUnclear
from bootstrap.work import Work

POLL_SECONDS = 5.0
"""As AWS recommends (EC2 user guide, "Spot Instance interruption notices")."""
NOTICE_SECONDS = 120.0
"""From an interruption's notice to the instance's end, by the same page; best effort."""
MARGIN_SECONDS = 30.0
"""Before the end: for jobs that are given back after all, sandboxes that close, and the last log."""
FINISH_SECONDS = 3600.0
"""How long what runs may go on after a recommendation. Long, since what is cut off then is lost for certain, while an
interruption is only likely; bounded, since an instance with one job left is paid for like a busy one."""

INTERRUPTION = "spot/instance-action"
REBALANCE = "events/recommendations/rebalance"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Notice:
    """An announcement."""

    kind: Literal["interruption", "rebalance"]
    at: datetime
    """interruption: the instance's end. rebalance: when EC2 said so."""
    action: str = ""
    """interruption: terminate, stop or hibernate."""


def read_notice(get: Callable[[str], str | None], now: datetime) -> Notice | None:
    """What is announced, an interruption before a recommendation. OSError: the metadata service doesn't answer, or not as it does.

    A time that can't be read is this very moment: it was announced, whenever it is.
    """
    if (text := get(INTERRUPTION)) is not None:
        said = _document(text, "action", "time")
        return Notice("interruption", _time(said["time"]) or now, str(said["action"]))
    if (text := get(REBALANCE)) is not None:
        return Notice("rebalance", _time(_document(text, "noticeTime")["noticeTime"]) or now)
    return None


def fits(elapsed: float, durations: Sequence[float], *, left: float) -> bool:
    """Whether a job that has run for `elapsed` seconds will more likely than not be done in `left` more.

    Of the `durations` of its eval's jobs that were done here, those count that took longer than it has by now. Where there is
    none, it isn't known, and a job doesn't fit.
    """
    longer = [seconds for seconds in durations if seconds > elapsed]
    return bool(longer) and median(longer) - elapsed <= left


def heeds(fleet_size: int, durations: Iterable[Sequence[float]]) -> bool:
    """Whether a worker leaves for a mere recommendation.

    An instance of a fleet of one stays: nobody else would take its jobs meanwhile. So does one whose jobs are done within a
    notice's time, as most of those done here were: then an interruption costs nothing that leaving would save.
    """
    known = list(chain.from_iterable(durations))
    in_time = NOTICE_SECONDS - MARGIN_SECONDS - POLL_SECONDS
    return fleet_size > 1 and not (known and median(known) <= in_time)


class NoticeWatch:
    """Asks, beside the work, what is announced; a call with the work is the watch."""

    def __init__(
        self,
        get: Callable[[str], str | None],
        *,
        fleet_size: int,
        clockwork: Clockwork,
        say: Callable[[str], None],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`get`: the metadata at a path, as `Metadata.get`. `wall`: the time of day, in which notices are written."""
        self._get, self._fleet_size, self._clockwork, self._say, self._wall = get, fleet_size, clockwork, say, wall
        self._complained = False

    async def __call__(self, work: Work) -> None:
        """Until an interruption is announced, which is the last word."""
        recommended = False
        while True:
            notice = await self._look()
            if notice is not None and notice.kind == "interruption":
                await self._interrupted(work, notice)
                return
            if notice is not None and not recommended:
                recommended = True
                await self._recommended(work, notice)
            await self._clockwork.sleep(POLL_SECONDS)

    async def _look(self) -> Notice | None:
        try:
            return await self._clockwork.in_thread(read_notice, self._get, self._wall())
        except OSError as error:
            if not self._complained:
                self._complained = True
                self._say(
                    f"the metadata service doesn't say whether EC2 takes this instance back ({error}); it is asked on"
                )
            return None

    async def _interrupted(self, work: Work, notice: Notice) -> None:
        left = (notice.at - self._wall()).total_seconds() - MARGIN_SECONDS
        why = f"EC2 takes this instance back ({notice.action} at {notice.at:{_TIME}})"
        self._say(
            f"{why}: no more jobs are taken, and what isn't done in {max(0.0, left):.0f} s goes back to the queue"
        )
        work.leave("interrupted", why, by=self._clockwork.now() + left, keeps=partial(fits, left=left))
        await work.deliveries.reports.send("notice", kind=notice.kind, at=f"{notice.at:{_TIME}}", heeded=True)

    async def _recommended(self, work: Work, notice: Notice) -> None:
        heeded = heeds(self._fleet_size, work.durations.values())
        why = f"EC2 recommended to replace this instance at {notice.at:{_TIME}}: an interruption has become likely"
        if heeded:
            within = timedelta(seconds=FINISH_SECONDS)
            self._say(f"{why}; no more jobs are taken, and what runs may finish within {within}")
            by = self._clockwork.now() + FINISH_SECONDS
            work.leave("interrupted", why, by=by, keeps=lambda _elapsed, _durations: True)
        else:
            self._say(f"{why}; the work goes on: its jobs are short, or no other instance would take them")
        await work.deliveries.reports.send("notice", kind=notice.kind, at=f"{notice.at:{_TIME}}", heeded=heeded)


def _document(text: str, *names: str) -> dict[str, object]:
    """The fields of a document that has these. MetadataUnclear: it is none of EC2's, and announces nothing."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict) and found.keys() >= set(names):
            return found
    raise MetadataUnclear(f"its answer is no notice: {text[:40]!r}")


def _time(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
