"""Runs every instance of the emulator as processes of this machine, and tells the emulator what becomes of them.

The emulator calls `launched` and `must_end` from its own threads, in the midst of a request; all else happens on the event
loop. For one instance things happen one after the other, under its own lock: an end that comes amid a boot waits for the boot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fleet.local.guest import Guest
from fleet.local.machines import End, Machines
from fleet.local.metadata import Notice
from fleet.local.power import PowerRequest
from fleet.local.scratch import CONSOLE, folder_of
from fleet.local.timing import Timing
from fleet.processes import Process

log = logging.getLogger(__name__)

THREADS = 64
"""Each instance that is being ended holds one for up to its grace."""
STOP_GRACE = 2.0
"""Seconds from TERM to KILL when the whole cloud stops."""


class NotSpot(Exception):
    """Only spot instances are interrupted."""


@dataclass(slots=True)
class _Slot:
    """What is known of one instance here."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    guest: Guest | None = None
    over: bool = False
    timer: asyncio.TimerHandle | None = None
    """Its own `shutdown +N`."""
    reclaim: asyncio.TimerHandle | None = None
    notice: Notice = field(default_factory=Notice)


class Hypervisor:
    """The processes of all instances of one local cloud."""

    def __init__(self, cloud: Path) -> None:
        """`cloud`: the folder of the local cloud. Call on the event loop's thread; `connect` before the first launch."""
        self._machines: Machines
        self._environment: dict[str, str]
        self._cloud = cloud
        self._slots: dict[str, _Slot] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, "instance"))
        self.timing = Timing()

    def connect(self, machines: Machines, environment: Mapping[str, str]) -> None:
        """`environment` is what instances get, beside what is each one's own."""
        self._machines = machines
        self._environment = dict(environment)

    # --- from the emulator's threads ---

    def launched(self, instance: str) -> None:
        """A new instance: it boots once it has been pending for its time."""
        self._loop.call_soon_threadsafe(lambda: self._start(instance, self._boot(instance)))

    def must_end(self, instance: str) -> None:
        """It was told to terminate or stop."""
        self._loop.call_soon_threadsafe(lambda: self._start(instance, self._end(instance)))

    def notice(self, instance: str) -> Notice:
        """What was announced to a spot instance."""
        slot = self._slots.get(instance)
        return slot.notice if slot else Notice()

    def console(self, instance: str) -> bytes:
        """All that an instance has written so far."""
        try:
            return (folder_of(self._cloud, instance) / CONSOLE).read_bytes()
        except OSError:
            return b""

    # --- from the control path's threads ---

    def running(self) -> list[str]:
        """The instances that have processes here, or had and are still on."""
        return sorted(instance for instance, slot in list(self._slots.items()) if slot.guest is not None)

    def interrupt(self, instance: str, notice: float | None) -> datetime:
        """Interrupt a spot instance after `notice` seconds (None: the timing's); it reads of it at once.

        Returns when it ends. KeyError: no such instance. NotSpot: it isn't one.
        """
        self._must_be_spot(instance)
        seconds = self.timing.notice if notice is None else notice
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        slot = self._slot(instance)
        # EC2 sends the recommendation before the notice or with it.
        slot.notice = Notice(ends=ends, rebalance=slot.notice.rebalance or datetime.now(UTC))

        def due() -> None:
            self._start(instance, self._switch_off(instance, "spot"))

        def arm() -> None:
            slot.reclaim = self._loop.call_later(seconds, due)

        self._loop.call_soon_threadsafe(arm)
        return ends

    def rebalance(self, instance: str) -> None:
        """Recommend to replace a spot instance. KeyError, NotSpot: as `interrupt`."""
        self._must_be_spot(instance)
        slot = self._slot(instance)
        slot.notice = replace(slot.notice, rebalance=datetime.now(UTC))

    def crash(self, instance: str) -> None:
        """Let it die as by a broken host: KILL, and no TERM before. KeyError: no such instance."""
        self._machines.get(instance)
        asyncio.run_coroutine_threadsafe(self._crash(instance), self._loop).result()

    # --- on the event loop ---

    async def stop(self) -> set[Process]:
        """End all instances' processes, all at once. Returns what could not be ended."""
        slots = [slot for slot in self._slots.values() if not slot.over]
        left = await asyncio.gather(*(self._close(slot, STOP_GRACE) for slot in slots))
        for task in self._tasks:
            task.cancel()
        return set().union(*left)

    def _slot(self, instance: str) -> _Slot:
        return self._slots.setdefault(instance, _Slot())

    def _must_be_spot(self, instance: str) -> None:
        if self._machines.get(instance).market != "spot":
            raise NotSpot(f"{instance} is not a spot instance")

    def _start(self, instance: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name=instance)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("instance %s: a bug of the hypervisor", task.get_name(), exc_info=task.exception())

    async def _boot(self, instance: str) -> None:
        slot = self._slot(instance)
        await asyncio.sleep(self.timing.pending)
        async with slot.lock:
            machine = None if slot.over else await asyncio.to_thread(self._machines.booted, instance)
            if machine is not None:
                slot.guest = Guest(machine, self._cloud, self._environment | self._addresses(instance))
                await slot.guest.boot(lambda request: self._on_power(instance, request))

    def _addresses(self, instance: str) -> dict[str, str]:
        name = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
        return {name: f"{self._environment[name].rstrip('/')}/{instance}"}

    async def _end(self, instance: str) -> None:
        await self._close(self._slot(instance), self.timing.grace)
        await asyncio.to_thread(self._machines.ended, instance)

    async def _close(self, slot: _Slot, grace: float) -> set[Process]:
        for timer in (slot.timer, slot.reclaim):
            if timer is not None:
                timer.cancel()
        async with slot.lock:
            slot.over = True
            left = await slot.guest.end(grace) if slot.guest else set[Process]()
            slot.guest = None
        for one in left:
            log.error("process %d of an instance that has ended could not be killed", one.pid)
        return left

    async def _crash(self, instance: str) -> None:
        slot = self._slot(instance)
        async with slot.lock:
            if slot.guest is not None:
                await slot.guest.kill(grace=0)
        if await asyncio.to_thread(self._machines.ending, instance, "host"):
            await self._end(instance)

    def _on_power(self, instance: str, request: PowerRequest) -> None:
        slot = self._slot(instance)
        if slot.timer is not None:
            slot.timer.cancel()
            slot.timer = None
        if request.kind == "cancel":
            return
        work = self._reboot if request.kind == "reboot" else self._power_off

        def due() -> None:
            self._start(instance, work(instance))

        slot.timer = self._loop.call_later(request.minutes * self.timing.minute, due)

    async def _power_off(self, instance: str) -> None:
        await self._switch_off(instance, "itself")

    async def _switch_off(self, instance: str, by: End) -> None:
        if await asyncio.to_thread(self._machines.ending, instance, by):
            await self._end(instance)

    async def _reboot(self, instance: str) -> None:
        slot = self._slot(instance)
        async with slot.lock:
            if slot.guest is not None:
                await slot.guest.kill(self.timing.grace)
