"""The end of runs whose evals another run goes on with: at once, since that one holds their locks and knows that nobody else does.

A reaping gives the dead their time, so that what is queued is worked off. Here the successor puts the same jobs on a queue of its
own: instances of the dead that went on would do them a second time. What they have finished counts all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.reaper.holdings import NEVER
from fleet.reaper.ownership import elsewhere
from fleet.reaper.removal import Reaper
from fleet.reaper.verdict import Act, Decision


def end_all(dead: Sequence[str], why: str, reaper: Reaper) -> list[str]:
    """Say of these runs that they are over, call their workers off, and remove what they have in the order of a clean-up.

    Answers what couldn't be done, each with its reason: the hourly reaping does it later. Never raises.
    """
    troubles: list[str] = []
    ended: list[str] = []
    for run in dead:
        try:  # also where nothing of it is to be seen: a pool worker may be about to launch for it
            reaper.runs.end(run, why)
        except Exception as error:  # noqa: BLE001 - Prefect doesn't answer: what is removed could be launched anew
            troubles.append(f"flow run {run} couldn't be ended: {error}")
        else:
            ended.append(run)
    if not ended:
        return troubles
    try:
        seen = reaper.holdings.look()
        known = reaper.runs.read(ended)
    except Exception as error:  # noqa: BLE001 - AWS or Prefect doesn't answer
        return [*troubles, f"what is left of flow run {', '.join(ended)} couldn't be looked for: {error}"]
    for run in ended:
        # A lock that can't be read may be anybody's.
        own = [one for one in seen.things if one.run == run and one.expires != NEVER]
        if dark := elsewhere(own, known.get(run), seen, now=reaper.now()):
            troubles.append(f"what there is of flow run {run}: {dark}")
            own = []  # at most locks, which say whose that is
        outcomes = reaper.finish(run, [Decision(one, Act.REMOVE, why) for one in own])
        troubles += [f"{one.decision.thing.name()} of flow run {run}: {one.left}" for one in outcomes if one.left]
    return troubles
