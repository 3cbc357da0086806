"""Scripted faults: what a test makes AWS do, and `FaultKit`, with which it says so over HTTP.

A fault stands for one operation (a shell pattern), may look into the request, and strikes a number of times. It delays,
refuses, or loses the answer: then the effect happens and the caller sees a 500, as when a connection breaks. A dry run has no
effect and is no call of its operation: only a fault whose `match` speaks of DryRun strikes it.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from threading import Lock
from typing import Any, Self

from fleet.local.calls import Call

PATH = "/_fleet"
BYSTANDER = "bystander"
"""Access key of whoever only looks on, as a test does between its faults: they don't strike its calls, nor are those counted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One scripted fault."""

    operation: str
    """Pattern for AWS's name of the operation: `RunInstances`, `Get*`."""
    match: str = ""
    """Regular expression that is searched in the request: the decoded body, or for S3 path and query."""
    times: int | None = 1
    """How often it strikes; None: until it is cleared."""
    code: str | None = None
    """AWS error code of the answer. None, unless `lost`: the call is only delayed."""
    status: int = 400
    message: str = "Scripted fault"
    delay: float = 0.0
    """Seconds before the call goes on, or is refused."""
    lost: bool = False
    """The call takes effect and is answered by an error all the same (status 500, unless it is set to another 5xx)."""
    instance: str | None = None
    """Only calls with this instance's credentials."""

    @classmethod
    def read(cls, raw: Any) -> Self:
        """A fault from JSON. TypeError, ValueError: what is wrong with it."""
        if not isinstance(raw, dict) or not isinstance(raw.get("operation"), str):
            raise TypeError("a fault is an object with an operation")
        unknown = raw.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"a fault has no {', '.join(sorted(unknown))}")
        fault = cls(**raw)
        try:
            re.compile(fault.match)
        except re.error as error:
            raise ValueError(f"match is no regular expression: {error}") from error
        return fault

    def strikes(self, call: Call, instance: str | None) -> bool:
        """Whether it stands for this call, made by that instance (None: by no instance)."""
        if is_dry_run(call) and "DryRun" not in self.match:
            return False
        return (
            fnmatchcase(call.operation, self.operation)
            and (self.instance is None or self.instance == instance)
            and re.search(self.match, call.text) is not None
        )

    def answer(self) -> tuple[str, int] | None:
        """Error code and HTTP status to answer with. None: the call's own answer goes out."""
        if self.lost:
            return self.code or "InternalError", max(self.status, 500)
        return (self.code, self.status) if self.code else None


def is_dry_run(call: Call) -> bool:
    """Whether EC2 is only asked if it would do it."""
    return call.service == "ec2" and "&DryRun=true" in call.text


class FaultBook:
    """The faults in force, oldest first, and how often each operation was called. Safe between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._faults: list[list[Any]] = []
        self._calls: Counter[str] = Counter()

    def add(self, fault: Fault) -> None:
        """Put a fault in force, behind those that are."""
        with self._lock:
            self._faults.append([fault, 0])

    def clear(self) -> None:
        """No fault any more, and all counts at zero."""
        with self._lock:
            self._faults.clear()
            self._calls.clear()

    def take(self, call: Call, instance: str | None) -> Fault | None:
        """Count the call, and strike with the first fault that stands for it and isn't used up. A bystander's is passed over."""
        if call.access_key == BYSTANDER:
            return None
        with self._lock:
            if not is_dry_run(call):
                self._calls[call.operation] += 1
            for entry in self._faults:
                fault: Fault = entry[0]
                if (fault.times is None or entry[1] < fault.times) and fault.strikes(call, instance):
                    entry[1] += 1
                    return fault
        return None

    def report(self) -> dict[str, Any]:
        """Each fault with its `hits`, and the calls by operation."""
        with self._lock:
            faults = [{**asdict(fault), "hits": hits} for fault, hits in self._faults]
            return {"faults": faults, "calls": dict(self._calls)}


class ControlRefused(Exception):
    """The control path said no; the text says why."""


class FaultKit:
    """A test's hand on a running local cloud, by the emulator's address."""

    def __init__(self, endpoint: str) -> None:
        self._base = endpoint.rstrip("/") + PATH

    def fault(self, operation: str, **fields: Any) -> None:
        """Script a fault: the fields of `Fault`."""
        self._ask("POST", "faults", {"operation": operation, **fields})

    def room(self, count: int, **place: str) -> None:
        """Room for so many more instances of `instance_type`, on `market`, in `subnet` (each: any, unless named)."""
        self._ask("POST", "room", {"count": count, **place})

    def clear(self) -> None:
        """Clear all faults, counts and ends of room."""
        self._ask("DELETE", "faults")

    def hits(self) -> list[int]:
        """How often each fault struck, in the order in which they were scripted."""
        return [fault["hits"] for fault in self._ask("GET", "faults")["faults"]]

    def calls(self, operation: str) -> int:
        """How often an operation was called since the last `clear`."""
        return int(self._ask("GET", "faults")["calls"].get(operation, 0))

    def interrupt(self, instance: str, notice: float | None = None) -> None:
        """Interrupt a spot instance: its notice now, its end after `notice` seconds (None: the timing's)."""
        self._ask("POST", "interrupt", {"instance": instance, "notice": notice})

    def rebalance(self, instance: str) -> None:
        """Recommend that a spot instance be replaced."""
        self._ask("POST", "rebalance", {"instance": instance})

    def crash(self, instance: str) -> None:
        """Let an instance die: its processes are killed without a word, and it terminates."""
        self._ask("POST", "crash", {"instance": instance})

    def timing(self, **seconds: float) -> None:
        """Change fields of `Timing`."""
        self._ask("POST", "timing", seconds)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310  (the emulator's own http address)
            f"{self._base}/{path}", method=method, data=None if body is None else json.dumps(body).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise ControlRefused(json.loads(error.read())["error"]) from error
