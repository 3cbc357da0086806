"""The first program on an instance: `python -m bootstrap.boot -- COMMAND …`, started by the user data.

It learns who the instance is, fetches what the Prefect API asks for (Prefect Cloud's key or a server's auth string), and runs
the command as its child with the output copied to the console and to a file. Whatever happens, the file goes to S3 when it ends.
It ends with the child's exit code (128 + n for a signal), and 1 where the child never started. Powering off is the user data's
part.

Lean on purpose: the standard library, and boto3 only once something must be sent or fetched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from bootstrap.identity import InstanceUnknown, Metadata
from bootstrap.private_files import open_to_append
from bootstrap.uptime import MARK, mark, stamp
from fleet.aws.failures import botocore_errors, one_line
from fleet.errors import FleetError

LOG_FOLDER = "FLEET_LOG_FOLDER"
"""Environment: `s3://bucket/folder`; the log goes to `<folder>/<instance id>/boot.log`. Unset: it stays here."""
CREDENTIALS = {
    "FLEET_API_KEY_PARAMETER": "PREFECT_API_KEY",
    "FLEET_API_AUTH_PARAMETER": "PREFECT_API_AUTH_STRING",
}
"""Environment: the SSM parameter that holds a key of Prefect Cloud, or a server's auth string; and by which variable Prefect takes
each. A server of one's own takes no key, and Prefect Cloud no auth string. Neither set: the API asks for nothing."""
FLOW_RUN_TAG = "FLEET_FLOW_RUN_TAG"
"""Environment: the key of this instance's own tag that holds the id of its flow run. Unset: PREFECT__FLOW_RUN_ID is set already."""
TAG_SECONDS = 120
"""The pool worker writes that tag within seconds of the launch; one that is gone by now never will."""
TAIL_LINES = 20
FORWARD_AFTER = 0.5
"""Seconds before a signal is passed on: an operating system that stops has told the child as well, and a child that is
told twice may be disturbed while it gives its jobs back."""

LAST_OUTPUT = 2.0
"""Seconds to wait for the rest of the child's output once it has ended."""
ENDING = (signal.SIGTERM, signal.SIGINT)

ClientOf = Callable[[str], Any]


class ApiCredentialUnreadable(FleetError):
    """The parameter with the Prefect API's key or auth string can't be read."""

    parameter: str
    why: str

    def message(self) -> str:
        """One line: which parameter, why, what to look at."""
        return (
            f"the credential for the Prefect API in the parameter {self.parameter} can't be read: {self.why}. Does it "
            "exist in this region, and may the instance's role read it?"
        )


class FlowRunUnknown(FleetError):
    """This instance's tag never said which flow run it is for."""

    tag: str
    why: str

    def message(self) -> str:
        """One line: which tag, what was seen, who writes it."""
        return (
            f"no flow run for this instance: its tag {self.tag} isn't in its metadata after {TAG_SECONDS} s ({self.why}). The "
            "pool worker writes it right after the launch; it was stopped then, or lacks ec2:CreateTags"
        )


class BootLog:
    """The log of this boot: what is written shows on the console at once and stays in `path`."""

    def __init__(self, path: Path, console: BinaryIO) -> None:
        self.path = path
        self._console = console
        self._file = open_to_append(path)

    def say(self, line: str) -> None:
        """One line of our own, with the seconds since boot."""
        self.copy(f"{stamp()} {line}\n".encode())

    def copy(self, data: bytes) -> None:
        """Bytes of the child, as they are."""
        if not self._file.closed:  # else it is a grandchild that outlives the boot
            self._file.write(data)
            self.show(data)

    def close(self) -> None:
        """Nothing is written from here on."""
        self._file.close()

    def show(self, data: bytes) -> None:
        """To the console only; a console that is gone stops nothing."""
        try:
            self._console.write(data)
            self._console.flush()
        except OSError:
            pass

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 16_384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])


def boot(
    command: Sequence[str],
    *,
    metadata: Metadata | None = None,
    client_of: ClientOf | None = None,
    log_path: Path | None = None,
    console: BinaryIO | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run `command` on this instance; its exit code. The log is in S3 (where asked for) when this returns."""
    client_of = client_of or _client
    log = BootLog(log_path or _own_file(), console or sys.stdout.buffer)
    instance = "unknown"
    before = {number: signal.signal(number, _end) for number in ENDING}
    code = 1
    try:
        try:
            metadata = metadata or Metadata()
            instance = metadata.instance_id()
            log.say(f"instance {instance} boots")
            code = _run(command, _environment(instance, metadata, client_of, sleep), log)
        except (InstanceUnknown, FlowRunUnknown, ApiCredentialUnreadable) as error:
            log.say(f"fatal: {error}")
        except OSError as error:  # the command isn't there, or may not be run
            log.say(f"fatal: {command[0]} can't be started: {error}")
        log.say(f"{command[0]} ended with exit code {code}")
        if code:
            log.show(f"{stamp()} failed; the last lines:\n{log.tail()}\n".encode())
    finally:
        log.close()
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # the log is what tells of this end: its upload is not cut short
        _upload(log, instance, client_of)
        for number, handler in before.items():
            signal.signal(number, handler)
    return code


def _own_file() -> Path:
    """A new file for the log, under a name that nobody can have taken before."""
    descriptor, name = tempfile.mkstemp(prefix="fleet-boot-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _end(number: int, _frame: object) -> None:
    """A signal before there is a child: end, by way of the log's upload."""
    raise SystemExit(128 + number)


def _environment(
    instance: str, metadata: Metadata, client_of: ClientOf, sleep: Callable[[float], None]
) -> dict[str, str]:
    """The child's environment: ours, the mark of boot, who we are, our flow run, and the API's credential. It is nowhere else."""
    env = {**os.environ, MARK: mark(), "FLEET_INSTANCE_ID": instance, "PYTHONUNBUFFERED": "1"}
    if tag := os.environ.get(FLOW_RUN_TAG):
        env["PREFECT__FLOW_RUN_ID"] = _flow_run(metadata, tag, sleep)
    for told, variable in CREDENTIALS.items():
        if parameter := os.environ.get(told):
            env[variable] = secret_parameter(parameter, client_of, sleep)
    return env


def _flow_run(metadata: Metadata, tag: str, sleep: Callable[[float], None]) -> str:
    """The flow run that our own tag names. FlowRunUnknown: it isn't there after TAG_SECONDS."""
    why = "it was not asked for"
    for waited in range(0, TAG_SECONDS + 1, 2):
        if waited:
            sleep(2)
        try:
            found = metadata.get(f"tags/instance/{tag}")
        except OSError as error:
            why = f"the service answers: {error}"
            continue
        if found is None:
            why = "the service knows no such tag"
            continue
        try:
            return str(UUID(found.strip()))
        except ValueError:
            why = f"it says {found.strip()[:40]!r}"
    raise FlowRunUnknown(tag=tag, why=why)


def secret_parameter(parameter: str, client_of: ClientOf, sleep: Callable[[float], None]) -> str:
    """What a parameter holds. Tried five times: a role's credentials and rights may lag a launch by seconds."""
    cause: Exception
    for wait in (1, 2, 4, 8, None):
        try:
            answer = client_of("ssm").get_parameter(Name=parameter, WithDecryption=True)
            return str(answer["Parameter"]["Value"])
        except (
            KeyError,
            TypeError,
        ) as error:  # botocore reads another's document as an answer in which all is left out
            why, cause = "the answer isn't one of AWS's: does a proxy stand between?", error
        except botocore_errors() as error:
            why, cause = one_line(str(error)), error
        if wait is None:
            raise ApiCredentialUnreadable(parameter=parameter, why=why) from cause
        sleep(wait)
    raise AssertionError("the last try returns or raises")


def _run(command: Sequence[str], env: dict[str, str], log: BootLog) -> int:
    """Run the child until it ends, its output copied as it comes; signals that end us are passed on to it."""
    begun = threading.Event()

    def tell(number: int) -> None:
        begun.wait()
        child.send_signal(number)  # one that has ended gets none

    def forward(number: int, _frame: object) -> None:
        log.say(f"{signal.Signals(number).name} received; {command[0]} is told")
        timer = threading.Timer(FORWARD_AFTER, tell, (number,))
        timer.daemon = True
        timer.start()

    for number in ENDING:  # before there is a child: a signal in between would end this process alone
        signal.signal(number, forward)
    child = subprocess.Popen(
        list(command), env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    begun.set()
    copier = threading.Thread(target=_copy, args=(child.stdout, log), daemon=True)
    copier.start()
    code = child.wait()  # without a bound: the user data powers the machine off after its maximum lifetime
    copier.join(LAST_OUTPUT)  # a grandchild may hold the pipe open for ever
    return code if code >= 0 else 128 - code


def _copy(output: BinaryIO, log: BootLog) -> None:
    with output:
        while data := os.read(output.fileno(), 65_536):
            log.copy(data)


def _upload(log: BootLog, instance: str, client_of: ClientOf) -> None:
    """Put the log into S3. A log that can't be put is said on the console: it must not change how the boot ends."""
    folder = os.environ.get(LOG_FOLDER, "")
    if not folder.startswith("s3://"):
        return
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    key = f"{prefix.strip('/')}/{instance}/boot.log".lstrip("/")
    try:
        client_of("s3").put_object(Bucket=bucket, Key=key, Body=log.path.read_bytes())
    except Exception as error:  # noqa: BLE001  the last act of the process; boto3 raises families without a common root
        log.show(f"{stamp()} the log could not be put to s3://{bucket}/{key}: {error}\n".encode())


def _client(service: str) -> Any:
    import boto3
    from botocore.config import Config

    patience = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 3})
    return boto3.client(service, region_name=os.environ.get("FLEET_REGION") or None, config=patience)  # type: ignore[call-overload]


def main(arguments: Sequence[str]) -> int:
    """`bootstrap.boot -- COMMAND …`."""
    if len(arguments) < 2 or arguments[0] != "--":
        sys.stderr.write("usage: python -m bootstrap.boot -- COMMAND [ARGUMENT …]\n")
        return 2
    return boot(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
