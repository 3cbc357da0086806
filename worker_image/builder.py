"""Building an image: what every builder promises, and the plain one, an instance that bakes itself and stops.

    BuilderInstance   needs nothing but EC2; always there
    ImagePipeline     EC2 Image Builder, where the account's stack has a pipeline: image_pipeline.py

A builder answers an image that is available and carries our tags, or raises an ImageFailure. What it made until then is removed by
whoever called it (`debris`), since that must happen for failures outside the builder too.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from importlib.resources import files
from typing import Protocol

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.images import UNKNOWN_AMI, UNKNOWN_PARAMETER
from fleet.aws.objects import ObjectAbsent
from fleet.errors import RequestRefused
from worker_image.amis import Amis, OwnImage
from worker_image.bake.drive import STEP
from worker_image.failures import BaseMissing, BuildFailed, BuildTimedOut
from worker_image.machines import Machine, MachineOrder, Machines
from worker_image.names import BuildNames
from worker_image.place import Place
from worker_image.recipe import Recipe

BUILD_MINUTES = 60
"""A bake takes 8 to 20 minutes, most of it packages; the machine stops itself after so long, come what may."""
USER_DATA_BYTES = 16_384
TAIL_LINES = 20
ABSENT_SECONDS = 120.0
"""EC2 may not know an instance for some seconds after its launch."""


@dataclass(frozen=True, slots=True)
class Base:
    """The image that a build begins with."""

    id: str
    name: str
    root_device: str


class Builder(Protocol):
    """Makes images. Which one, the account decides: `image_pipeline.chosen_builder`."""

    name: str
    """What people are shown."""

    def build(self, names: BuildNames, base: Base) -> OwnImage:
        """The new image, available, with our tags. ImageFailure, AwsRefused."""
        ...


class UserDataTooLarge(RequestRefused):
    """The builder's script is larger than EC2 takes: a bug here, or a bucket with a very long name."""

    size: int

    def message(self) -> str:
        """One line."""
        return f"the builder's user data has {self.size:,} bytes, EC2 takes {USER_DATA_BYTES:,}"


def find_base(place: Place, recipe: Recipe) -> Base:
    """Canonical's newest image for the recipe. BaseMissing, AwsRefused."""
    parameter = recipe.base_parameter
    try:
        with calling("ssm", f"{parameter} in {place.region}"):
            ami = place.aws.ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
        with calling("ec2", f"{ami} in {place.region}"):
            found = place.aws.ec2.describe_images(ImageIds=[ami])["Images"]
    except AwsRefused as refusal:
        if refusal.code in UNKNOWN_PARAMETER | UNKNOWN_AMI:
            raise BaseMissing(parameter=parameter, region=place.region, why=refusal.code) from refusal
        raise
    if not found or found[0].get("State") != "available":
        why = f"{ami} is {found[0].get('State')}" if found else f"EC2 describes no {ami}"
        raise BaseMissing(parameter=parameter, region=place.region, why=why)
    return Base(ami, found[0].get("Name", ""), found[0].get("RootDeviceName") or "/dev/sda1")


class BuilderInstance:
    """An instance of the base image that bakes itself, reports to S3 and stops; then its disk becomes the image."""

    name = "a builder instance"

    def __init__(self, place: Place) -> None:
        self.place = place
        self.machines = Machines(place)
        self.amis = Amis(place)

    def build(self, names: BuildNames, base: Base) -> OwnImage:
        """See `Builder`. The instance, stopped by now, is terminated by `debris`: a refusal of that doesn't spoil a good image."""
        place = self.place
        sha256 = names.recipe.bundle_sha256
        key = f"{place.prefix}/artifacts/{sha256}"
        place.objects.put(key, names.recipe.bundle)
        script = user_data(names, bundle=place.objects.uri(key), sha256=sha256, place=place)
        machine = self.machines.launch(
            MachineOrder(names, "builder", base.id, base.root_device, user_data=script, stops=True)
        )
        self._follow(names, machine)
        place.say(f"{machine} is baked and has stopped; its disk becomes the image {names.image_name}")
        return self.amis.await_available(names, self.amis.create(names, machine, base.root_device))

    def _follow(self, names: BuildNames, machine: str) -> None:
        """Return when the machine has baked itself and stopped. BuildFailed, BuildTimedOut."""
        patience = self.place.patience
        began = patience.clock()
        told = 0
        while True:
            seen = self.machines.see(machine)  # first: what has stopped has written its report before
            report = self._read(names, "build.json")
            steps = [line for line in self._read(names, "build.log").splitlines() if line.startswith(STEP)]
            for line in steps[told:]:
                self.place.say(line.lstrip("= "))
            told = max(told, len(steps))
            seconds = patience.clock() - began
            why = verdict(seen, report, seconds)
            if why == "":
                return
            if why is not None:
                raise BuildFailed(build=names.id, why=why, log=self._log(names), tail=self._tail(names, machine))
            if seconds > BUILD_MINUTES * 60 + ABSENT_SECONDS:
                raise BuildTimedOut(build=names.id, what="the bake", minutes=BUILD_MINUTES, log=self._log(names))
            patience.sleep(patience.every)

    def _tail(self, names: BuildNames, machine: str) -> str:
        lines = self._read(names, "build.log").splitlines()[-TAIL_LINES:]
        return "\n".join(lines) or self.machines.console(machine)

    def _log(self, names: BuildNames) -> str:
        return self.place.objects.uri(f"{names.folder}/build.log")

    def _read(self, names: BuildNames, name: str) -> str:
        try:
            return self.place.objects.get(f"{names.folder}/{name}").decode(errors="replace")
        except ObjectAbsent:
            return ""


def verdict(machine: Machine, report: str, seconds: float) -> str | None:
    """What a builder's state and report mean, `seconds` after its launch. None: wait. "": baked and stopped. Else why it failed."""
    code = exit_code(report)
    if code:
        return f"a step of the bake ended with exit code {code}"
    if machine.state == "absent":
        return None if seconds < ABSENT_SECONDS else f"EC2 doesn't know {machine.id}"
    if machine.state in {"shutting-down", "terminated"}:
        return f"{machine.id} was terminated before its disk became an image ({machine.reason or 'no reason given'})"
    if machine.state == "stopped":
        return "" if code == 0 else f"{machine.id} stopped without a report ({machine.reason or 'no reason given'})"
    return None


def exit_code(report: str) -> int | None:
    """The bake's exit code by its report; None: there is none yet, or not a whole one."""
    try:
        code = json.loads(report)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None


def user_data(names: BuildNames, *, bundle: str, sha256: str, place: Place) -> str:
    """The builder's script: ids, names and addresses only. UserDataTooLarge."""
    told = {
        "FLEET_BUILD_MINUTES": str(BUILD_MINUTES),
        "FLEET_BUNDLE_URI": bundle,
        "FLEET_BUNDLE_SHA256": sha256,
        "FLEET_BUILD_FOLDER": place.objects.uri(names.folder),
        "FLEET_BUCKET_REGION": place.objects.aws.region,
    }
    script = files("worker_image").joinpath("builder.sh").read_text(encoding="utf-8")
    plain_s3 = files("worker_image").joinpath("bake", "plain_s3.py").read_text(encoding="utf-8")
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in told.items())
    script = script.replace("#: told", exports).replace("#: plain_s3\n", plain_s3)
    if len(script.encode()) > USER_DATA_BYTES:
        raise UserDataTooLarge(size=len(script.encode()))
    return script
