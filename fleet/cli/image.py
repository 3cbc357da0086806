"""`fleet image`: build the image that workers boot from, check it, list what there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.account import account_option, json_option, region_option, the_account
from fleet.cli.run import quiet_prefect
from fleet.cli.table import table
from fleet.errors import FleetError

if TYPE_CHECKING:
    from worker_image.report import ImageRow

ARCHITECTURES = ("x86_64", "arm64")


class BuildCancelled(FleetError):
    """The build was cancelled in the UI."""

    why: str

    def message(self) -> str:
        """One line."""
        return f"the image build was cancelled: {self.why}; what it had made is removed"


@click.group()
def image() -> None:
    """The image that workers boot from: build it, check it, list what there is."""


@image.command()
@region_option
@click.option("--architecture", type=click.Choice(ARCHITECTURES), default="x86_64", show_default=True)
@click.option("--force", is_flag=True, help="Build also where neither recipe nor base image has changed.")
@click.option("--gpu/--no-gpu", default=None, help="NVIDIA's driver and toolkit; by default on x86_64 only.")
@click.option("--pull", multiple=True, metavar="IMAGE", help="Container image to put into it (repeatable).")
@click.option(
    "--builder",
    type=click.Choice(["auto", "instance", "pipeline"]),
    default="auto",
    show_default=True,
    help="An instance, or the account's Image Builder pipeline where there is one.",
)
@click.option("--every", type=click.FloatRange(min=0.1), default=5.0, hidden=True)
@account_option
@json_option
def build(as_json: bool, **options: Any) -> None:
    """Build a worker image, try it with an instance, publish it and remove old ones.

    Takes 15 to 40 minutes and costs a few cents. Fleets keep the image they have until the new one has passed.
    """
    from fleet.cli.display import display_for

    quiet_prefect()
    with display_for() as display:
        display.stage("Looking for the account")  # Prefect takes seconds to be there
        the_account(options["account"])
        from fleet.evals.listener import listener
        from flows.build_worker_image import build_worker_image
        from worker_image.report import BuildReport

        token = listener.set(display)
        try:
            state: Any = build_worker_image(**options, return_state=True)
        finally:
            listener.reset(token)
    if state.is_cancelled():
        raise BuildCancelled(why=state.message or "no reason given")
    report: Any = state.result(raise_on_failure=False)
    if not isinstance(report, BuildReport):
        raise report
    click.echo(json.dumps(report.model_dump(mode="json"), indent=2) if as_json else report.line())


@image.command()
@region_option
@click.option("--ami", help="AMI id, or SSM parameter that names one; by default the account's parameter.")
@click.option("--instance-type", "instance_types", multiple=True, metavar="TYPE", help="Must boot it (repeatable).")
@account_option
@json_option
def check(region: str | None, ami: str | None, instance_types: tuple[str, ...], account: str, as_json: bool) -> None:
    """Say which image fleets boot from, and whether it can be launched now; exit code 2 if it can't."""
    quiet_prefect()
    home = the_account(account)
    import dataclasses

    from blocks.ec2_config import Ec2Config
    from fleet.aws.images import check_image

    found = check_image(
        home.site(region).aws,
        requested=ami,
        default_parameter=home.image_parameter,
        instance_types=instance_types or [Ec2Config().instance_type],
    )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
        return
    click.echo(found.line())
    if found.doubt:
        click.echo(f"warning: {found.doubt}", err=True)


@image.command("list")
@region_option
@account_option
@json_option
def list_images(region: str | None, account: str, as_json: bool) -> None:
    """List this account's worker images, newest first, with the parameter that names one."""
    quiet_prefect()
    home = the_account(account)
    from fleet.aws.commands import fleet_command
    from worker_image.amis import Amis
    from worker_image.place import Place
    from worker_image.publish import read_pointer
    from worker_image.report import rows

    site = home.site(region)
    place = Place(
        aws=site.aws,
        objects=site.objects,
        prefix=site.prefix,
        owner="",
        instance_profile=home.instance_profile,
        image_parameter=home.image_parameter,
    )
    found = rows(Amis(place).own(), [read_pointer(place, "x86_64"), read_pointer(place, "arm64")])
    if as_json:
        click.echo(json.dumps([row.model_dump(mode="json") for row in found], indent=2))
    elif found:
        click.echo(_table(found))
    else:
        named = () if account == "default" else ("--account", account)
        command = fleet_command(site.region, "image", "build", *named)
        click.echo(f"no worker image in {site.region}. Build one: {command}")


def _table(found: list[ImageRow]) -> str:
    head = ("image", "version", "contract", "architecture", "created", "state", "named by")
    return table(
        head,
        [(row.id, row.version, row.contract, row.architecture, row.created, row.state, row.pointer) for row in found],
    )
