"""Secrets for each instance that the watch sees come up, by the flow `provision-secrets` in a thread of its own.

One flow run serves all instances of a launch, and ends when each has its secrets or has ended; instances that replace lost ones
later get another. It runs beside the watch: an SSM that is busy must not keep a run from being looked at, or cancelled.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from prefect import get_run_logger

from fleet.evals.handout import Handout
from fleet.evals.progress import WorkerFacts
from flows.provision_secrets import Arrivals, Refused, arrivals, provision_secrets

PATIENCE_S = 300.0
"""How long the flow may fail, begun again and again, before the run is given up: Prefect's server is away."""
AGAIN_S = 5.0
"""Seconds before a flow that failed is begun again."""
LAST_WRITES_S = 3.0
"""For writes that are on their way when the run ends: a process pool gives a cancelled run 30 s in all. What lands still later is
deleted by the thread that wrote it."""


class Round:
    """One flow run, in its thread, with those it serves."""

    def __init__(self, handout: Handout, refused: Refused, serve: Callable[[], object]) -> None:
        self.arrivals = Arrivals(handout, refused)
        self.error: BaseException | None = None
        self._serve = serve
        # The flow is to be one of this run's own, so it takes this thread's context along.
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name="provision-secrets", daemon=True)
        self.thread.start()

    @property
    def over(self) -> bool:
        """Whether it serves nobody any more."""
        return not self.thread.is_alive()

    def _run(self) -> None:
        arrivals.set(self.arrivals)
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - it is the watch's, which raises it or begins again
            self.error = error


class Provisioning:
    """A block around the watch: look at the workers again and again; once it is left, nothing more is written."""

    def __init__(
        self,
        run: str,
        handout: Handout | None,
        *,
        flow: Callable[[str, str, int], object] = provision_secrets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`handout`: None for a run without secrets. `flow` is called in a thread, where `arrivals` says whom to serve."""
        self._run = run
        self._handout = handout
        self._flow = flow
        self._clock = clock
        self._refused: Refused = queue.SimpleQueue()
        self._rounds: list[Round] = []
        self._open: Round | None = None
        """The round that takes more."""
        self._given: dict[str, Round] = {}
        """By instance, the round that serves it."""
        self._failing_since: float | None = None
        self._not_before = float("-inf")

    def look(self, workers: Sequence[WorkerFacts]) -> list[tuple[str, str]]:
        """Serve who has come up since the last look, and delete what was fetched; answers who gets none, each with the reason.

        Raises what the flow failed with, once it has failed for `PATIENCE_S`.
        """
        if self._handout is None:
            return []
        self._handout.ended(worker.instance for worker in workers if worker.over and worker.instance)
        self._handout.delete_fetched()
        self._close_rounds()
        unserved = [worker for worker in workers if not worker.over and worker.instance not in self._given]
        ready = [worker for worker in unserved if worker.instance]
        if ready and self._clock() >= self._not_before:
            self._open = self._open or self._begin(self._handout, len(unserved))
            for worker in ready:
                self._given[str(worker.instance)] = self._open
                self._open.arrivals.add(worker)
        if self._open and len(ready) == len(unserved):
            self._open.arrivals.end()
            self._open = None
        return self._told()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._handout is None:
            return
        self._handout.close()
        until = self._clock() + LAST_WRITES_S
        for round_ in self._rounds:
            round_.arrivals.end()
            round_.thread.join(max(0.0, until - self._clock()))

    def _begin(self, handout: Handout, count: int) -> Round:
        begun = Round(handout, self._refused, lambda: self._flow(self._run, handout.path, count))
        self._rounds.append(begun)
        return begun

    def _close_rounds(self) -> None:
        """Forget the rounds that are over; whom a failed one has not served is to be served anew."""
        for ended in [one for one in self._rounds if one.over]:
            self._rounds.remove(ended)
            self._open = None if self._open is ended else self._open
            if ended.error is None:
                self._failing_since = None
                continue
            now = self._clock()
            self._failing_since = now if self._failing_since is None else self._failing_since
            if now - self._failing_since >= PATIENCE_S:
                raise ended.error
            get_run_logger().warning("The secrets' flow is begun again: %s", ended.error)
            self._not_before = now + AGAIN_S
            served = ended.arrivals.served
            self._given = {
                instance: round_
                for instance, round_ in self._given.items()
                if round_ is not ended or instance in served
            }

    def _told(self) -> list[tuple[str, str]]:
        told = []
        while not self._refused.empty():
            told.append(self._refused.get())
        return told
