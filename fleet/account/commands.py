"""The command that makes or mends this very stack, for messages: in its region, and by its name where that isn't the usual one."""

from __future__ import annotations

from fleet.account import names
from fleet.aws.commands import fleet_command


def setup_command(region: str, stack: str, *more: str) -> str:
    """`fleet setup …` for the stack `stack` of `region`."""
    named = () if stack == names.STACK else ("--stack", stack)
    return fleet_command(region, "setup", *named, *more)
