"""A look at the end of each result as soon as it lies in S3, while there is a fleet that can run its job again.

What was cut short, is empty or was never finished is set aside at once, and a message of its job is sent again: only that job
runs once more. The merge looks at results as wholes, when the fleet is gone: what only it finds, the same request runs again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from fleet.aws.objects import StoredObject
from fleet.evals.documents import EvalId, JobId, JobMessage
from fleet.evals.job_log import END_BYTES, flaw_at_end
from fleet.evals.preparation import set_aside
from fleet.evals.site import Site

MOST_AGAIN = 2
"""How often a run sends a job again for its results; the next unusable one stays for the merge, which names it."""
AGAIN_S = 10
"""Seconds before a job that is sent again is seen: whoever put its result may still have to delete its message."""
AT_A_TIME = 16
"""Looks under way: a resumed run has thousands of results at once."""
MOST_LOOKS = 300
"""In one call: more would keep the watch from everything else, and the next one looks at them."""


class ResultChecks:
    """The looks at a run's results. Each is made once, and again if something else lies there."""

    def __init__(self, site: Site, queue: str) -> None:
        """`queue`: URL of the work queue."""
        self._site = site
        self._queue = queue
        self._looked_at: dict[str, str] = {}
        """By key, the ETag of what was found good, or is left to the merge."""
        self._times: Counter[tuple[EvalId, JobId]] = Counter()
        self._unsent: dict[tuple[EvalId, JobId], JobMessage] = {}
        """Jobs whose result is set aside, or about to be, and whose message isn't sent yet."""
        self._behind: set[EvalId] = set()
        """Evals with results that no call has come to yet."""
        self.rounds = 0
        """How often messages were sent again."""

    @property
    def behind(self) -> bool:
        """Whether there are results that were left to the next call: any of them may run again."""
        return bool(self._behind)

    def taken_back(self, eval_id: EvalId, results: Mapping[JobId, StoredObject]) -> dict[JobId, str]:
        """Jobs that run again, since their result can't be used, each with what is wrong. `results`: as they lie there now.

        AwsRefused: what was not done is done at the next call.
        """
        self._send()
        unseen = [(job, it) for job, it in results.items() if self._looked_at.get(it.key) != it.etag]
        fresh = dict(unseen[:MOST_LOOKS])
        if len(unseen) > len(fresh):
            self._behind.add(eval_id)
        else:
            self._behind.discard(eval_id)
        if not fresh:
            return {}
        again = {}
        with ThreadPoolExecutor(max_workers=AT_A_TIME, thread_name_prefix="results") as pool:
            for (job, stored), flaw in zip(fresh.items(), pool.map(self._flaw, fresh.values()), strict=True):
                if flaw is None:
                    continue
                if not flaw or self._times[eval_id, job] >= MOST_AGAIN:
                    self._looked_at[stored.key] = stored.etag
                    continue
                # Noted first: the result may be gone although S3's answer, that it is, was lost.
                self._unsent[eval_id, job] = JobMessage(eval_id=eval_id, job=job)
                set_aside(self._site, eval_id, job, stored.etag)
                self._times[eval_id, job] += 1
                again[job] = flaw
        self._send()
        return again

    def _flaw(self, stored: StoredObject) -> str | None:
        """What is wrong with a result; None: it isn't there any more."""
        if not stored.size:
            return flaw_at_end(b"", 0)
        end = self._site.objects.get_end(stored.key, END_BYTES, stored.etag)
        return None if end is None else flaw_at_end(end, stored.size)

    def _send(self) -> None:
        if self._unsent:
            self._site.queues.send(self._queue, [message.write() for message in self._unsent.values()], AGAIN_S)
            self._unsent.clear()
            self.rounds += 1
