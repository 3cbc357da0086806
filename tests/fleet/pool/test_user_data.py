"""The boot script: small, quoted, and true to what it promises when it is really run."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import re
import shlex
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.session import Aws
from fleet.pool.boot_log import tail
from fleet.pool.environment import instance_environment
from fleet.pool.order import FLOW_RUN_TAG
from fleet.pool.user_data import (
    LIMIT_BYTES,
    LONGEST_BUCKET,
    LONGEST_PARAMETER,
    LONGEST_PREFIX,
    CommandRefused,
    UserDataTooLarge,
    user_data,
)
from fleet.pool.variables import DEFAULT_COMMAND
from tests.archives import zip_of

BIN = Path(sys.executable).parent


def test_the_longest_names_stay_below_four_kilobytes() -> None:
    """The longest that the account's block and the pool take, at the longest address that a host's name allows."""
    bucket, prefix, run = "b" * LONGEST_BUCKET, "p" * LONGEST_PREFIX, "0" * 36
    told = instance_environment(
        plain={},
        api_url=f"https://{'h' * 253}/api/accounts/{run}/workspaces/{run}",
        flow_run_id=None,
        flow_run_tag=FLOW_RUN_TAG,
        region="ap-southeast-99",
        code=f"s3://{bucket}/{prefix}/artifacts/{'0' * 64}",
        code_sha256="0" * 64,
        log_folder=f"s3://{bucket}/{prefix}/runs/{run}/instances",
        api_key_parameter="k" * LONGEST_PARAMETER,
    )
    assert len(user_data(told, DEFAULT_COMMAND, max_hours=9999).encode()) < 4096


def test_what_ec2_would_not_take_is_refused_and_names_what_is_large() -> None:
    fits = user_data({"A": "x" * 10_000}, "true", max_hours=1)
    room = LIMIT_BYTES - len(fits.encode()) + 10_000
    assert len(user_data({"A": "x" * room}, "true", max_hours=1).encode()) == LIMIT_BYTES
    with pytest.raises(UserDataTooLarge, match=r"16,385 bytes .* B \(9,000 bytes\), A"):
        user_data({"A": "x" * (room - 9_000 - len("export B=\n") + 1), "B": "x" * 9_000}, "true", max_hours=1)


def test_what_cannot_be_compressed_is_refused_by_its_size_too() -> None:
    """Nothing is compressed on the way: 16,384 bytes are what EC2 takes, whatever is in them."""
    noise = base64.b85encode(random.Random(1).randbytes(14_000)).decode()  # noqa: S311  any noise will do
    assert len(zlib.compress(noise.encode(), 9)) > 14_000
    with pytest.raises(UserDataTooLarge, match=r"EC2 takes 16,384. The largest variables are NOISE"):
        user_data({"NOISE": noise}, "true", max_hours=1)


def test_bytes_are_counted_and_not_characters() -> None:
    with pytest.raises(UserDataTooLarge):
        user_data({"A": "é" * 8_192}, "true", max_hours=1)


@pytest.mark.parametrize("command", ["", "  ", "echo 'open"])
def test_a_command_without_words_is_refused(command: str) -> None:
    with pytest.raises(CommandRefused):
        user_data({}, command, max_hours=1)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=60))
def test_any_value_is_quoted(value: str) -> None:
    script = user_data({"A": value}, "true", max_hours=1)
    assert f"export A={shlex.quote(value)}\n" in script


def test_the_lifetime_is_rounded_up_to_minutes() -> None:
    assert "export FLEET_LIFETIME_MINUTES=91\n" in user_data({}, "true", max_hours=1.501)
    assert "export FLEET_LIFETIME_MINUTES=1\n" in user_data({}, "true", max_hours=0.001)


def test_the_rendered_script_is_clean_for_the_linters() -> None:
    script = user_data({"A": "it's"}, DEFAULT_COMMAND, max_hours=1)
    for check in ([str(BIN / "shellcheck"), "-"], [str(BIN / "shfmt"), "-d", "-i", "4"]):
        done = subprocess.run(check, input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


# Really run: a machine whose `shutdown` and `fleet-python` come from its PATH


@dataclass
class Machine:
    folder: Path
    environment: dict[str, str]

    def boot(self, script: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "user-data"
        path.write_text(script)
        return subprocess.run(
            ["bash", path],
            cwd=self.folder,
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )

    @property
    def power(self) -> list[str]:
        return (self.folder / "power").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, aws_environment: None) -> Machine:
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, body in {
        "shutdown": f'echo "$*" >> {tmp_path}/power',
        "fleet-python": f'exec {sys.executable} "$@"',
    }.items():
        (shims / name).write_text(f"#!/bin/sh\n{body}\n")
        (shims / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return Machine(tmp_path, {**environment, "PATH": f"{shims}:/usr/bin:/bin", "HOME": str(tmp_path)})


def test_a_command_gets_its_words_and_environment_and_then_the_machine_powers_off(machine: Machine) -> None:
    script = user_data({"SAID": "it's $HOME"}, "printenv SAID", max_hours=2)
    done = machine.boot(script)
    assert (done.returncode, done.stdout) == (0, "it's $HOME\n")
    assert machine.power == ["-h +120", "-h now"]


@pytest.mark.fault("boot-fails")
def test_a_command_that_fails_powers_off_as_well(machine: Machine) -> None:
    assert machine.boot(user_data({}, "false", max_hours=1)).returncode == 1
    assert machine.power[-1] == "-h now"


CODE = {"bootstrap/__init__.py": "", "bootstrap/boot.py": "import os, sys; print(__file__, sys.argv, os.getcwd())"}


@pytest.fixture
def code(aws: Aws, unique: str) -> dict[str, str]:
    packed = zip_of(CODE)
    aws.s3.create_bucket(Bucket=unique)
    aws.s3.put_object(Bucket=unique, Key="p/code", Body=packed)
    return {
        "AWS_DEFAULT_REGION": "us-east-1",
        "FLEET_CODE": f"s3://{unique}/p/code",
        "FLEET_CODE_SHA256": hashlib.sha256(packed).hexdigest(),
        "FLEET_LOG_FOLDER": f"s3://{unique}/p/instances",
    }


def test_the_code_that_was_shipped_is_what_runs(machine: Machine, code: dict[str, str]) -> None:
    done = machine.boot(user_data(code, "a-command 'two words'", max_hours=1))
    assert done.returncode == 0, done.stderr
    folder = re.search(rf"code: {code['FLEET_CODE_SHA256']} in (\S+)", done.stdout)
    assert folder is not None
    assert folder[1].startswith(f"{machine.folder}/fleet-code.")
    assert f"{folder[1]}/bootstrap/boot.py" in done.stdout
    assert "'--', 'a-command', 'two words'] " + folder[1] in done.stdout


@pytest.fixture
def metadata(machine: Machine) -> Iterator[None]:
    """The metadata service of `i-1`, version 2 only."""

    class Service(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(200 if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else 400, "a token")

        def do_GET(self) -> None:
            asked = (self.path, self.headers.get("X-aws-ec2-metadata-token"))
            known = asked == ("/i-1/latest/meta-data/instance-id", "a token")
            self._answer(200 if known else 401, "i-1")

        def log_message(self, *_: object) -> None: ...

        def _answer(self, code: int, text: str) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    machine.environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}/i-1"
    yield
    server.shutdown()
    server.server_close()


def without_waiting(machine: Machine) -> None:
    """The script's waits between its tries take no time."""
    unhurried = (
        "import sys, time; time.sleep = lambda _: None; del sys.argv[1]; exec(compile(sys.stdin.read(), 'x', 'exec'))"
    )
    (machine.folder / "bin" / "fleet-python").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(unhurried)} "$@"\n'
    )


def test_an_archive_that_is_not_what_was_promised_does_not_run(
    machine: Machine, metadata: None, code: dict[str, str], aws: Aws, unique: str
) -> None:
    """The reason is on the console, and where the pool worker looks for the boot log; and the machine powers off."""
    without_waiting(machine)
    done = machine.boot(user_data({**code, "FLEET_CODE_SHA256": "00"}, "echo ran", max_hours=1))
    assert done.returncode == 1
    why = f"fatal: code archive {code['FLEET_CODE']}: ValueError: its SHA-256 is {code['FLEET_CODE_SHA256']}"
    assert done.stderr.splitlines() == [why] * 5
    assert tail(aws, code["FLEET_LOG_FOLDER"], "i-1") == why
    assert "ran" not in done.stdout
    assert machine.power[-1] == "-h now"


def test_an_archive_that_is_not_there_is_named_on_the_console(
    machine: Machine, metadata: None, code: dict[str, str], unique: str
) -> None:
    without_waiting(machine)
    told = {**code, "FLEET_CODE": f"s3://{unique}/nowhere", "FLEET_LOG_FOLDER": ""}
    done = machine.boot(user_data({name: value for name, value in told.items() if value}, "echo ran", max_hours=1))
    assert done.returncode == 1
    assert f"fatal: code archive s3://{unique}/nowhere: NoSuchKey" in done.stderr
    assert machine.power[-1] == "-h now"
