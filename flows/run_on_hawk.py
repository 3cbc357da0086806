"""The story of a run on a Hawk deployment: map, submit, follow, collect, deliver. None of it needs an instance of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from prefect import get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from blocks.ec2_config import Ec2Config
from blocks.hawk import hawk_deployment
from blocks.secrets import named_secrets
from fleet.errors import FleetError
from fleet.evals.delivery import check_log_dir, deliver
from fleet.evals.report import EvalReport, RunReport, outcome_of
from fleet.evals.request import EvalRequest
from fleet.hawk.api import HawkError
from fleet.hawk.connect import without
from fleet.hawk.following import Collect, Ended, Follow, Resume, Submit
from fleet.hawk.logs import read_logs, reports
from fleet.hawk.mapping import EvalSet
from fleet.hawk.pages import viewer_of
from fleet.hawk.sending import to_send
from flows.artifacts import show_report
from flows.hawk_run import HawkRun
from flows.passing import again
from flows.run import asked_to_end, stage
from flows.watch import CancelledByPerson

LAST_WORDS = 40
"""Lines of the runner's log that are shown where a log is missing."""


class HawkRunEnded(FleetError):
    """Nothing more will come of an eval set, and it isn't known what came of it."""

    why: str

    def message(self) -> str:
        """One line."""
        return self.why


def run_on_hawk(request: EvalRequest, config: Ec2Config, hawk: str, worker_secrets: str | None) -> RunReport:
    """Run a request on the deployment `hawk` and deliver its logs; what the run came to.

    CancelledByPerson: then Hawk was told to end the eval set. Any other end before the last leaves it to go on there, and the same
    request follows it: nothing is posted twice.
    """
    check_log_dir(request.log_dir)
    eval_set = make_eval_set(request, config)
    secrets = named_secrets(request, worker_secrets)
    deployment = hawk_deployment(hawk)
    api = deployment.api()
    run = HawkRun(api, eval_set, secrets, viewer=deployment.viewer or viewer_of(api.address))
    get_run_logger().info("Eval set %s at %s", eval_set.id, run.page or api.address)
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-hawk-") as scratch:
        with run:
            follow(run)
            evals = collect(run, Path(scratch))
            while again := run.again(evals):
                launch(run, again)
                run.wait()
                follow(run)
                evals = collect(run, Path(scratch))
        why = last_words(run) if any(not one.log for one in evals) else ""
        evals = deliver_logs(run, evals, request.log_dir)
    report = RunReport(
        run=str(runtime.flow_run.id),
        outcome=outcome_of(evals),
        why=why,
        evals=evals,
        instances=None,
        seconds=run.seconds,
        cost=None,
    )
    show_report(report, f"Eval set at Hawk: {run.link()}\n")
    return report


@task(name="follow", task_run_name="follow", cache_policy=NO_CACHE)
def follow_run(run: HawkRun) -> State[None] | None:
    """Be with the eval set until it is over, launching it where it isn't there. HawkRunEnded. Cancelled: by a person."""
    stage("Running on Hawk")
    while not asked_to_end():
        match run.next():
            case Submit() | Resume() as step:
                launch(run, step)
            case Collect():
                return None
            case Ended(why=why):
                raise HawkRunEnded(why=why)
            case Follow():
                pass
        run.wait()
    kept = "cancelled by a person; Hawk is told to end the eval set. What ran is kept there, and the same request goes on from it"
    return cast("State[None]", Cancelled(message=kept))


def follow(run: HawkRun) -> None:
    """Be with the eval set until it is over. CancelledByPerson."""
    state = follow_run(run, return_state=True)
    if state.is_cancelled():
        raise CancelledByPerson(state.message)
    state.result()


@task(name="map", task_run_name="map", cache_policy=NO_CACHE)
def make_eval_set(request: EvalRequest, config: Ec2Config) -> EvalSet:
    """The eval set that the request is at Hawk. HawkRefused: all that it can't keep of it."""
    stage("Mapping the request")
    nonce = str(runtime.flow_run.id) if config.new_fleet else ""
    made = to_send(request, config.model_dump(exclude_defaults=True), nonce)
    for warning in made.warnings:
        get_run_logger().warning("%s", warning)
    return made


@task(name="submit", task_run_name="submit", cache_policy=NO_CACHE)
def launch(run: HawkRun, step: Submit | Resume) -> None:
    """Have Hawk launch the eval set. HawkRunEnded: it couldn't for too long. HawkError: it doesn't take it."""
    stage("Submitting to Hawk" if isinstance(step, Submit) else "Going on with what Hawk has")
    if ended := run.launch(step):
        raise HawkRunEnded(why=ended.why)


@task(name="collect", task_run_name="collect", cache_policy=NO_CACHE, **again())
def collect_logs(run: HawkRun, folder: Path) -> list[EvalReport]:
    """What each expected log says, as files in `folder`; those that are there already are whole. HawkError."""
    stage("Collecting results")
    names = run.api.log_names(run.eval_set.id)
    found = read_logs(run.api.download(names, folder))
    secrets = run.secrets.variables()
    return [one.model_copy(update={"why": without(one.why, secrets)}) for one in reports(run.eval_set.expected, found)]


def collect(run: HawkRun, scratch: Path) -> list[EvalReport]:
    """What each expected log says now, as files in a folder of its own: a log may have become another by its name. HawkError."""
    return collect_logs(run, Path(tempfile.mkdtemp(dir=scratch)))


@task(name="deliver", task_run_name="deliver", cache_policy=NO_CACHE)
def deliver_logs(run: HawkRun, evals: Sequence[EvalReport], log_dir: str | None) -> list[EvalReport]:
    """The reports, with the logs where they were asked for. A log that can't be put there is named; it stays at Hawk as all do."""
    return [delivered(run.eval_set.id, one, log_dir) for one in evals]


def delivered(eval_set: str, one: EvalReport, log_dir: str | None) -> EvalReport:
    """One report, with its log in `log_dir`, if it has a log and there is such a place."""
    if not one.log:
        return one
    stored = f"{eval_set}/{Path(one.log).name}"
    log, undelivered = "", ""
    try:
        log = deliver(Path(one.log), log_dir) if log_dir else ""
    except (FleetError, OSError) as error:
        undelivered = f"the log could not be put into {log_dir} and stays at Hawk: {error}"
    why = "; ".join(part for part in (one.why, undelivered) if part)
    return one.model_copy(update={"log": log, "stored": stored, "why": why})


def last_words(run: HawkRun) -> str:
    """What the runner said before it left a log missing: all in the run's log, the last line as the reason. Empty: nothing."""
    try:
        said = run.api.last_words(run.eval_set.id, LAST_WORDS)
    except HawkError as error:
        get_run_logger().warning("%s", error)
        return ""
    secrets = run.secrets.variables()
    lines = [without(line, secrets) for line in said if line.strip()]
    for line in lines:
        get_run_logger().error("Hawk's runner: %s", line)
    return f"Hawk's runner said last: {lines[-1]}" if lines else ""
