"""Where the instances of one group are looked for next. Pure: answers in, the next step out; `fleet.aws.hunt` carries it out.

The places are gone through in order: all of spot before anything on-demand, each market's next place only for the count that is
still missing. Spot places are asked for together where the account allows it (EC2 picks by price and capacity), else one by one.
An instant fleet is one attempt, and names the places that failed it: the others may not have been tried, so that they are asked
one by one before anything on-demand. What a refusal means is `fleet.aws.capacity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.aws.capacity import (
    FLEET_UNFIT,
    IN_DOUBT,
    NO_FLEETS,
    NOT_SEEN_YET,
    NOT_TRIED,
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

NOT_SEEN_S = 30.0
"""Seconds for which something is waited for that EC2 doesn't know yet: usually it is one or two, and what is gone stays gone."""


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
        """Whether spot places may be asked for together; False once EC2 has refused that of whatever places."""
        self._group, self._region, self._until, self._seconds = group, region, until, seconds
        self._stages = _stages(places, together)
        self._refusals: list[Refusal] = []
        self._asked = 0
        self._tries = 0
        self._most: int | None = None
        self._lost: Ask | None = None
        self._unseen_until: float | None = None

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
        if got:
            self._tries, self._unseen_until = 0, None
        if got >= ask.count:
            return 0.0
        if ask.together:
            return self._fleet_gave_fewer(ask, got, refusals, now, draw)
        self._on([Refusal(ask.places[0], "InsufficientInstanceCapacity", f"it gave {got} of {ask.count}")])
        return 0.0

    def _fleet_gave_fewer(self, ask: Ask, got: int, refusals: Sequence[Refusal], now: float, draw: float) -> float:
        """A fleet gave fewer than asked. What refused for good is left out; the rest is asked again, later or one by one."""
        codes = {refusal.code for refusal in refusals}
        if codes & SHRINKING and ask.count - got > 1:
            self._most = (ask.count - got) // 2
            return 0.0
        ends = [one for one in refusals if one.code not in FLEET_UNFIT and after_refusal(one.code) is Next.STOP]
        if ends and not got:
            raise LaunchRefused(region=self._region, refusals=(*self._refusals, *ends))
        later = [refusal for refusal in refusals if after_refusal(refusal.code) is Next.SAME_LATER]
        final = [one for one in refusals if one.named and one not in later and one.code not in FLEET_UNFIT | NOT_TRIED]
        out = {refusal.candidate for refusal in final}
        left = tuple(place for place in ask.places if place not in out)
        later = [refusal for refusal in later if refusal.candidate in left]
        self._refusals += final
        self._stages[0] = left
        if later:
            return self._later(later, now, draw)
        self._one_by_one()
        return 0.0

    def refused(self, ask: Ask, code: str, why: str, *, now: float, draw: float) -> float:
        """EC2 refused the whole call; the seconds to wait before `next`. LaunchRefused, LaunchTooSlow: it ends here."""
        if ask.together and code in FLEET_UNFIT:
            self.together = self.together and code not in NO_FLEETS
            self._lost = None
            self._asked += 1
            self._one_by_one()
            return 0.0
        answers = tuple(Refusal(place, code, why) for place in ask.places)
        match after_refusal(code):
            case Next.STOP:
                raise LaunchRefused(region=self._region, refusals=(*self._refusals, answers[0]))
            case Next.SAME_LATER:
                self._lost = ask if code in IN_DOUBT else self._lost
                return self._later(answers, now, draw)
            case Next.CANDIDATE:
                self._lost = None
                self._asked += 1
                if code in SHRINKING and ask.count > 1:
                    self._most = ask.count // 2
                elif ask.together:  # of none of them by itself
                    self._one_by_one()
                else:
                    self._on(answers)
                return 0.0

    def _later(self, answers: Sequence[Refusal], now: float, draw: float) -> float:
        """The seconds to wait before the same places. LaunchTooSlow: that would end after the deadline. LaunchRefused: what EC2
        doesn't know yet should be known by now.
        """
        self._tries += 1
        codes = {refusal.code for refusal in answers}
        # Throttled calls wait for their turn at the pace of the whole pool worker; this only spreads them.
        wait = draw if codes <= THROTTLED else wait_after(self._tries, draw)
        if unseen := [refusal for refusal in answers if refusal.code in NOT_SEEN_YET]:
            self._unseen_until = now + NOT_SEEN_S if self._unseen_until is None else self._unseen_until
            if now + wait > self._unseen_until:
                raise LaunchRefused(region=self._region, refusals=(*self._refusals, unseen[0]))
        if now + wait > self._until:
            raise LaunchTooSlow(region=self._region, refusals=(*self._refusals, *answers), seconds=self._seconds)
        return wait

    def _on(self, refusals: Sequence[Refusal]) -> None:
        """To the next place."""
        self._refusals += refusals
        del self._stages[0]
        self._most, self._tries = None, 0

    def _one_by_one(self) -> None:
        """Ask for the places of this stage one by one."""
        self._stages[:1] = [(place,) for place in self._stages[0]]
        self._most, self._tries = None, 0


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
