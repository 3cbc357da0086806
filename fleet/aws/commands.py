"""Commands that a message offers: they work when they are pasted, whatever region the person's shell has by default.

Whoever names a command of AWS's, or one of ours that is about one region, has it made here.
"""

from __future__ import annotations

import shlex


def aws_command(region: str, *words: str) -> str:
    """`aws …` in `region`, quoted for a shell."""
    return shlex.join(["aws", *words, "--region", region])


def fleet_command(region: str, *words: str) -> str:
    """`fleet …` for `region`, quoted for a shell."""
    return shlex.join(["fleet", *words, "--region", region])
