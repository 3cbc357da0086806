"""What is looked at beside the work, made for one order: EC2's announcements and the state of this host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import anyio

from bootstrap.clockwork import Clockwork, abandonable
from bootstrap.guard import Guard, ailments, said
from bootstrap.identity import Metadata
from bootstrap.notices import NoticeWatch
from bootstrap.pruning import DockerRoom
from bootstrap.readings import DOCKER_FOLDERS, HostReader
from bootstrap.work import Watch, Work
from fleet.evals.documents import WorkerOrder


class Watches:
    """The watches of one instance, for `Work.beside`. `clockwork`: with threads of its own, which jobs can't use up."""

    def __init__(
        self,
        order: WorkerOrder,
        folders: Iterable[Path],
        *,
        docker: Mapping[str, str],
        clockwork: Clockwork,
        say: Callable[[str], None],
    ) -> None:
        """`folders`: where jobs write. `docker`: what Docker's client sees."""
        self._room = room = DockerRoom(env=docker) if order.needs_docker else None
        self._folders = (*folders, *DOCKER_FOLDERS) if room else tuple(folders)
        self._read = HostReader(self._folders, room.trouble if room else None)
        self._clockwork, self._say = clockwork, say
        metadata = Metadata()
        self._notices = (
            None
            if metadata.disabled
            else NoticeWatch(metadata.get, fleet_size=order.fleet_size, clockwork=clockwork, say=say)
        )
        self.advice = ""
        """What helps against what made the host end."""

    def beside(self) -> list[Watch]:
        """Each to run beside the work."""
        return [self._guard, *([self._notices] if self._notices else [])]

    async def unfit(self) -> str:
        """Why this host is unfit at this moment; empty: it is fit."""
        return said(ailments(await self._read()))

    async def _guard(self, work: Work) -> None:
        room = self._room
        if room is not None:
            folders = (*self._folders, *await self._clockwork.in_thread(room.folders))
            self._read = HostReader(folders, room.trouble)
        guard = Guard(
            self._read,
            _in_thread(room.make_room) if room else None,
            clockwork=self._clockwork,
            say=self._say,
        )
        await guard(work)
        self.advice = guard.advice


def _in_thread(call: Callable[[], str]) -> Callable[[], Awaitable[str]]:
    """The call in a thread that is left behind when its time is over; then no other begins before it has ended."""
    limiter = anyio.CapacityLimiter(1)
    return lambda: abandonable(limiter, call)
