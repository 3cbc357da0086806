"""What is asked of a Hawk deployment, what it answers, and what it means when it doesn't. Facts: Hawk 3.7.2.

Two clients make the calls (`plain`, `package`); `connect` puts one code path above either, which is what everybody else
sees as `HawkApi`. A failure is classed by its HTTP status alone, never by its text:

    HawkError             any failure of a call
    ├── HawkUnreachable   no answer: network, address, or time
    ├── HawkFailed        5xx, or an answer that isn't Hawk's: the same call may be good later
    ├── HawkRefusedLogin  401, with a token that was asked for again
    ├── HawkForbidden     403: this login may not, or, of what a person has no right to see, there may be none
    ├── HawkConflict      409: it runs already, another submission of it is under way, or its last run isn't cleared away
    └── HawkInvalid       any other 4xx: what was sent must change
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ConfigDict

from fleet.errors import FleetError, RequestRefused
from fleet.wire import Wire

OVER = frozenset({"complete", "failed", "deleted"})
"""States in which nothing of an eval set runs. `complete` is no success: an eval set of errors alone is `complete`. `failed` may
be followed by `running`: the cluster starts a runner that failed up to three times more, 10 to 80 s later (the chart's Job)."""


class Answer(Wire):
    """An answer of Hawk's. Fields that aren't named here are passed over: a newer Hawk has more of them."""

    model_config = ConfigDict(extra="ignore")


class Admission(Answer):
    """How the cluster's queue stands to the runner, where the cluster has one."""

    state: str
    """pending, queued, admitted or unknown."""
    reason: str | None = None
    message: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the runner is kept back, so that `pending` is what it says."""
        return self.state in ("pending", "queued")


class Pod(Answer):
    """A pod of an eval set on the cluster."""

    phase: str = "Unknown"
    """Kubernetes': Pending, Running, Succeeded, Failed or Unknown."""
    component: str | None = None
    """runner or sandbox."""


class PodStatus(Answer):
    """The pods of an eval set."""

    pods: list[Pod] = []


class JobDetails(Answer):
    """What is behind a state."""

    trouble_reason: str | None = None
    """Kubernetes' word, such as OOMKilled or ImagePullBackOff."""


class JobStatus(Answer):
    """`GET /monitoring/jobs/{id}/job-status`: from pods and from the warehouse, which gets finished logs late or never."""

    status: str
    """pending, running, waiting_for_capacity, importing, stuck; or one of `OVER`."""
    pod_status: PodStatus | None = None
    """None: the cluster didn't tell."""
    pending_interactions: int = 0
    """Samples that wait for a person."""
    unschedulable_sandboxes: int = 0
    admission: Admission | None = None
    details: JobDetails = JobDetails()

    @property
    def at_work(self) -> bool:
        """Whether its runner is on the cluster, beyond doubt: Hawk says these states, and no others, of pods that are active."""
        pods = self.pod_status.pods if self.pod_status else []
        runner = any(pod.component != "sandbox" and pod.phase in ("Pending", "Running", "Unknown") for pod in pods)
        said = self.status in ("running", "waiting_for_capacity", "stuck")
        return said or (runner and self.status not in ("complete", "deleted"))

    @property
    def queued(self) -> bool:
        """Whether the cluster's queue keeps its runner back."""
        return self.status == "pending" and self.admission is not None and self.admission.waits

    @property
    def may_start_again(self) -> bool:
        """Whether `failed` may not be the end: Hawk says it of pods that the cluster may replace. Without any it is final."""
        return self.status == "failed" and (self.pod_status is None or bool(self.pod_status.pods))


class SampleCounts(Answer):
    """Samples by what became of them; (sample, epoch) pairs, as everywhere."""

    total: int = 0
    completed: int = 0
    running: int = 0
    errored: int = 0
    canceled: int = 0
    limit: int = 0
    waiting: int = 0

    @property
    def done(self) -> int:
        """Those that nothing more will happen to."""
        return self.completed + self.errored + self.canceled + self.limit


class TaskProgress(Answer):
    """One log of an eval set. A task that was tried again has one for each time, all with its `task_id`."""

    task_name: str
    task_id: str | None = None
    log_file: str
    eval_status: str | None = None
    progress: SampleCounts = SampleCounts()


class EvalSetStatus(Answer):
    """`GET /monitoring/jobs/{id}/eval-set-status`: from pods and from the logs themselves, while they are written."""

    status: str
    trouble_reason: str | None = None
    progress: SampleCounts = SampleCounts()
    tasks: list[TaskProgress] = []


class Submitted(Answer):
    """`POST /eval_sets/`."""

    eval_set_id: str
    warnings: list[str] = []
    """Advice about the launch, such as a rate limit that is nearly used up."""


class HawkApi(Protocol):
    """A Hawk deployment. Every call raises a `HawkError`, and HawkLoginMissing where there is no token at all."""

    @property
    def address(self) -> str:
        """The API's address, without a slash at its end."""

    def job_status(self, eval_set: str) -> JobStatus | None:
        """How it stands; None: Hawk knows no such eval set."""

    def eval_set_status(self, eval_set: str) -> EvalSetStatus:
        """Its progress, task by task."""

    def submit(self, eval_set: str, config: Mapping[str, Any], *, secrets: Mapping[str, str]) -> Submitted:
        """Launch it. An id that has run before is launched again without a question: look at its status first."""

    def resume(self, eval_set: str, *, secrets: Mapping[str, str]) -> Submitted:
        """Launch it again by its saved configuration: successful logs are kept, and the samples of others that finished."""

    def stop(self, eval_set: str) -> None:
        """Have its runner end it within seconds; samples under way become errors, so that a later resume runs them again.

        A runner that hasn't begun forgets this when it does: `delete` ends those.
        """

    def delete(self, eval_set: str) -> None:
        """Take it off the cluster, running or not; logs remain. Of one that is gone already this is good too."""

    def log_names(self, eval_set: str) -> list[str]:
        """Its logs by name, `<eval set>/<file>.eval`; more than one for a task that was tried again."""

    def download(self, names: Sequence[str], folder: Path) -> list[Path]:
        """Logs, in the order of their names, as files in `folder`."""

    def last_words(self, eval_set: str, lines: int) -> list[str]:
        """The last lines that its runner logged, oldest first."""


class HawkError(FleetError):
    """Hawk didn't do as asked."""

    address: str
    asked: str
    """The call, as a person would say it: `the status of <eval set>`."""
    why: str

    def message(self) -> str:
        """One line: who was asked what, and what came of it."""
        return f"Hawk at {self.address}, asked for {self.asked}: {self.why}"


class HawkUnreachable(HawkError):
    """No answer. What was asked may have been done."""


class HawkFailed(HawkError):
    """The server's own fault, or a proxy's. What was asked may have been done."""


class HawkRefusedLogin(HawkError):
    """The token isn't good, and neither was the one that the source of tokens gave when it was asked again."""

    def message(self) -> str:
        """One line, with what helps."""
        return (
            f"{super().message()}. Log in again (`hawk login`), or renew the token (HAWK_ACCESS_TOKEN, or the block's)"
        )


class HawkForbidden(HawkError):
    """This login may not: another person's eval set, or a model or secret that it has no right to."""


class HawkConflict(HawkError):
    """It runs already, is being submitted just now, or what is left of it can't be cleared away: its status tells which."""


class HawkInvalid(HawkError, RequestRefused):
    """Hawk doesn't take what was sent: the person changes the request."""


class HawkLoginMissing(RequestRefused):
    """There is no token to ask with."""

    address: str
    why: str

    def message(self) -> str:
        """One line, with what helps."""
        return (
            f"no token for Hawk at {self.address}: {self.why}. Set HAWK_ACCESS_TOKEN, fill in the token of the Hawk Deployment "
            "block, or install hawk[cli] and `hawk login`"
        )
