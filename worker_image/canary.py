"""Trying a new image before any fleet does: an instance boots from it as a worker boots, runs `bootstrap.canary`, and reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fleet.aws.instances import LEAVING
from fleet.aws.objects import ObjectAbsent
from fleet.pool.code import code_archive
from fleet.pool.user_data import user_data
from worker_image.amis import Amis, OwnImage
from worker_image.failures import BuildTimedOut, CanaryFailed
from worker_image.machines import Machine, MachineOrder, Machines
from worker_image.names import BuildNames
from worker_image.place import Place

CANARY_MINUTES = 20.0
"""From launch to report; a boot takes two, the checks less than one."""
COMMAND = "fleet-python -m bootstrap.canary"
REPORT = "canary.json"
ABSENT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """What the canary found, a line for each check."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = field(default=())

    def why(self) -> str:
        """What isn't fit; empty: it is."""
        return "; ".join(self.failed)


def try_image(place: Place, names: BuildNames, image: OwnImage, root_device: str) -> CanaryReport:
    """The report of an instance of the image that passed every check. CanaryFailed, BuildTimedOut, NoMachine, AwsRefused.

    The image is tagged as rejected then; `debris.nothing_left` removes it, and the instance, which powers itself off too.
    """
    amis = Amis(place)
    try:
        report = _run(place, names, image, root_device)
    except (CanaryFailed, BuildTimedOut) as failure:
        amis.reject(image, str(failure))
        raise
    if report.failed:
        amis.reject(image, report.why())
        log = place.objects.uri(f"{names.folder}/{REPORT}")
        raise CanaryFailed(image=image.id, why=report.why(), log=log)
    return report


def _run(place: Place, names: BuildNames, image: OwnImage, root_device: str) -> CanaryReport:
    layout = _Artifacts(place.prefix)
    sha256 = place.objects.put_artifact(layout, code_archive())
    told = {
        "FLEET_REGION": place.region,
        "FLEET_CODE": place.objects.uri(layout.artifact(sha256)),
        "FLEET_CODE_SHA256": sha256,
        "FLEET_LOG_FOLDER": place.objects.uri(names.folder),
        "FLEET_CANARY_REPORT": place.objects.uri(f"{names.folder}/{REPORT}"),
        "FLEET_CANARY_RECIPE": names.recipe.document().decode(),
        "FLEET_BUCKET_REGION": place.objects.aws.region,
    }
    script = user_data(told, COMMAND, max_hours=CANARY_MINUTES / 60)
    machines = Machines(place)
    machine = machines.launch(MachineOrder(names, "canary", image.id, root_device, user_data=script, stops=False))
    return _follow(place, names, image, machines, machine)


def _follow(place: Place, names: BuildNames, image: OwnImage, machines: Machines, machine: str) -> CanaryReport:
    patience = place.patience
    began = patience.clock()
    while True:
        seen = machines.see(machine)  # first: what has ended has written its report before
        found = _report(place, names)
        if found is not None:
            return found
        if why := silent_end(seen, patience.clock() - began):
            where = f"{names.folder}/{machine}/boot.log"
            last = _last_line(place, where) or machines.console(machine).strip().rpartition("\n")[2]
            log = place.objects.uri(where)
            raise CanaryFailed(image=image.id, why=f"{why}{f'; its last line: {last}' if last else ''}", log=log)
        if patience.clock() - began > CANARY_MINUTES * 60 + ABSENT_SECONDS:
            log = place.objects.uri(f"{names.folder}/{machine}/boot.log")
            raise BuildTimedOut(build=names.id, what="the canary's report", minutes=CANARY_MINUTES, log=log)
        patience.sleep(patience.every)


def silent_end(machine: Machine, seconds: float) -> str:
    """Why no report will come any more; empty: it may."""
    if machine.state == "absent":
        return "" if seconds < ABSENT_SECONDS else f"EC2 doesn't know its instance {machine.id}"
    if machine.state in LEAVING | {"stopped", "stopping"}:
        return f"its instance {machine.id} ended without a report ({machine.reason or 'no reason given'})"
    return ""


def read_report(text: str) -> CanaryReport:
    """What `bootstrap.canary` wrote. ValueError: that isn't one."""
    try:
        checks = json.loads(text)["checks"]
        lines = [(bool(check["passed"]), f"{check['name']}: {check['detail']}") for check in checks]
    except (KeyError, TypeError) as error:
        raise ValueError("no canary report") from error
    if not lines:
        raise ValueError("a canary report without checks")
    return CanaryReport(
        passed=tuple(line for passed, line in lines if passed),
        failed=tuple(line for passed, line in lines if not passed),
    )


def _report(place: Place, names: BuildNames) -> CanaryReport | None:
    try:
        return read_report(place.objects.get(f"{names.folder}/{REPORT}").decode())
    except ObjectAbsent:
        return None
    except ValueError as error:
        return CanaryReport(failed=(f"report: {error}",))


def _last_line(place: Place, key: str) -> str:
    try:
        return place.objects.get(key).decode(errors="replace").strip().rpartition("\n")[2]
    except ObjectAbsent:
        return ""


@dataclass(frozen=True, slots=True)
class _Artifacts:
    """Names shared artifacts as `fleet.evals.layout` does, whose room this one doesn't need otherwise."""

    prefix: str

    def artifact(self, sha256: str) -> str:
        """The key."""
        return f"{self.prefix}/artifacts/{sha256}"
