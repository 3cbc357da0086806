"""The checks of a smoke test, in their order: from what costs nothing to what costs cents.

Each says what it saw, and what a person would have lost without it. They use the command `fleet` as a person does, and AWS and
Prefect only to look on, and to kill one instance.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inspect_ai.log import read_eval_log

from fleet.evals.site import Site
from tests.smoke.account import end, left_of, living
from tests.smoke.bill import wasted
from tests.smoke.prefect_side import end_of, instance_at_work, markets, run_with_tag

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLES = 20
EVAL = ("fleet_examples/elements", "--model", "scripted/chemist", "--source", str(EXAMPLES))
GONE_SECONDS = 180.0
"""How long instances and queues may take to leave AWS's answers after the run that made them has ended."""


class CheckFailed(Exception):
    """A check saw something else than it should; its text is for the person."""


@dataclass
class Smoke:
    """One smoke test: where it runs, what it may use, which runs were its own."""

    site: Site
    account: str
    instance_type: str
    max_hours: float
    hourly: float | None
    """Dollars an hour of an instance of the size that evals usually run on, for what a fault would have cost."""
    ends: float
    """When the time is over, by `time.monotonic`."""
    look_seconds: float = 2.0
    runs: list[str] = field(default_factory=list)

    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.ends - time.monotonic())

    def fleet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command, to its end or the end of the time."""
        with self.running(*arguments) as process:
            return self.finish(process)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The command while it runs; it is interrupted when the block is left, and then removes what it made."""
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()

    def finish(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Wait for the command. CheckFailed: the time is over."""
        try:
            out, err = process.communicate(timeout=self.left())
        except subprocess.TimeoutExpired:
            raise CheckFailed("the time of the smoke test is over, and the command still runs") from None
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def wait(self, what: str, look: Callable[[], Any], *, seconds: float | None = None) -> Any:
        """The first answer that isn't nothing. CheckFailed: none came."""
        until = min(self.ends, time.monotonic() + (self.left() if seconds is None else seconds))
        while time.monotonic() < until:
            if answer := look():
                return answer
            time.sleep(self.look_seconds)
        raise CheckFailed(f"not in time: {what}")


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str
    run: Callable[[Smoke], str]
    """Answers what it saw. CheckFailed."""
    without: Callable[[Smoke], str]
    """What it would have cost to skip it."""
    always: bool = False
    """Also after an earlier one has failed."""


def account_stands(smoke: Smoke) -> str:
    """Permissions, stack, pools, blocks, deployments."""
    done = smoke.fleet("setup", "--check", "--json", "--region", smoke.site.region)
    if done.returncode:
        raise CheckFailed(last_lines(done))
    return "nothing is missing"


def image_is_fit(smoke: Smoke) -> str:
    """The worker image, and what the instance type wants of it."""
    done = smoke.fleet("image", "check", "--region", smoke.site.region)
    if done.returncode:
        raise CheckFailed(last_lines(done))
    return last_lines(done, 1)


def a_spot_instance_finishes(smoke: Smoke) -> str:
    """One spot instance runs all samples."""
    with a_run(smoke, "max_workers=1", "spot=true") as (process, tag, folder):
        run = smoke.wait("the flow run", lambda: run_with_tag(tag))
        smoke.runs.append(run)
        complete(smoke.finish(process), folder)
    return f"{SAMPLES} samples; the instance was {' and '.join(markets(run))}"


def a_killed_instance_costs_nothing(smoke: Smoke) -> str:
    """Of two instances one is killed at work; every sample is there once all the same."""
    with a_run(smoke, "max_workers=2", "lease_seconds=20", "-M", "latency=2") as (process, tag, folder):
        run = smoke.wait("the flow run", lambda: run_with_tag(tag))
        smoke.runs.append(run)
        victim = smoke.wait("an instance at work", lambda: process.poll() is not None or instance_at_work(run))
        if not isinstance(victim, str):
            complete(smoke.finish(process), folder)
            raise CheckFailed("the run ended before an instance could be killed")
        end(smoke.site.aws, [victim])
        complete(smoke.finish(process), folder)
    state, why = end_of(run, victim)
    if state != "CRASHED" or victim not in why:
        raise CheckFailed(
            f"the flow run of {victim} ended as {state or 'nothing'} ({why}), not Crashed with EC2's reason"
        )
    return f"{victim} was killed at work; {SAMPLES} samples, each once"


def nothing_is_left(smoke: Smoke) -> str:
    """Of this test's runs; instances that are left are ended here."""
    if not smoke.runs:
        return "no run was started"
    try:
        # Its own deadline: the check that ends the bill must not be the one that the clock cuts off.
        smoke.ends = max(smoke.ends, time.monotonic() + GONE_SECONDS)
        smoke.wait("everything gone", lambda: not left_of(smoke.site, smoke.runs).names(), seconds=GONE_SECONDS)
    except CheckFailed:
        left = left_of(smoke.site, smoke.runs)
        end(smoke.site.aws, left.instances)
        raise CheckFailed(f"left behind: {', '.join(left.names())} (instances are ended now)") from None
    finally:
        end(smoke.site.aws, [instance for run in smoke.runs for instance in living(smoke.site.aws, run)])
    return f"no instance, volume, queue or parameter of {len(smoke.runs)} runs"


CHECKS: Sequence[Check] = (
    Check(
        "account",
        account_stands,
        without=lambda smoke: (
            f"a missing permission or pool shows at the first launch, while people wait: {wasted(5, smoke.hourly)}"
        ),
    ),
    Check(
        "worker image",
        image_is_fit,
        without=lambda smoke: f"an image that can't boot shows at the boot deadline: {wasted(15, smoke.hourly)}",
    ),
    Check(
        "spot instance",
        a_spot_instance_finishes,
        without=lambda smoke: (
            f"a role, a network or a Prefect API that instances can't reach shows at the boot "
            f"deadline: {wasted(15, smoke.hourly)}; a fleet that gets no spot pays the full price"
        ),
    ),
    Check(
        "killed instance",
        a_killed_instance_costs_nothing,
        without=lambda smoke: (
            f"work that a lost instance takes with it is paid twice: {wasted(60, smoke.hourly, instances=1)}"
        ),
    ),
    Check(
        "nothing left",
        nothing_is_left,
        without=lambda smoke: f"a forgotten fleet runs to its lifetime: {wasted(24 * 60, smoke.hourly)}",
        always=True,
    ),
)


@contextmanager
def a_run(smoke: Smoke, *fleet: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """An eval of `SAMPLES` samples under way: the command, the tag that tells it apart, the folder of its log."""
    tag = f"smoke-{uuid.uuid4().hex[:12]}"
    folder = Path(tempfile.mkdtemp(prefix="fleet-smoke-"))
    options = [
        "instance_type=" + smoke.instance_type,
        "region=" + smoke.site.region,
        f"max_hours={smoke.max_hours:g}",
        "auto_confirm=true",
        "new_fleet=true",
        "concurrency_per_worker=2",
    ]
    words = list(fleet)
    while words and not words[0].startswith("-"):
        options.append(words.pop(0))
    arguments = [
        *("run", *EVAL, "--json", "--account", smoke.account, "--log-dir", str(folder), "--tag", tag),
        *("--eval-arg", f"limit={SAMPLES}", "--samples-per-job", "1"),
        *(word for option in options for word in ("--ec2-arg", option)),
        *words,
    ]
    try:
        with smoke.running(*arguments) as process:
            yield process, tag, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complete(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """CheckFailed: the run didn't end well, or its log hasn't each sample once."""
    if done.returncode:
        raise CheckFailed(last_lines(done))
    (one,) = json.loads(done.stdout)["evals"]
    log = read_eval_log(one["log"])
    ids = [sample.id for sample in log.samples or []]
    if log.status != "success" or len(ids) != SAMPLES or len(set(ids)) != SAMPLES:
        raise CheckFailed(f"the log in {folder} has status {log.status} and {len(set(ids))} of {SAMPLES} samples")


def last_lines(done: subprocess.CompletedProcess[str], count: int = 8) -> str:
    """The end of what the command said."""
    said = [*done.stderr.strip().splitlines(), *done.stdout.strip().splitlines()]
    return "\n".join(said[-count:]) or f"exit code {done.returncode}, and no word"
