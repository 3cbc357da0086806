"""`make soak`: an eval of hundreds of jobs under hundreds of random faults, against the plain run of the same request.

A seed decides the faults. They strike as the work goes on: on processes (instances, fleet workers, runners, the controller, the
pool worker), at AWS's edge (throttling, lost answers, slow ones), on what lies in queue and bucket. Whatever ends the run, the same
request is made again, as a person would, until every sample is there. Then the merged log is compared with the plain one value by
value ("lost"), and what the cloud still holds is listed, before and after `fleet reap` ("left").
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.account import names
from fleet.evals.layout import Layout
from fleet.local import preset
from fleet.local.faults import FaultKit
from tests.cloud import EXAMPLES, CloudUnderTest, a_cloud, finish
from tests.parity.compare import Comparison, compare
from tests.soak.schedule import Kind, Strike, storm
from tests.soak.strikes import Target

LOOK_SECONDS = 1.0
MOST_RUNS = 40
"""Times that the request is made before the soak is given up."""
RUN_SECONDS = 900.0
"""A single run that takes longer hangs."""
GONE_SECONDS = 90.0
"""Instances of dead controllers end by themselves, or by the pool worker, within so long."""


@dataclass(slots=True)
class Soak:
    """One storm, and what came of it."""

    seed: int
    jobs: int
    struck: dict[Kind, int] = field(default_factory=dict)
    idle: int = 0
    """Faults at AWS's edge that met no call."""
    runs: list[str] = field(default_factory=list)
    """How each run of the request ended."""
    found: Comparison | None = None
    left_before: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> int:
        """Faults that struck."""
        return sum(self.struck.values()) - self.idle

    def well(self, wanted: int) -> bool:
        """Whether nothing was lost and nothing is left, under as many faults as were asked for."""
        return self.found is not None and not self.found.differences and not self.left and self.faults >= wanted

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"seed {self.seed}: {self.faults} faults on {self.jobs} jobs in {self.seconds:.0f} s, {len(self.runs)} runs"
        for kind in Kind:
            yield f"{self.struck.get(kind, 0):6}  {kind.value}"
        yield f"{-self.idle:6}  of these met no call"
        for number, how in enumerate(self.runs, 1):
            yield f"   run {number}: {how}"
        if self.found is not None:
            yield f"   merged log against the plain one: {self.found.count} values, {len(self.found.differences)} differ"
            yield from (f"   DIFFERS {one}" for one in self.found.differences[:10])
        else:
            yield "   no whole log"
        yield f"   left when the last run had ended: {', '.join(self.left_before) or 'nothing'}"
        yield f"   left after the reaper: {', '.join(self.left) or 'nothing'}"


def main() -> int:
    """One storm a seed. 0: in each, nothing was lost and nothing left."""
    asked = arguments()
    request = a_request(asked)
    results = []
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        folder = Path(asked.keep or scratch).resolve()
        plain = run_plain(request, folder / "plain")
        for seed in asked.seed:
            say(f"seed {seed}")
            with a_cloud(f"soak-{seed}") as cloud:
                results.append(weather(cloud, seed, asked, request, plain, folder / f"fleet-{seed}"))
            for line in results[-1].lines():
                say(line)
    return 0 if all(soak.well(asked.faults) for soak in results) else 1


def arguments() -> argparse.Namespace:
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--seed", type=int, action="append", help="decides the faults (repeatable); by default three new ones"
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3, help="of 236 samples; each is a job")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that a sample waits for its model")
    parser.add_argument("--keep", help="folder in which to leave the logs")
    asked = parser.parse_args()
    asked.seed = asked.seed or [random.randrange(10**6) for _ in range(3)]  # noqa: S311 - printed, to be repeated
    return asked


def a_request(asked: argparse.Namespace) -> list[str]:
    """The request, in the command's words."""
    return [
        *("run", "fleet_examples/elements", "--model", "scripted/chemist", "--source", str(EXAMPLES)),
        *("--eval-arg", f"epochs={asked.epochs}", "--samples-per-job", "1"),
        *("-M", f"latency={asked.latency}", "--json"),
    ]


def run_plain(request: Sequence[str], folder: Path) -> Path:
    """The log of plain Inspect on this machine. SystemExit: it did not come to its end."""
    command = [sys.executable, "-m", "fleet.cli.main", *request, "--backend", "local", "--log-dir", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the plain run ended with exit code {done.returncode}: {done.stdout[-2000:]}")
    return Path(json.loads(done.stdout)["evals"][0]["log"])


def weather(
    cloud: CloudUnderTest, seed: int, asked: argparse.Namespace, request: Sequence[str], plain: Path, folder: Path
) -> Soak:
    """Run the request under the storm until it is whole; what came of it."""
    began = time.monotonic()
    soak = Soak(seed=seed, jobs=236 * asked.epochs)
    target = Target(cloud, preset.BUCKET, Layout(names.PREFIX), FaultKit(cloud.local.aws_endpoint), jobs=soak.jobs)
    over = threading.Event()
    # Some strikes find nothing to hit: a few more than are wanted.
    strikes = storm(seed, asked.faults + asked.faults // 10)
    storming = threading.Thread(target=rage, args=(target, strikes, over), name="storm", daemon=True)
    storming.start()
    fleet = [
        "auto_confirm=true",
        f"max_workers={asked.instances}",
        "concurrency_per_worker=6",
        "lease_seconds=15",
        "idle_seconds=15",
        "spot=true",
    ]
    command = [
        *request,
        "--local-cloud",
        "--log-dir",
        str(folder),
        *(part for one in fleet for part in ("--ec2-arg", one)),
    ]
    try:
        log = persevere(target, command, soak)
    finally:
        over.set()
        storming.join(timeout=60)
    soak.idle = target.faults.hits().count(0)
    target.faults.clear()
    soak.struck = target.struck
    soak.found = compare(plain, log) if log else None
    settle(cloud)
    soak.left_before = cloud.left_behind()
    say(f"reaper: {reap(cloud)}")
    soak.left = cloud.left_behind()
    soak.seconds = time.monotonic() - began
    return soak


def rage(target: Target, strikes: Sequence[Strike], over: threading.Event) -> None:
    """Let each fault strike when its share of the work is done."""
    waiting = list(strikes)
    while waiting and not over.wait(LOOK_SECONDS):
        with contextlib.suppress(OSError):
            share = target.share()
            while waiting and waiting[0].at <= share:
                target.strike(waiting.pop(0))


def persevere(target: Target, command: Sequence[str], soak: Soak) -> Path | None:
    """Make the request until every sample is there; the log, or None if it never was."""
    for _ in range(MOST_RUNS):
        process = target.controller = target.cloud.start(*command)
        try:
            out, err = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            soak.runs.append(f"hung for {RUN_SECONDS:g} s, and was killed")
            return None
        last = err.strip().splitlines()[-1:] or [""]
        how = "killed" if process.returncode == -9 else f"exit code {process.returncode}: {last[0][:300]}"
        say(f"  run {len(soak.runs) + 1} ended: {how}")
        soak.runs.append(how)
        if process.returncode == 2:
            return None
        if process.returncode == 0:
            return Path(json.loads(out)["evals"][0]["log"])
    return None


def settle(cloud: CloudUnderTest) -> None:
    """Give instances of dead controllers the time to end by themselves."""
    until = time.monotonic() + GONE_SECONDS
    while cloud.living_instances() and time.monotonic() < until:
        time.sleep(1)


def reap(cloud: CloudUnderTest) -> str:
    """Remove what dead controllers left; what the command said."""
    done = finish(cloud.start("reap", "--yes", "--now", **cloud.local.environment()))
    return (done.out + done.err).strip().replace("\n", "; ")[:2000]


def say(line: str) -> None:
    """A line for the person who waits."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
