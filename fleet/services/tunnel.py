"""A tunnel to the control plane's server: one session at a time, opened anew when it drops, ended with whoever holds it.

A look at the server's health each few seconds tells whether the tunnel still carries anything, and keeps the session from
ending for want of traffic (Session Manager's default is 20 minutes).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleet.aws.commands import aws_command
from fleet.aws.failures import AwsRefused
from fleet.aws.session import Aws
from fleet.aws.sessions import PLUGIN, Session, close_session, find_tagged, open_session, plugin_command
from fleet.errors import FleetError
from fleet.services.control_plane import PORT, TAG
from fleet.services.supervision import Part, Supervision

OPEN_SECONDS = 300.0
"""From the first session to the server's first answer: a control plane that was launched just now boots for some minutes."""
VERSION_SECONDS = 15.0
"""For the plugin to say its version."""
SESSION_SECONDS = 20.0
"""A new session that carries nothing by then is replaced."""


class PluginMissing(FleetError):
    """AWS's program that carries a session isn't here."""

    def message(self) -> str:
        """One line with where to get it."""
        return (
            f"the program {PLUGIN} isn't on the PATH: install it (macOS: `brew install --cask session-manager-plugin`; Linux and "
            "Windows: AWS's page 'Install the Session Manager plugin for the AWS CLI'), then connect again"
        )


class NoAnswer(FleetError):
    """The tunnel is open and the server doesn't answer."""

    region: str
    instance: str
    seconds: float
    said: str

    def message(self) -> str:
        """One line: who, how long, what was said last, where to look."""
        return (
            f"the control plane {self.instance} doesn't answer after {self.seconds:.0f} s{f' ({self.said})' if self.said else ''}. "
            f"It may still boot; its own words: `{_console(self.region, self.instance)}`"
        )


class NoWorkers(FleetError):
    """The server answers and nobody takes its runs."""

    region: str
    instance: str
    seconds: float

    def message(self) -> str:
        """One line: where, how long, where to look."""
        return (
            f"the control plane {self.instance} answers, and after {self.seconds:.0f} s no pool worker asks for runs of the pool "
            f"ec2; its own words: `{_console(self.region, self.instance)}`"
        )


class AuthRefused(FleetError):
    """The server doesn't take the auth string that the account's parameter holds."""

    region: str
    instance: str

    def message(self) -> str:
        """One line: who refuses, the likely cause, what helps."""
        end = aws_command(self.region, "ec2", "terminate-instances", "--instance-ids", self.instance)
        return (
            f"the Prefect server of the control plane {self.instance} refuses the auth string in SSM, which was changed after the "
            "server began. The next instance begins with the new one; runs that are on their way lose the API: "
            f"`{end}`"
        )


def _console(region: str, instance: str) -> str:
    return aws_command(region, "ec2", "get-console-output", "--latest", "--output", "text", "--instance-id", instance)


class PluginSilent(FleetError):
    """AWS's program hangs when it is asked for its version."""

    program: str

    def message(self) -> str:
        """One line with what helps."""
        return f"`{self.program} --version` gave no answer within {VERSION_SECONDS:g} s: install {PLUGIN} anew"


def version_of(program: str) -> str:
    """What AWS's program says of itself. PluginSilent."""
    try:
        asked = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=VERSION_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise PluginSilent(program=program) from error
    return asked.stdout


class Plugin:
    """One session and the plugin that carries it."""

    def __init__(self, aws: Aws, session: Session, *, program: str) -> None:
        self._aws = aws
        self._session = session
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        version = version_of(program)
        arguments, variables = plugin_command(
            session, version=version, region=aws.region, endpoint=str(aws.ssm.meta.endpoint_url)
        )
        self._process = subprocess.Popen(
            [program, *arguments[1:]],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the command; the tunnel ends after it
        )

    def ended(self) -> int | None:
        """See `Running.ended`."""
        return self._process.poll()

    def tell(self) -> None:
        """End the plugin, then AWS's side of the session, which would else last until it is idle for long."""
        self._process.terminate()
        self._close()

    def kill(self) -> None:
        """The same, at once."""
        self._process.kill()
        self._close()

    def _close(self) -> None:
        with suppress(AwsRefused):  # it ends by itself, later
            close_session(self._aws, self._session)


class Tunnel:
    """The way from a port of this machine to the control plane."""

    def __init__(self, aws: Aws, *, port: int, say: Callable[[str], None]) -> None:
        """PluginMissing."""
        program = shutil.which(PLUGIN)
        if program is None:
            raise PluginMissing()
        self._aws = aws
        self._program = program
        self._instance = ""
        self._said = ""
        self._say = say
        self._quiet = True
        self.port = port
        self._kept = Supervision(
            [
                Part(
                    "tunnel",
                    self._start,
                    self.answers,
                    start_seconds=SESSION_SECONDS,
                    expected=(OSError, FleetError),
                )
            ],
            self._note,
        )

    @property
    def address(self) -> str:
        """Where the server's UI is, from here."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def api(self) -> str:
        """Where the server's API is, from here."""
        return f"{self.address}/api"

    def open(self) -> None:
        """Until the server answers through it. InstanceAbsent, AwsRefused, NoAnswer."""
        self._instance = find_tagged(self._aws, TAG).instance
        self._say(f"connecting to the control plane {self._instance}")
        until = time.monotonic() + OPEN_SECONDS
        while not self._kept.well():
            self.look()
            if time.monotonic() > until:
                raise NoAnswer(region=self._aws.region, instance=self._instance, seconds=OPEN_SECONDS, said=self._said)
            time.sleep(0.1)
        self._quiet = False

    def wait_for_workers(self, auth: str) -> None:
        """Until a pool worker asks for runs of the pool `ec2`: a control plane on its first boot makes its pools, blocks and
        deployments after its server answers. NoWorkers, AuthRefused."""
        until, said = time.monotonic() + OPEN_SECONDS, False
        while not self._has_workers(auth):
            if not said:
                self._say("waiting for its pool workers")
                said = True
            self.look()
            if time.monotonic() > until:
                raise NoWorkers(region=self._aws.region, instance=self._instance, seconds=OPEN_SECONDS)
            time.sleep(1)

    def look(self) -> None:
        """One look, to be had every second or so: a session that dropped is replaced, to whichever control plane there is then."""
        self._kept.look(time.monotonic())

    def close(self) -> None:
        """End it."""
        self._quiet = True
        self._kept.stop(time.monotonic, time.sleep)

    def answers(self) -> bool:
        """Whether the server is well, through the tunnel."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(f"{self.api}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _has_workers(self, auth: str) -> bool:
        told = {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"}
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(urllib.request.Request(f"{self.api}/work_pools/ec2", headers=told), timeout=5) as answer:  # noqa: S310
                return bool(json.load(answer)["status"] == "READY")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 401:
                raise AuthRefused(region=self._aws.region, instance=self._instance) from error
            return False  # the pool isn't there yet
        except (OSError, ValueError):  # the tunnel is being replaced
            return False

    def _start(self) -> Plugin:
        target = find_tagged(self._aws, TAG)
        self._instance = target.instance
        session = open_session(self._aws, target, port=PORT, local_port=self.port)
        return Plugin(self._aws, session, program=self._program)

    def _note(self, line: str) -> None:
        self._said = line
        if not self._quiet:
            self._say(line)


@contextmanager
def opened(aws: Aws, *, port: int, say: Callable[[str], None]) -> Iterator[Tunnel]:
    """A tunnel whose server answers, for as long as the block runs. The errors of `Tunnel` and its `open`."""
    tunnel = Tunnel(aws, port=port, say=say)
    try:
        tunnel.open()
        yield tunnel
    finally:
        tunnel.close()


def free_port(wanted: int) -> int:
    """`wanted` where nothing listens on it here, else another one."""
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                return int(one.getsockname()[1])
    raise OSError("no port is free on 127.0.0.1")


def environment(tunnel: Tunnel, auth: str, folder: Path) -> dict[str, str]:
    """What makes Prefect's tools use this server and nothing of the person's own profile; `folder` is an empty one."""
    return {
        "PREFECT_API_URL": tunnel.api,
        "PREFECT_API_AUTH_STRING": auth,
        "PREFECT_PROFILES_PATH": str(folder / "profiles.toml"),
        # A server that starts unasked would hide that the tunnel is gone.
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    }
