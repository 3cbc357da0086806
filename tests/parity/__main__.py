"""`make parity`: public evals with a scripted model, on a fleet and in plain Inspect, compared value by value.

Both ways get the same request, through the command `fleet`, so the same job environment; nothing of either is stubbed. What is
compared, and how much of it, is printed; any difference makes exit code 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bootstrap.environment import PackagesUnresolvable, resolve
from tests.parity.compare import UNEQUAL, Comparison, compare

ROOT = Path(__file__).parents[2]

PACKAGES = ("inspect-evals==0.28.*", "inspect-evals==0.26.*")
"""The first that the package index can satisfy is taken: 0.28 asks for a helper package that not every index has."""

TASKS = (
    "inspect_evals/agent_threat_bench_memory_poison",
    "inspect_evals/agent_threat_bench_autonomy_hijack",
    "inspect_evals/agent_threat_bench_data_exfil",
    "inspect_evals/make_me_pay",
    "inspect_evals/persistbench_beneficial_memory",
)
"""Their data ships in the package, and none needs a sandbox or the network."""

MODEL = "scripted/student"
ROLES = {"mark": "scripted/public", "grader": "scripted/chemist"}
"""`mark`: the other side of make_me_pay; `grader`: the judge of persistbench."""

OWN_TIMES: Mapping[str, Sequence[str]] = {
    "is how long the task itself says it took (make_me_pay)": (
        "sample.metadata.duration_sec",
        "sample.scores.*.metadata.metadata.duration_sec",
        "summary.metadata.duration_sec",
        "summary.scores.*.metadata.metadata.duration_sec",
        "reductions.*.samples.*.metadata.metadata.duration_sec",
    ),
}
"""What these tasks measure with a clock, beside what no log can have equal."""


def main() -> int:
    """Run both ways, compare, print. 0: all equal."""
    asked = arguments()
    package = asked.package or first_available(PACKAGES)
    say(f"{package}, {asked.model}, {asked.epochs} epochs, {len(asked.task)} tasks")
    with tempfile.TemporaryDirectory(prefix="parity-") as scratch:
        folder = Path(asked.keep or scratch).resolve()
        plain = run("plain", asked, package, folder, ["--backend", "local"])
        local_cloud = ["--local-cloud", "--ec2-arg", f"max_workers={asked.instances}", "--ec2-arg", "new_fleet=true"]
        fleet = run("fleet", asked, package, folder, local_cloud)
        found = {task: compare(plain[task], fleet[task], unequal=OWN_TIMES) for task in asked.task}
    show(found)
    return 1 if any(one.differences for one in found.values()) else 0


def arguments() -> argparse.Namespace:
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("--task", action="append", help="a task, in place of the usual ones")
    parser.add_argument("--package", help="requirement that the tasks come from")
    parser.add_argument("--source", default=str(ROOT / "examples"), help="source of the model's provider")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--keep", help="folder in which to leave the logs")
    asked = parser.parse_args()
    asked.task = asked.task or list(TASKS)
    return asked


def first_available(packages: Sequence[str]) -> str:
    """The first requirement that resolves. PackagesUnresolvable: none does."""
    for package in packages[:-1]:
        try:
            resolve([package], None, None)
        except PackagesUnresolvable as error:
            say(f"{package} can't be had here: {error.why.split(',')[0]}")
        else:
            return package
    return packages[-1]


def run(name: str, asked: argparse.Namespace, package: str, folder: Path, way: Sequence[str]) -> dict[str, Path]:
    """Run the request one way; the logs by task. SystemExit: it did not come to its end."""
    command = [str(Path(sys.executable).with_name("fleet")), "run", *asked.task, "--model", asked.model, *way, "--json"]
    command += [part for role, model in ROLES.items() for part in ("--model-role", f"{role}={model}")]
    command += ["--package", package, "--source", asked.source, "--eval-arg", f"epochs={asked.epochs}"]
    command += ["--log-dir", str(folder / name)]
    say(f"{name}: fleet {' '.join(command[1:])}")
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"the {name} run ended with exit code {answer.returncode}: {answer.stdout[-2000:]}")
    report: dict[str, Any] = json.loads(answer.stdout)
    say(f"{name}: {report['outcome']}, {report['instances']} instances, {report['seconds']:.0f} s")
    return {one["task"]: Path(one["log"]) for one in report["evals"]}


def show(found: Mapping[str, Comparison]) -> None:
    """What was compared, what was not and why, and what differs."""
    say("")
    say(f"{'values':>8}  {'differ':>6}  task")
    for task, one in found.items():
        say(f"{one.count:8}  {len(one.differences):6}  {task}")
    say(f"{sum(one.count for one in found.values()):8}  {sum(len(one.differences) for one in found.values()):6}  all")
    say("")
    say("Compared, by part of the log:")
    parts = sum((Counter(one.fields) for one in found.values()), Counter())
    for part, count in sorted(parts.items()):
        say(f"{count:8}  {part}")
    say("")
    say("Not compared, since such a value")
    passed = sum((Counter(one.passed_over) for one in found.values()), Counter())
    for why in (*UNEQUAL, *OWN_TIMES):
        say(f"{passed[why]:8}  {why}")
    for task, one in found.items():
        for difference in one.differences[:20]:
            say(f"DIFFERS  {task}: {difference}")


def say(line: str) -> None:
    """A line for the person who waits."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
