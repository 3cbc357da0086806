"""A new worker image: built, tried by an instance that boots from it, and only then the one that fleets boot from.

Whatever stops this flow before the parameter moves, fleets go on with the image they had, and nothing of the build is left: no
instance, image or snapshot (killed outright: a later build sweeps what is older than any build).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE

from blocks.account import fleet_account
from fleet.aws.identity import caller
from fleet.errors import FleetError
from fleet.evals.listener import listener
from flows.run import deaf_to_sigterm
from worker_image.amis import Amis, OwnImage
from worker_image.builder import Base, Builder, find_base
from worker_image.canary import CanaryReport, try_image
from worker_image.debris import nothing_left, sweep
from worker_image.image_pipeline import Choice, chosen_builder
from worker_image.names import BuildNames
from worker_image.place import Patience, Place
from worker_image.publish import Pointer, prune, publish, read_pointer, unchanged
from worker_image.recipe import Architecture, Recipe
from worker_image.report import BuildReport


@flow(name="build-worker-image", flow_run_name="worker image for {architecture}")
def build_worker_image(
    region: str | None = None,
    architecture: Architecture = "x86_64",
    force: bool = False,
    gpu: bool | None = None,
    pull: tuple[str, ...] = (),
    builder: Choice = "auto",
    account: str = "default",
    every: float = 5.0,
) -> BuildReport:
    """Build, try and publish the worker image of a region (by default the account's). `every`: seconds between two looks.

    An image that would come out the same is kept unless `force`. ImageFailure says what went wrong, and where the log is.
    """
    began = time.monotonic()
    recipe = Recipe(architecture=architecture, gpu=gpu, pull=pull)
    place = place_of(account, region, every)
    base = find_base_image(place, recipe)
    names = BuildNames(recipe=recipe, base=base.id, owner=place.owner, prefix=place.prefix)
    maker = chosen_builder(place, architecture, builder)
    before = read_pointer(place, architecture)
    kept = None if force else unchanged(Amis(place).own(), before, names.recipe_hash)
    if kept:
        return done(report_of("unchanged", kept, names, place, before))
    bar = Steps(f"Build {names.id}, by {maker.name}")
    with nothing_left(place, names, undisturbed=deaf_to_sigterm):
        image = build(place, names, base, maker)
        bar.step(1, f"{image.id} is built")
        tried = canary(place, names, image, base)
        bar.step(2, f"{image.id} passed {len(tried.passed)} checks")
        publish_image(place, architecture, image)
    bar.step(3, f"{image.id} is published")
    removed = remove_old(place, architecture)
    bar.step(4, f"{image.id} is published, old ones are gone")
    minutes = round((time.monotonic() - began) / 60, 1)
    return done(report_of("built", image, names, place, before, maker.name, tried.passed, removed, minutes))


@task(name="find-base", task_run_name="find-base", cache_policy=NO_CACHE)
def find_base_image(place: Place, recipe: Recipe) -> Base:
    """Canonical's newest image for the recipe."""
    base = find_base(place, recipe)
    get_run_logger().info("Base image %s: %s", base.id, base.name)
    return base


@task(name="build", task_run_name="build", cache_policy=NO_CACHE)
def build(place: Place, names: BuildNames, base: Base, maker: Builder) -> OwnImage:
    """The new image, available, and not yet tried."""
    place.say(f"Building the worker image for {names.recipe.architecture} on {base.id}, by {maker.name}")
    return maker.build(names, base)


@task(name="canary", task_run_name="canary", cache_policy=NO_CACHE)
def canary(place: Place, names: BuildNames, image: OwnImage, base: Base) -> CanaryReport:
    """Boot an instance from the image and hear what it finds."""
    place.say(f"Trying {image.id} with an instance of it")
    report = try_image(place, names, image, base.root_device)
    for line in report.passed:
        get_run_logger().info("passed: %s", line)
    return report


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE)
def publish_image(place: Place, architecture: Architecture, image: OwnImage) -> Pointer:
    """Let the parameter name the image."""
    place.say(f"Publishing {image.id}")
    return publish(place, architecture, image)


@task(name="prune", task_run_name="prune", cache_policy=NO_CACHE)
def remove_old(place: Place, architecture: Architecture) -> list[str]:
    """Remove the images that are too old to go back to, and what builds that were killed have left.

    The new image is published: what can't be removed is told, and is no failure.
    """
    place.say("Removing old images")
    try:
        swept = sweep(place)
        for line in swept:
            get_run_logger().info("%s", line)
        return [image.id for image in prune(place, architecture)]
    except FleetError as error:
        get_run_logger().warning("Old images stay until the next build: %s", error)
        listener.get().warn(f"old images stay until the next build: {error}")
        return []


class Steps:
    """A bar in the UI: four steps, and what was done last."""

    def __init__(self, description: str) -> None:
        made = create_progress_artifact(0.0, key="image-build", description=description)
        self._id = made if isinstance(made, UUID) else None

    def step(self, number: int, description: str) -> None:
        """So many of the four are done."""
        if self._id is not None:
            update_progress_artifact(self._id, progress=25.0 * number, description=description)


def place_of(account: str, region: str | None, every: float) -> Place:
    """The AWS side of the account's block."""
    home = fleet_account(account)
    site = home.site(region)
    subnets, groups = home.network(site.region)
    return Place(
        aws=site.aws,
        objects=site.objects,
        prefix=site.prefix,
        owner=caller(site.aws).name,
        instance_profile=home.instance_profile,
        subnets=tuple(subnets),
        security_groups=tuple(groups),
        image_parameter=home.image_parameter,
        patience=Patience(every=every),
        say=say,
    )


def say(line: str) -> None:
    """A line for the log, and for whoever follows."""
    get_run_logger().info("%s", line)
    listener.get().stage(line)


def report_of(
    outcome: str,
    image: OwnImage,
    names: BuildNames,
    place: Place,
    before: Pointer,
    builder: str = "",
    checks: tuple[str, ...] = (),
    removed: Sequence[str] = (),
    minutes: float = 0.0,
) -> BuildReport:
    """What became of the build."""
    return BuildReport.model_validate(
        {
            "outcome": outcome,
            "image": image.id,
            "architecture": names.recipe.architecture,
            "region": place.region,
            "recipe": names.recipe_hash,
            "base": names.base,
            "parameter": before.parameter,
            "previous": before.image if outcome == "built" else "",
            "builder": builder,
            "checks": checks,
            "removed": tuple(removed),
            "minutes": minutes,
        }
    )


def done(report: BuildReport) -> BuildReport:
    """Tell how it ended."""
    get_run_logger().info("%s", report.line())
    create_markdown_artifact(report.markdown(), key="image-report", description=report.line())
    return report
