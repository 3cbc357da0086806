"""The command `fleet`: finds the subcommand, runs it, and turns what went wrong into one line and an exit code.

0 done, 1 failed, 2 the request is at fault, 3 ran but incomplete, 130 interrupted. A traceback means a bug of ours.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import cast

import click

from fleet import __version__
from fleet.errors import FleetError

INTERRUPTED = 130

COMMANDS = {
    "connect": ("fleet.cli.connect:connect", "Bring the control plane's Prefect UI and API to this machine."),
    "image": ("fleet.cli.image:image", "The image that workers boot from: build, check, list."),
    "list": ("fleet.cli.list:list_runs", "The runs that go on, and what others have left."),
    "local": ("fleet.cli.local:local", "Emulate AWS and Prefect on this machine: up, down, status."),
    "reap": ("fleet.cli.reap:reap", "Remove what no live run owns: instances, queues, secrets, locks."),
    "run": ("fleet.cli.run:run", "Run Inspect evals on a fleet, on Hawk, or on this machine."),
    "setup": ("fleet.cli.setup:setup", "Make what evals need in AWS and Prefect, or check it."),
    "stop": ("fleet.cli.stop:stop", "Cancel runs, and see their instances go."),
}
"""Where each subcommand is, and its line in the help: the help must not import what only the command needs."""


class LazyCommands(click.Group):
    """A group whose subcommands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing any."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None: there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fleet")
def fleet() -> None:
    """Run Inspect AI evals on a fleet of EC2 instances, orchestrated by Prefect."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    sys.exit(code_of(fleet, arguments))


def code_of(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run `command` and say with which code the process ends; what a person needs to know is on stderr."""
    try:
        answer = command.main(
            args=None if arguments is None else list(arguments), prog_name="fleet", standalone_mode=False
        )
    except FleetError as error:
        click.echo(f"error: {_one_line(str(error))}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return answer if isinstance(answer, int) else 0


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
