"""The automation that calls a run Crashed whose process is gone: the open-source server would show it as Running for ever.

A flow says every three minutes that it lives (PREFECT_FLOWS_HEARTBEAT_FREQUENCY, which must not be set to more). Three times
without a word, and its process was killed, or its machine is gone. Fleet workers aren't meant: their pool worker sees them end.

A run that ended is safe twice over. Its last state is expected as well as the next heartbeat, so that nothing is missed when it
comes. And where a heartbeat is counted after that state (Prefect's issues 18653 and 21932), the server refuses: it takes no
Crashed for a run that is over, as long as the change isn't forced. A run that lives all the same, because it was the server that
was away, goes on, and its own end counts. The lock of its eval, and not this state, is what the reaper goes by.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.events.schemas.automations import Automation

NAME = "inspect-fleet: a run that vanished is Crashed"
FLOWS = ["run-eval", "nightly", "reap", "build-worker-image"]
"""The flows that run in a process of their own, with nobody else to see it end."""
SILENCE = timedelta(seconds=3 * 180)
"""Three heartbeats at Prefect's default: one may be late, and one be lost with a connection."""
HEARTBEAT = "prefect.flow-run.heartbeat"
LAST_STATES = ("Completed", "Failed", "TimedOut", "Crashed", "Cancelled")
WAITING_STATES = ("AwaitingRetry", "Suspended")
"""In which a run has no process, and shall have one again."""


def vanished_runs(*, name: str = NAME, silence: timedelta = SILENCE) -> AutomationCore:
    """The automation as it should be."""
    said = (
        f"no sign of life for {silence.total_seconds() / 60:g} minutes: its process was killed, or its machine is gone"
    )
    return AutomationCore(
        name=name,
        description="A run of Inspect Fleet whose heartbeats stop is Crashed: its process was killed, or its machine is gone.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={HEARTBEAT},
            expect={HEARTBEAT, *(f"prefect.flow-run.{state}" for state in LAST_STATES + WAITING_STATES)},
            match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
            match_related=ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": FLOWS}),
            for_each={"prefect.resource.id"},
            threshold=1,
            within=silence,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=said)],
    )


async def difference(client: PrefectClient) -> str | None:
    """In which words the server's automation isn't as it should be: empty, there is none; None: it is."""
    found = await _found(client)
    if found is None:
        return ""
    ours, theirs = _essence(vanished_runs()), _essence(found)
    return ", ".join(part for part in ours if ours[part] != theirs[part]) or None


async def ensure(client: PrefectClient) -> None:
    """Make the automation, or bring it up to date; one that a person switched off stays off."""
    found, wanted = await _found(client), vanished_runs()
    if found is None:
        await client.create_automation(wanted)
    else:
        await client.update_automation(found.id, wanted.model_copy(update={"enabled": found.enabled}))


async def _found(client: PrefectClient) -> Automation | None:
    found = await client.read_automations_by_name(NAME)
    return found[0] if found else None


def _essence(one: AutomationCore) -> dict[str, Any]:
    """What decides. Sets are compared as such: the server keeps no order of theirs."""
    trigger = one.trigger.model_dump(mode="json", exclude={"id"})
    for name in ("after", "expect", "for_each"):
        trigger[name] = sorted(trigger.get(name) or ())
    return {
        "description": one.description,
        "trigger": trigger,
        "action": [each.model_dump(mode="json") for each in one.actions],
    }
