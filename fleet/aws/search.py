"""Where the instances of one group are looked for next. Pure: answers in, the next step out; `fleet.aws.hunt` carries it out.

The places are gone through in order: all of spot before anything on-demand, each market's next place only for the count that is
still missing. Spot places are asked for together where the account allows it (EC2 picks by price and capacity), else one by one.
What a refusal means is `fleet.aws.capacity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.aws.capacity import (
    FLEET_UNFIT,
    IN_DOUBT,
    SHRINKING,
    Candidate,
    LaunchRefused,
    LaunchTooSlow,
    Next,
    NoCapacity,
    Refusal,
    after_refusal,
    wait_after,
)
from fleet.aws.failures import THROTTLED


@dataclass(frozen=True, slots=True)
class Ask:
    """One call: so many instances in these places. Asked again as it is where the answer was lost."""

    places: tuple[Candidate, ...]
    """One: RunInstances. Several, all of spot: CreateFleet."""
    count: int
    """As many as there are, up to this."""
    token: str
    """Idempotency token, at most 64 characters."""

    @property
    def together(self) -> bool:
        """Whether EC2 picks among several places."""
        return len(self.places) > 1


class Search:
    """The places of one group of launches. `next` says what to ask for; `answered` or `refused` takes in what came of it."""

    def __init__(
        self, group: str, places: Sequence[Candidate], *, region: str, until: float, seconds: float, together: bool
    ) -> None:
        """`group` names this group of attempts, new each time; `until` is the end of `seconds` by the caller's clock."""
        self.together = together
        """Whether spot places may be asked for together; False once EC2 has refused that."""
        self._group, self._region, self._until, self._seconds = group, region, until, seconds
        self._stages = _stages(places, together)
        self._refusals: list[Refusal] = []
        self._asked = 0
        self._tries = 0
        self._most: int | None = None
        self._lost: Ask | None = None

    def next(self, missing: int) -> Ask:
        """What to ask for now. NoCapacity: every place was refused."""
        if self._lost is not None:
            return self._lost  # another count would be another request, and the same token refused
        if not self._stages:
            raise NoCapacity(region=self._region, refusals=tuple(self._refusals))
        places = self._stages[0]
        count = missing if self._most is None else min(missing, self._most)
        return Ask(places, count, ask_token(self._group, self._asked, places, count))

    def answered(
        self, ask: Ask, got: int, refusals: Sequence[Refusal] = (), *, now: float = 0.0, draw: float = 0.0
    ) -> float:
        """EC2 gave `got` instances; of several places, some may have refused. The seconds to wait before `next`.

        LaunchRefused, LaunchTooSlow: it ends here.
        """
        self._lost = None
        self._asked += 1
        if got >= ask.count:
            self._tries = 0
            return 0.0
        if not got and ask.together and refusals:
            return self._all_refused(ask, refusals, now, draw)
        if not refusals:
            why = f"it gave {got} of {ask.count}"
            refusals = [Refusal(place, "InsufficientInstanceCapacity", why) for place in ask.places]
        self._on(refusals)
        return 0.0

    def _all_refused(self, ask: Ask, refusals: Sequence[Refusal], now: float, draw: float) -> float:
        codes = {refusal.code for refusal in refusals}
        meanings = {after_refusal(code) for code in codes}
        if codes & FLEET_UNFIT:  # what a fleet says of the other places isn't the last word then
            self._apart()
        elif codes & SHRINKING and ask.count > 1:
            self._most = ask.count // 2
        elif Next.STOP in meanings:
            ends = [refusal for refusal in refusals if after_refusal(refusal.code) is Next.STOP]
            raise LaunchRefused(region=self._region, refusals=(*self._refusals, *ends))
        elif Next.SAME_LATER in meanings:
            return self._later(tuple(refusals), wait_after(self._tries + 1, draw), now)
        else:
            self._on(refusals)
        return 0.0

    def refused(self, ask: Ask, code: str, why: str, *, now: float, draw: float) -> float:
        """EC2 refused the whole call; the seconds to wait before `next`. LaunchRefused, LaunchTooSlow: it ends here."""
        if ask.together and code in FLEET_UNFIT:
            self._lost = None
            self._apart()
            return 0.0
        answers = tuple(Refusal(place, code, why) for place in ask.places)
        match after_refusal(code):
            case Next.STOP:
                raise LaunchRefused(region=self._region, refusals=(*self._refusals, answers[0]))
            case Next.SAME_LATER:
                self._lost = ask if code in IN_DOUBT else self._lost
                # Throttled calls wait for their turn at the pace of the whole pool worker; this only spreads them.
                return self._later(answers, draw if code in THROTTLED else wait_after(self._tries + 1, draw), now)
            case Next.CANDIDATE:
                self._lost = None
                self._asked += 1
                if code in SHRINKING and ask.count > 1:
                    self._most = ask.count // 2
                else:
                    self._on(answers)
                return 0.0

    def _later(self, answers: tuple[Refusal, ...], wait: float, now: float) -> float:
        """`wait`, for the same place. LaunchTooSlow: it would end after the deadline."""
        self._tries += 1
        if now + wait > self._until:
            raise LaunchTooSlow(region=self._region, refusals=(*self._refusals, *answers), seconds=self._seconds)
        return wait

    def _on(self, refusals: Sequence[Refusal]) -> None:
        """To the next place."""
        self._refusals += refusals
        del self._stages[0]
        self._most, self._tries = None, 0

    def _apart(self) -> None:
        """Ask for the places of this stage one by one, and never together again."""
        self.together = False
        self._stages[:1] = [(place,) for place in self._stages[0]]
        self._most, self._tries = None, 0
        self._asked += 1


def _stages(places: Sequence[Candidate], together: bool) -> list[tuple[Candidate, ...]]:
    spot = tuple(place for place in places if place.market == "spot")
    if not together or len(spot) < 2:
        return [(place,) for place in places]
    return [spot, *((place,) for place in places if place.market != "spot")]


def ask_token(group: str, number: int, places: Sequence[Candidate], count: int) -> str:
    """The token of one request: 64 characters, EC2's limit.

    Each request has its own: EC2 refuses a token that comes back with other parameters, for ever, and answers one that comes back
    with the same by what it launched before, dead by now perhaps. `number` counts the answers of the group.
    """
    where = (f"{place.instance_type}\0{place.subnet or ''}\0{place.market}" for place in places)
    return hashlib.sha256("\0\0".join((group, str(number), str(count), *where)).encode()).hexdigest()
