from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bootstrap import boot as boot_module
from bootstrap.boot import CREDENTIALS, boot, main
from bootstrap.identity import Metadata
from bootstrap.uptime import MARK
from tests.bootstrap.metadata import FakeMetadata, serving

KEY = "pnu_0123456789"


class FakeClients:
    """S3 and SSM with what they hold in memory."""

    def __init__(self, *refusals: str) -> None:
        self.objects: dict[str, bytes] = {}
        self.refusals = list(refusals)

    def __call__(self, service: str) -> Any:
        assert service in {"s3", "ssm"}
        return self

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        self.objects[f"{Bucket}/{Key}"] = Body

    def get_parameter(self, *, Name: str, WithDecryption: bool) -> dict[str, Any]:  # noqa: N803
        assert WithDecryption
        assert Name == "/prefect/key"
        if self.refusals:
            raise ClientError({"Error": {"Code": self.refusals.pop(0), "Message": "no"}}, "GetParameter")
        return {"Parameter": {"Value": KEY}}


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    monkeypatch.setenv("FLEET_LOG_FOLDER", "s3://bucket/fleet/runs/r1/instances")
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(MARK, raising=False)
    with serving(FakeMetadata()) as fake:
        yield Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.endpoint}, sleep=lambda _: None)


LOG = "bucket/fleet/runs/r1/instances/i-0123456789abcdef0/boot.log"


def run(code: str, metadata: Metadata, clients: FakeClients, tmp_path: Path, **more: Any) -> tuple[int, str]:
    console = io.BytesIO()
    exit_code = boot(
        [sys.executable, "-c", code],
        metadata=metadata,
        client_of=clients,
        log_path=tmp_path / "boot.log",
        console=console,
        sleep=lambda _: None,
        **more,
    )
    return exit_code, console.getvalue().decode()


def test_output_goes_to_the_console_and_the_log_to_s3(metadata: Metadata, tmp_path: Path) -> None:
    clients = FakeClients()
    code, console = run("import sys; print('out'); print('err', file=sys.stderr)", metadata, clients, tmp_path)
    assert code == 0
    log = clients.objects[LOG].decode()
    for line in ("out", "err", "instance i-0123456789abcdef0 boots", "ended with exit code 0"):
        assert line in log
        assert line in console
    assert log.startswith("[+")
    assert "the last lines" not in console


def test_the_log_is_a_new_file_that_only_its_owner_may_read(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the output of whatever runs, and lies in a folder in which everybody writes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"fleet-boot-{os.getpid()}.log").symlink_to(tmp_path / "victim")
    command = [sys.executable, "-c", "print('hi')"]
    assert boot(command, metadata=metadata, client_of=FakeClients(), console=io.BytesIO()) == 0
    assert not (tmp_path / "victim").exists()
    [log] = [path for path in tmp_path.iterdir() if not path.is_symlink()]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "hi" in log.read_text()


@pytest.mark.fault("boot-fails")
def test_a_failing_child_gives_its_exit_code_and_its_last_lines(metadata: Metadata, tmp_path: Path) -> None:
    clients = FakeClients()
    code, console = run("print('the cause'); raise SystemExit(7)", metadata, clients, tmp_path)
    assert code == 7
    assert "the cause" in console.partition("the last lines")[2]
    assert b"exit code 7" in clients.objects[LOG]


def test_a_child_that_a_signal_killed_ends_as_a_shell_says_it(metadata: Metadata, tmp_path: Path) -> None:
    code, _ = run("import os; os.kill(os.getpid(), 9)", metadata, FakeClients(), tmp_path)
    assert code == 137


@pytest.mark.fault("boot-fails")
def test_a_command_that_is_not_there_is_fatal_and_still_logged(metadata: Metadata, tmp_path: Path) -> None:
    clients = FakeClients()
    code = boot(
        ["/no/such/program"], metadata=metadata, client_of=clients, log_path=tmp_path / "l", console=io.BytesIO()
    )
    assert code == 1
    assert b"fatal: /no/such/program can't be started" in clients.objects[LOG]


@pytest.mark.fault("boot-fails")
def test_no_instance_id_is_fatal_with_the_reason_and_the_log_still_goes_up(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = FakeClients()
    nobody = Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.endpoint, "AWS_EC2_METADATA_DISABLED": "true"})
    code, console = run("print('ran')", nobody, clients, tmp_path)
    assert code == 1
    assert "fatal: no instance id from the metadata service" in console
    assert "ran\n" not in console
    assert list(clients.objects) == ["bucket/fleet/runs/r1/instances/unknown/boot.log"]


@pytest.mark.parametrize(
    ("told", "variable", "other"),
    [
        ("FLEET_API_KEY_PARAMETER", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING"),
        ("FLEET_API_AUTH_PARAMETER", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"),
    ],
)
def test_the_api_credential_reaches_the_child_and_nothing_else(
    told: str, variable: str, other: str, metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect Cloud's key and a server's auth string, each by the one variable that Prefect takes it from."""
    monkeypatch.setenv(told, "/prefect/key")
    clients = FakeClients("AccessDeniedException", "ThrottlingException")
    code, console = run(
        f"import os; raise SystemExit('{other}' in os.environ or os.environ['{variable}'] != '{KEY[::-1]}'[::-1])",
        metadata,
        clients,
        tmp_path,
    )
    assert code == 0
    assert KEY not in console
    assert KEY.encode() not in clients.objects[LOG]
    assert variable not in os.environ


def test_an_api_credential_that_stays_unreadable_is_fatal_and_names_its_parameter(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_API_KEY_PARAMETER", "/prefect/key")
    code, console = run("print('ran')", metadata, FakeClients(*["ParameterNotFound"] * 5), tmp_path)
    assert code == 1
    assert "fatal: the credential for the Prefect API in the parameter /prefect/key can't be read" in console


@pytest.mark.parametrize("answer", [{}, {"Parameter": {}}, {"Parameter": []}, {"message": "<html>log in</html>"}])
@pytest.mark.fault("odd-answer")
def test_an_answer_to_the_question_for_a_credential_that_is_none_of_ssms_is_fatal_in_one_line(
    answer: dict[str, Any], metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As botocore reads what a proxy says in SSM's place: as an answer in which all is left out."""
    monkeypatch.setenv("FLEET_API_KEY_PARAMETER", "/prefect/key")
    clients = FakeClients()
    monkeypatch.setattr(clients, "get_parameter", lambda **_: answer)
    code, console = run("print('ran')", metadata, clients, tmp_path)
    assert code == 1
    [line] = [line for line in console.partition("the last lines")[0].splitlines() if "fatal" in line]
    assert "in the parameter /prefect/key can't be read: the answer isn't one of AWS's: does a proxy stand" in line
    assert "Traceback" not in console


def test_the_child_knows_the_instant_of_boot_and_who_it_is(metadata: Metadata, tmp_path: Path) -> None:
    code, console = run(
        f"import os, time; print(os.environ['FLEET_INSTANCE_ID'], time.monotonic() >= float(os.environ['{MARK}']))",
        metadata,
        FakeClients(),
        tmp_path,
    )
    assert code == 0
    assert "i-0123456789abcdef0 True" in console


def test_a_log_that_cannot_be_put_changes_no_exit_code(metadata: Metadata, tmp_path: Path) -> None:
    class Broken(FakeClients):
        def put_object(self, **_: Any) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")

    code, console = run("pass", metadata, Broken(), tmp_path)
    assert code == 0
    assert f"the log could not be put to s3://{LOG}" in console


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_the_boot(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_module, "LAST_OUTPUT", 0.1)
    held = tmp_path / "pid"
    code, _ = run(
        "import subprocess, sys, pathlib\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(held)!r}).write_text(str(p.pid))",
        metadata,
        FakeClients(),
        tmp_path,
    )
    os.kill(int(held.read_text()), signal.SIGKILL)
    assert code == 0


def test_sigterm_is_passed_on_and_the_log_still_goes_up(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child ends in its own way; the boot ends with the child's code."""
    monkeypatch.setattr(boot_module, "FORWARD_AFTER", 0.0)
    ready = tmp_path / "ready"

    def terminate_when_ready() -> None:
        while not ready.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate_when_ready)
    thread.start()
    clients = FakeClients()
    code, console = run(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('given back'), sys.exit(3)))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)",
        metadata,
        clients,
        tmp_path,
    )
    thread.join()
    assert code == 3
    assert "given back" in console
    assert b"SIGTERM received" in clients.objects[LOG]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_module_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo"]) == 2
    assert "python -m bootstrap.boot -- COMMAND" in capsys.readouterr().err


def test_boot_loads_neither_boto3_nor_anything_heavy_before_it_must() -> None:
    heavy = "{'boto3', 'botocore', 'prefect', 'pydantic', 'anyio', 'inspect_ai'}"
    code = f"import sys, bootstrap.boot; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


TAG = "inspect-fleet:flow-run"
RUN = "0199b7a4-6a06-7c5e-9d3f-0123456789ab"


def says_its_flow_run(run_id: str) -> str:
    return f"import os; raise SystemExit(os.environ['PREFECT__FLOW_RUN_ID'] != '{run_id}')"


def test_an_instance_learns_its_flow_run_by_its_own_tag_for_which_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User data is one for a group; the pool worker tags each instance after its launch."""
    monkeypatch.setenv("FLEET_FLOW_RUN_TAG", TAG)
    monkeypatch.delenv("PREFECT__FLOW_RUN_ID", raising=False)
    waited: list[float] = []
    with serving(FakeMetadata()) as fake:

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                fake.values[f"tags/instance/{TAG}"] = f"{RUN}\n"

        code = boot(
            [sys.executable, "-c", says_its_flow_run(RUN)],
            metadata=Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.endpoint}),
            client_of=FakeClients(),
            log_path=tmp_path / "l",
            console=io.BytesIO(),
            sleep=sleep,
        )
    assert code == 0
    assert waited == [2, 2, 2]


@pytest.mark.fault("odd-answer")
def test_what_is_no_flow_run_in_the_tags_place_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_FLOW_RUN_TAG", TAG)
    with serving(FakeMetadata()) as fake:
        fake.values[f"tags/instance/{TAG}"] = "<html>log in</html>"
        metadata = Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.endpoint})
        code, console = run("print('ran')", metadata, FakeClients(), tmp_path)
    assert code == 1
    assert f"fatal: no flow run for this instance: its tag {TAG} isn't in its metadata after 120 s (it says" in console
    assert "'<html>log in</html>'" in console


@pytest.mark.fault("boot-fails")
def test_an_instance_that_nobody_claims_ends_with_one_line_that_says_so(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool worker was killed between launch and tag."""
    monkeypatch.setenv("FLEET_FLOW_RUN_TAG", TAG)
    clients = FakeClients()
    code, console = run("print('ran')", metadata, clients, tmp_path)
    assert code == 1
    assert f"fatal: no flow run for this instance: its tag {TAG} isn't in its metadata after 120 s" in console
    assert "ran\n" not in console
    assert b"fatal: no flow run" in clients.objects[LOG]


def test_without_the_name_of_a_tag_the_flow_run_is_the_one_that_the_user_data_names(
    metadata: Metadata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_FLOW_RUN_TAG", raising=False)
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", "run-2")
    assert run(says_its_flow_run("run-2"), metadata, FakeClients(), tmp_path)[0] == 0
