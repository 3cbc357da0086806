"""What a look at one instance and its flow run calls for. Pure: facts in, a verdict out; `observer` carries it out.

The two must end together. A flow run that is cancelled takes its instance with it at once; an instance that goes takes its
flow run with it, since the open-source server would show it as Running for ever; an instance without a flow run to work for
is terminated.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fleet.aws.advice import WITHOUT_A_KEY
from fleet.aws.instances import Instance

STOPPED = frozenset({"stopping", "stopped"})

INTERRUPTIONS = frozenset(
    {
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "Server.ScheduledStop",
        "Server.InternalError",
    }
)
"""EC2's StateReason codes of instances that EC2 itself took: whatever ran there isn't to blame."""
TAKEN_AWAY = INTERRUPTIONS | {"Client.UserInitiatedShutdown"}
"""Those of instances that somebody else ended. Its system stops then in order, engine and all."""

OUTSIDE = {
    "Server.SpotInstanceTermination": "EC2 took the spot capacity back",
    "Server.SpotInstanceShutdown": "EC2 took the spot capacity back",
    "Server.InsufficientInstanceCapacity": "EC2 had no capacity to start it",
    "Server.ScheduledStop": "EC2 ended it for maintenance of its host",
    "Server.InternalError": "EC2 had an internal error",
    "Client.InstanceTerminated": "it was terminated",
    "Client.UserInitiatedShutdown": "it was terminated from outside",
    "Client.InstanceInitiatedShutdown": "it powered itself off before the flow run had ended",
    **dict.fromkeys(
        WITHOUT_A_KEY,
        "EC2 couldn't start it, for want of the key of its encrypted volume: the KMS key that EBS uses by default in the region "
        "must be enabled, and the pool worker's identity allowed kms:CreateGrant, kms:Decrypt and "
        "kms:GenerateDataKeyWithoutPlaintext",
    ),
    "Client.VolumeLimitExceeded": "the account's limit of volumes was reached",
    "Client.InvalidSnapshot.NotFound": "a snapshot of its image is missing",
}
"""EC2's StateReason codes, in words."""


class RunPhase(enum.Enum):
    """Where a flow run stands, as far as its instance is concerned."""

    SUBMITTING = "Pending or Submitting: this launch isn't known to Prefect yet, or another one is on its way"
    PENDING = "its instance boots"
    ACTIVE = "the instance works on it (also paused, or waiting for a retry, in the engine's own process)"
    CANCELLING = "somebody asked for its end"
    CANCELLED = "cancelled"
    CRASHED = "crashed, as its own engine said: perhaps because the machine was being taken away"
    FINAL = "completed or failed"
    RELEASED = "suspended, or scheduled for a launch to come: it needs this instance no more"
    DELETED = "Prefect doesn't know it"


OVER_PHASES = frozenset({RunPhase.CANCELLING, RunPhase.CANCELLED, RunPhase.CRASHED, RunPhase.FINAL, RunPhase.DELETED})
"""Where a flow run has no use for an instance that is still being launched for it."""


def run_phase(kind: str | None, name: str, *, rescheduled: bool, suspended: bool) -> RunPhase:
    """The phase of a flow run by its state's type and name.

    `rescheduled`: where it is SCHEDULED, whether a pool worker will submit it anew (an engine waits for its own retry in
    the same state). `suspended`: where it is PAUSED, whether its engine has left.
    """
    match kind:
        case None:
            return RunPhase.SUBMITTING
        case "PENDING":
            return RunPhase.SUBMITTING if name in ("Pending", "Submitting") else RunPhase.PENDING
        case "SCHEDULED":
            return RunPhase.RELEASED if rescheduled else RunPhase.ACTIVE
        case "PAUSED":
            return RunPhase.RELEASED if suspended else RunPhase.ACTIVE
        case "CANCELLING":
            return RunPhase.CANCELLING
        case "CANCELLED":
            return RunPhase.CANCELLED
        case "CRASHED":
            return RunPhase.CRASHED
        case "COMPLETED" | "FAILED":
            return RunPhase.FINAL
        case _:
            return RunPhase.ACTIVE


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds."""

    boot: float
    """From launch to the flow run's first state of its own."""
    grace: float
    missing: float
    submit: float
    """After a launch, how long the flow run may go without a word that it was launched."""


class Settle(enum.Enum):
    """A state to set."""

    CRASHED = "Crashed"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class Sight:
    """One look."""

    instance: Instance | None
    """None: EC2 left it out of its answer."""
    phase: RunPhase
    age: float
    """Seconds since the launch."""
    missing_for: float = 0.0
    """Seconds that EC2 has left it out."""
    over_for: float = 0.0
    """Seconds that the flow run has been CRASHED, FINAL or RELEASED."""
    settled: Settle | None = None
    """The state that was set for the instance's end."""
    settled_why: str = ""
    superseded: bool = False
    """Whether a later launch works for the same flow run."""
    asked: str = ""
    """Why the flow run is to end, where whoever cancelled it said so."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do, in this order: terminate, settle, stop watching."""

    terminate: bool = False
    settle: Settle | None = None
    over: bool = False
    """Nothing is left to watch."""
    why: str = ""
    interrupted: bool = False
    """EC2 itself took the instance."""


WATCH = Verdict()
OVER = Verdict(over=True)


def verdict(sight: Sight, limits: Limits) -> Verdict:
    """What this look calls for. Where a verdict asks for a termination, the next look sees whether it came."""
    instance = sight.instance
    if instance is None and sight.missing_for < limits.missing and sight.phase is not RunPhase.CANCELLING:
        return WATCH  # EC2's answers lag a launch by seconds
    if (instance is None and sight.missing_for >= limits.missing) or (instance is not None and instance.leaving):
        return _gone(sight, limits)
    return _there(sight, limits)


def _gone(sight: Sight, limits: Limits) -> Verdict:
    if sight.superseded:
        return OVER
    # Until it is terminated its engine may still get a word in: it only knows that it was told to stop, and forces that.
    ended = sight.instance is None or sight.instance.state == "terminated"
    match sight.phase:
        case RunPhase.PENDING | RunPhase.ACTIVE:
            return _crashed(sight.instance, over=ended)
        case RunPhase.SUBMITTING:
            # A retry that is being submitted still names the instance of the attempt before.
            if sight.age < limits.submit:
                return WATCH
            return _crashed(sight.instance, over=True)
        case RunPhase.CANCELLING:
            return Verdict(settle=Settle.CANCELLED, over=ended, why=f"{_cancelled(sight)}; its instance is gone")
        case _ if not ended:
            return WATCH
        case RunPhase.CRASHED if sight.settled is Settle.CANCELLED:
            return Verdict(settle=Settle.CANCELLED, over=True, why=sight.settled_why)
        case RunPhase.CRASHED if sight.settled or _was_taken_away(sight, limits):
            return _crashed(sight.instance, over=True)
        case _:
            return OVER


def _crashed(instance: Instance | None, *, over: bool) -> Verdict:
    interrupted = instance is not None and instance.reason_code in INTERRUPTIONS
    return Verdict(settle=Settle.CRASHED, over=over, why=departure(instance), interrupted=interrupted)


def _was_taken_away(sight: Sight, limits: Limits) -> bool:
    """Whether somebody else ended the instance. (Past the grace it was we.)"""
    return sight.instance is not None and sight.instance.reason_code in TAKEN_AWAY and sight.over_for < limits.grace


def _there(sight: Sight, limits: Limits) -> Verdict:
    if sight.superseded:
        return Verdict(terminate=True, why="a later launch works for its flow run")
    match sight.phase:
        case RunPhase.CANCELLING:
            return Verdict(
                terminate=True, settle=Settle.CANCELLED, why=f"{_cancelled(sight)}; its instance was terminated"
            )
        case RunPhase.CANCELLED:
            return Verdict(terminate=True, why="its flow run was cancelled")
        case RunPhase.DELETED:
            return Verdict(terminate=True, why="its flow run was deleted")
        case RunPhase.CRASHED | RunPhase.FINAL | RunPhase.RELEASED:
            if sight.over_for < limits.grace:
                return WATCH
            return Verdict(terminate=True, why="its flow run needs it no more, and it didn't power itself off")
        case RunPhase.SUBMITTING | RunPhase.PENDING if sight.age > limits.boot:
            return Verdict(
                terminate=True,
                settle=Settle.CRASHED,
                why=f"no boot within {limits.boot:g} s: the instance never reported to Prefect, and was terminated",
            )
        case RunPhase.PENDING | RunPhase.ACTIVE if sight.instance is not None and sight.instance.state in STOPPED:
            return Verdict(terminate=True, settle=Settle.CRASHED, why="the instance was stopped from outside")
        case _:
            return WATCH


def _cancelled(sight: Sight) -> str:
    return f"cancelled ({sight.asked})" if sight.asked else "cancelled"


def departure(instance: Instance | None) -> str:
    """Why an instance is gone, in words, with EC2's own after them."""
    if instance is None:
        return "the instance is gone: EC2 doesn't know it any more"
    words = OUTSIDE.get(instance.reason_code)
    own = instance.reason or instance.reason_code or "EC2 gave no reason"
    return f"the instance is gone: {f'{words} ({own})' if words else own}"
