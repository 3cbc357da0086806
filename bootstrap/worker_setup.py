"""The person's own script, run as root before any job: such as the host's side of a sandbox that isn't Docker.

It sees what jobs see: the job environment in front of PATH, VIRTUAL_ENV, the secrets. Whatever it exports in the file that
FLEET_WORKER_ENV names is taken over for the jobs. It is read by bash and ends at its first failing command, unless its first line
names another program.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bootstrap.commands import Commands, run_command
from bootstrap.host import HostUnfit
from bootstrap.private_files import open_new
from bootstrap.zygote import KILLED_S

TOLD = "FLEET_WORKER_ENV"
"""Environment of the script: where it may leave variables for the jobs, as `export NAME=value` lines."""
SECONDS = 3600.0
"""A script that takes longer hangs: the instance is paid for by the hour."""
LOOK_SECONDS = 0.2
"""Between two looks at what it has said."""
OUTPUT = "worker-setup.log"
VARIABLES = "worker-setup.env"
TAIL_LINES = 5
SHELLS = ("bash", "sh")
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", TOLD})
"""Variables that bash sets by itself, or that were for the script alone."""


class WorkerSetupFailed(HostUnfit):
    """The script ended with a failure: no job may run on what it left."""

    how: str
    said: str

    def message(self) -> str:
        """One line: how it ended, its last lines, what to do."""
        said = f" ({self.said})" if self.said else ""
        return f"worker_setup {self.how}{said}. Correct the script; its whole output is in this step's log"


class WorkerSetupEnvBroken(HostUnfit):
    """bash can't read the file of variables."""

    why: str

    def message(self) -> str:
        """One line: bash's words, and what the file may hold."""
        return f"the file that worker_setup left at ${TOLD} isn't bash: {self.why}. It takes lines such as export NAME=value"


@dataclass(frozen=True, slots=True)
class Taken:
    """What the jobs' environment becomes by the file."""

    variables: dict[str, str]
    """New ones, and those with another value."""
    removed: frozenset[str] = frozenset()

    def over(self, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment` with it."""
        return {name: value for name, value in environment.items() if name not in self.removed} | self.variables


def make_ready(script: Path) -> list[str]:
    """Make the file a program for its owner alone; the command that runs it."""
    script.chmod(0o700)
    return command_of(script.read_bytes(), script)


def command_of(script: bytes, path: Path) -> list[str]:
    """How a script is run. bash, told to end at the first failure, also for one that names bash; another program by its name."""
    first = script.split(b"\n", 1)[0].decode(errors="replace")
    if first.startswith("#!"):
        words = first[2:].split() or [""]
        program = words[1] if Path(words[0]).name == "env" and len(words) == 2 else words[0]
        if Path(program).name not in SHELLS:
            return [str(path)]
    return ["bash", "-e", str(path)]


def setup_environment(jobs: Mapping[str, str], python: Path, env_file: Path) -> dict[str, str]:
    """What the script sees: the jobs' environment, the folder of their Python as the active one, and where to leave variables."""
    return {**jobs, "VIRTUAL_ENV": str(python.parent.parent), TOLD: str(env_file)}


def room_for_variables(folder: Path) -> Path:
    """A new, empty file in which the script may leave variables, which may be secrets: its owner's alone."""
    path = folder / VARIABLES
    open_new(path).close()
    return path


async def run_setup(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    say: Callable[[str], None],
    *,
    hide: Callable[[str], str] = lambda text: text,
    seconds: float = SECONDS,
) -> None:
    """Run the script by its command in `folder`, each line of it told. WorkerSetupFailed.

    `hide` takes secrets out of a line. Cancelled or failed, what it started is ended with it.
    """
    # A file and no pipe: what the script leaves running may write on for ever, and must neither block nor be ended for it.
    with open_new(folder / OUTPUT) as output, (folder / OUTPUT).open("rb") as written:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:  # its first line names what isn't there
            raise WorkerSetupFailed(how="can't be started", said=error.strerror or str(error)) from error
        last: deque[str] = deque(maxlen=TAIL_LINES)

        def tell(line: bytes) -> None:
            text = hide(line.decode(errors="replace").rstrip())
            last.append(text)
            say(text)

        lines = Lines(written, tell)
        ended = asyncio.ensure_future(process.wait())
        until = asyncio.get_running_loop().time() + seconds
        try:
            while not ended.done() and asyncio.get_running_loop().time() < until:
                await asyncio.wait([ended], timeout=LOOK_SECONDS)
                lines.look()
        finally:
            if process.returncode != 0:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            # One that waits for a disk within the kernel isn't gone at once, though it was killed.
            await asyncio.wait([ended], timeout=KILLED_S)
            code = ended.result() if ended.done() else -signal.SIGKILL
        overdue = code == -signal.SIGKILL and asyncio.get_running_loop().time() >= until
        lines.end()
    said = " | ".join(line for line in last if line)[-600:]
    if overdue:
        raise WorkerSetupFailed(how=f"didn't end within {seconds:g} seconds", said=said)
    if code:
        how = f"exited with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
        raise WorkerSetupFailed(how=how, said=said)


class Lines:
    """The lines of a file that grows, each told once it is whole."""

    def __init__(self, file: BinaryIO, tell: Callable[[bytes], None]) -> None:
        self._file = file
        self._tell = tell
        self._rest = b""

    def look(self) -> None:
        """Tell the lines that came since the last look."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._tell(line)

    def end(self) -> None:
        """Tell what is left, also a line without an end."""
        self.look()
        if self._rest:
            self._tell(self._rest)
            self._rest = b""


def take_over(env_file: Path, jobs: Mapping[str, str], *, run: Commands = run_command) -> Taken:
    """What the file that the script left does to the jobs' environment; the file is gone then. WorkerSetupEnvBroken."""
    if not env_file.is_file() or not env_file.stat().st_size:
        env_file.unlink(missing_ok=True)
        return Taken({})
    # Its output is for us alone: whatever the file itself prints goes elsewhere.
    script = 'exec 3>&1 >/dev/null; set -e; source "$1"; exec env -0 >&3'
    said = run(["bash", "-c", script, "bash", str(env_file)], env=dict(jobs))
    env_file.unlink(missing_ok=True)
    if said.code:
        raise WorkerSetupEnvBroken(why=said.why)
    return taken(jobs, said.out)


def taken(before: Mapping[str, str], after: str) -> Taken:
    """The difference between an environment and what `env -0` prints. Pure."""
    seen = dict(part.partition("=")[::2] for part in after.split("\0") if "=" in part)
    mine = {name: value for name, value in seen.items() if name not in _OF_THE_SHELL}
    return Taken(
        variables={name: value for name, value in mine.items() if before.get(name) != value},
        removed=frozenset(name for name in before if name not in seen and name not in _OF_THE_SHELL),
    )
