"""`fleet local`: AWS, Prefect and instances on this machine."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.table import Table

from fleet.errors import FleetError
from fleet.local import cloud
from fleet.local.cloud import CloudStatus, LocalCloud, PartStatus, Say


class CloudNotUp(FleetError):
    """The command needs a local cloud that runs."""

    cloud: str

    def message(self) -> str:
        """One line with the command that helps."""
        return f"the local cloud {self.cloud} is not up: start it with `fleet local up{_name_option(self.cloud)}`"


class CloudNotDown(FleetError):
    """Some of the local cloud is still there."""

    cloud: str
    left: str

    def message(self) -> str:
        """One line that names what is left."""
        return f"the local cloud {self.cloud} is not down: could not stop {self.left}"


name_option = click.option("--name", default="default", show_default=True, help="Which local cloud.")


@click.group()
def local() -> None:
    """Emulate AWS and Prefect on this machine. State lies in the user's cache folder; several clouds run side by side."""


@local.command()
@name_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def up(name: str, as_json: bool) -> None:
    """Start the emulator, a Prefect server with its UI, the pool workers and the deployments, and keep them."""
    began = time.monotonic()
    with _progress() as say:
        found = cloud.up(name, controllers=True, say=say)
        say(f"ready after {time.monotonic() - began:.1f} s")
    if as_json:
        click.echo(json.dumps(_addresses(found)))
        return
    for label, value in (
        ("Prefect UI", found.prefect_ui),
        ("Prefect API", found.prefect_api),
        ("AWS", found.aws_endpoint),
        ("State", str(found.folder)),
    ):
        click.echo(f"{label:<12} {value}")
    click.echo(f'\nTo use it from this shell: eval "$(fleet local env{_name_option(name)})"', err=True)


@local.command()
@name_option
def down(name: str) -> None:
    """Stop all of it, also after a crash, and remove its state. Job environments stay in the cache."""
    with _progress() as say:
        was_there = name in cloud.names()
        left = cloud.down(name)
        if left:
            raise CloudNotDown(cloud=name, left=", ".join(left))
        say(f"the local cloud {name} is down" if was_there else f"there is no local cloud {name}")


@local.command()
@click.option("--name", default=None, help="Only this local cloud.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(name: str | None, as_json: bool) -> int:
    """Show addresses and the health of each part. Exit code 0: there are clouds, and all are well; 1 otherwise."""
    found = [seen for one in ([name] if name else cloud.names()) if (seen := cloud.status(one))]
    if as_json:
        click.echo(json.dumps({"clouds": [_document(one) for one in found]}, default=str))
    elif not found:
        click.echo(f"there is no local cloud {name}" if name else "there is no local cloud")
    for one in [] if as_json else found:
        _show(one)
    return 0 if found and all(one.healthy for one in found) else 1


@local.command()
@name_option
def env(name: str) -> None:
    """Print shell lines that make Prefect's and AWS's tools use this cloud, and nothing of your own configuration."""
    found = cloud.find(name)
    if found is None:
        raise CloudNotUp(cloud=name)
    for variable in sorted(found.foreign()):
        click.echo(f"unset {variable}")
    for variable, value in sorted(found.environment().items()):
        click.echo(f"export {variable}={shlex.quote(value)}")


def _addresses(found: LocalCloud) -> dict[str, str]:
    return {
        "name": found.name,
        "prefect_ui": found.prefect_ui,
        "prefect_api": found.prefect_api,
        "aws_endpoint": found.aws_endpoint,
        "folder": str(found.folder),
    }


def _document(one: CloudStatus) -> dict[str, object]:
    return {**dataclasses.asdict(one), "healthy": one.healthy}


def _show(one: CloudStatus) -> None:
    """A table on a terminal, the same rows as plain lines elsewhere."""
    if not sys.stdout.isatty():
        click.echo(f"{one.name}\t{one.phase}\t{one.folder}")
        for part in one.parts:
            click.echo("\t".join([part.part, part.health, _pid(part), _memory(part), part.address or "-", part.log]))
        return
    table = Table("part", "health", "pid", "memory", "restarts", "address", title=f"{one.name}: {one.phase}")
    for part in one.parts:
        style = "green" if part.health == "ok" else "red"
        table.add_row(
            part.part,
            f"[{style}]{part.health}[/]",
            _pid(part),
            _memory(part),
            str(part.restarts),
            part.address,
        )
    console = Console()
    console.print(table)
    console.print(f"logs: {one.folder / 'logs'}", highlight=False)


def _pid(part: PartStatus) -> str:
    return str(part.pid) if part.pid else "-"


def _memory(part: PartStatus) -> str:
    return f"{part.memory / 2**20:.0f} MB" if part.memory else "-"


def _name_option(name: str) -> str:
    return "" if name == "default" else f" --name {name}"


@contextmanager
def _progress() -> Iterator[Say]:
    """Where a command says what it does: beside a spinner on a terminal, in plain lines elsewhere; always on stderr."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda line: click.echo(line, err=True)
        return
    with console.status("working") as spinner:
        began = time.monotonic()

        def say(line: str) -> None:
            spinner.update(f"{line} …")
            console.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {line}")

        yield say
