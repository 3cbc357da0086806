"""`fleet connect`: the control plane's UI and API on this machine, through Session Manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.errors import FleetError

if TYPE_CHECKING:
    from fleet.aws.session import Aws
    from fleet.services.control_plane import ControlPlaneOrder
    from fleet.services.tunnel import Tunnel

DEFAULT_REGION = "us-east-1"
LOOK_SECONDS = 0.5


class CommandAbsent(FleetError):
    """The command to run isn't there."""

    command: str
    why: str

    def message(self) -> str:
        """One line."""
        return f"{self.command} can't be started: {self.why}"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--region", help="Region of the control plane; by default AWS's own setting, else us-east-1.")
@click.option("--port", type=click.IntRange(1, 65_535), default=4200, show_default=True, help="Port on this machine.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def connect(region: str | None, port: int, command: tuple[str, ...]) -> int:
    """Bring the control plane's Prefect to this machine.

    Alone, it keeps the way open until Ctrl-C. With a COMMAND (`fleet connect -- fleet run …`) it runs that with the server's
    address and auth string in its environment, and ends with it.
    """
    from fleet.aws.session import Aws
    from fleet.services.control_plane import read_order
    from fleet.services.tunnel import free_port, opened

    aws = Aws(region or _own_region())
    with opened(aws, port=free_port(port), say=_say) as tunnel:
        order = read_order(aws)
        if command:
            auth = _auth(aws, order)
            tunnel.wait_for_workers(auth)
            return _run(tunnel, command, auth)
        _tell(tunnel, aws, order)
        return _stay(tunnel)


def _own_region() -> str:
    import boto3

    return boto3.Session().region_name or DEFAULT_REGION


def _auth(aws: Aws, order: ControlPlaneOrder) -> str:
    from fleet.aws.failures import calling

    with calling("ssm", order.auth_parameter):
        return str(aws.ssm.get_parameter(Name=order.auth_parameter, WithDecryption=True)["Parameter"]["Value"])


def _tell(tunnel: Tunnel, aws: Aws, order: ControlPlaneOrder) -> None:
    """Addresses, and how another shell and the UI log in. The auth string itself is shown nowhere."""
    from fleet.aws.commands import aws_command

    read = ("ssm", "get-parameter", "--with-decryption", "--name", order.auth_parameter)
    reads = aws_command(aws.region, *read, "--query", "Parameter.Value", "--output", "text")
    value = f"$({reads})"
    click.echo(f"Prefect UI   {tunnel.address}")
    click.echo(f"Prefect API  {tunnel.api}")
    click.echo(
        f'\nFor another shell:\n  export PREFECT_API_URL={tunnel.api} PREFECT_API_AUTH_STRING="{value}"', err=True
    )
    click.echo(f"The UI asks for the auth string; this shows it:\n  {reads}", err=True)
    click.echo("Ctrl-C ends the connection.", err=True)


def _stay(tunnel: Tunnel) -> int:
    with _told() as told:
        while not told:
            tunnel.look()
            time.sleep(LOOK_SECONDS)
    return 0


def _run(tunnel: Tunnel, command: Sequence[str], auth: str) -> int:
    """The command's exit code, as a shell says it. Signals that reach us reach it, and the tunnel stays until it has ended."""
    from fleet.local.environment import around_proxies
    from fleet.services.tunnel import environment

    with tempfile.TemporaryDirectory(prefix="fleet-connect-") as folder, _told() as told:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        theirs = {**kept, **around_proxies(os.environ), **environment(tunnel, auth, Path(folder))}
        try:
            child = subprocess.Popen(list(command), env=theirs)
        except OSError as error:
            raise CommandAbsent(command=command[0], why=str(error)) from error
        passed_on = 0
        while child.poll() is None:
            tunnel.look()
            # A terminal's Ctrl-C has reached the command as well.
            for number in told[passed_on:]:
                passed_on += 1
                if number != signal.SIGINT or not sys.stdin.isatty():
                    child.send_signal(number)
            try:
                child.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


@contextmanager
def _told() -> Iterator[list[int]]:
    """The signals that told this process to end, as they come, instead of its end."""
    told: list[int] = []
    before = {one: signal.signal(one, lambda number, _: told.append(number)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _say(line: str) -> None:
    click.echo(line, err=True)
