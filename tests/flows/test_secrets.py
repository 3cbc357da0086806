"""Secrets on a whole run: held back they are waited for, refused they cost one instance, and nothing shows them afterwards."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log

from fleet.cache import cache_folder
from fleet.evals.eval_file import EvalFile
from fleet.local import environment
from fleet.local.faults import FaultKit
from fleet.local.preset import BUCKET
from tests.checkouts import made
from tests.cloud import CloudUnderTest, finish, until
from tests.job_environment import KIT

pytestmark = pytest.mark.cloud

NAME = "EVALKIT_KEY"
HELD_BACK_S = 10.0
THROTTLED = "ThrottlingException"


@dataclass(frozen=True)
class Secret:
    """A value that is nowhere else in the world, and a request whose score says whether the runners had it."""

    value: str = field(default_factory=lambda: f"sk-{uuid.uuid4().hex}{uuid.uuid4().hex}")

    def run(self, log_dir: Path, setting: Path | None = None) -> tuple[str, ...]:
        """The command's arguments. The task is given the value's digest alone, which also makes the eval a new one.

        With a `setting`, the value is to be in its values as well.
        """
        digest = hashlib.sha256(self.value.encode()).hexdigest()
        task = ("evalkit/keyed", "-T", f"name={NAME}", "-T", f"digest={digest}", "-T", "count=6")
        fleet = ("--ec2-arg", "max_workers=2", "--samples-per-job", "1", "--local-cloud", "--json")
        source = ("--model", "kit/model", "--source", str(KIT))
        more = ("--setting", str(setting), "-T", f"file=.settings/{setting.name}.env") if setting else ()
        return ("run", *task, *more, *source, "--secret", NAME, *fleet, "--log-dir", str(log_dir))


@pytest.fixture
def aws_edge(cloud: CloudUnderTest) -> Iterator[FaultKit]:
    """Where AWS's answers are scripted; nothing is left in force."""
    kit = FaultKit(cloud.local.aws_endpoint)
    yield kit
    kit.clear()


@pytest.mark.long
@pytest.mark.fault("secret-late")
def test_a_secret_that_comes_late_is_waited_for_and_is_nowhere_afterwards(
    cloud: CloudUnderTest, aws_edge: FaultKit, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also the values of a setting, which lie in parameters and files of their own."""
    secret, logs, scratch = Secret(), tmp_path / "logs", tmp_path / "scratch"
    scratch.mkdir()
    setting = made(tmp_path_factory.mktemp("settings") / "tools", {"words.txt": "north"})
    setting.with_name("tools.env").write_text(f"KEY={secret.value}\n")
    listen_for(secret, aws_edge)
    # Not written within so many seconds, and not before both instances have asked in vain: machines differ in speed.
    aws_edge.fault("PutParameter", match=secret.value, delay=HELD_BACK_S, code=THROTTLED, times=None)
    command = cloud.start(*secret.run(logs, setting), **{NAME: secret.value, "TMPDIR": str(scratch)})
    # A job environment with the setting is built first.
    workers = until("two workers", lambda: both(cloud), seconds=150)
    until("both await a retry", lambda: [states(cloud, one)[-1] for one in workers] == ["AwaitingRetry"] * 2)
    heard, held_back = aws_edge.hits()
    assert held_back, "a request that carries the value is told by it"
    aws_edge.clear()
    listen_for(secret, aws_edge)
    # No job before both have their secrets: the first one might do them all, and the run would end over the other's wait.
    aws_edge.fault("ReceiveMessage", match=r"-work\b", code=THROTTLED, times=None)
    until("both have their secrets", lambda: [states(cloud, one)[-1] for one in workers] == ["Completed"] * 2)
    heard += aws_edge.hits()[0]
    aws_edge.clear()
    listen_for(secret, aws_edge)

    done = finish(command)
    assert done.code == 0, done.err
    assert done.report["left"] == []
    for one in workers:
        seen = states(cloud, one)
        assert (seen[0], seen[-1]) == ("Pending", "Completed")
        assert "AwaitingRetry" in seen
    (one,) = done.report["evals"]
    scores = {
        score.value for sample in read_eval_log(one["log"]).samples or [] for score in (sample.scores or {}).values()
    }
    assert scores == {"C"}, "every runner had the value, in its environment and beside the setting"
    assert one["samples_done"] == 6
    for worker in workers:
        assert cloud.steps(worker, among=["fetch-setting-values tools"])["fetch-setting-values tools"] == "COMPLETED"
    mine = {"parent_task_run_id": {"is_null_": False}, "name": {"like_": "secrets for"}}
    assert [run["name"] for run in cloud.flow_runs(**mine) if run["parameters"]["run"] == done.report["run"]] == [
        "secrets for 2 instances"
    ]
    values = list(cache_folder().glob(f"environments/*/*/.settings/{setting.name}.env"))
    assert values == [], "on this machine, which planned and ran the instances"

    assert heard + aws_edge.hits()[0] == 0, "no request but the parameter's own carried it: no message, no tag"
    everything = Everything(cloud, done.report["run"])
    everything.add("the command", done.out.encode(), done.err.encode())
    everything.add_files(cloud.local.folder)
    everything.add_files(tmp_path)
    assert everything.with_text(secret.value) == []
    # What is searched is what it is said to be: these are in there, some of them deflated.
    assert len(everything.with_text(done.report["run"])) > 10
    found = " ".join(everything.with_text(hashlib.sha256(secret.value.encode()).hexdigest()))
    for place in (environment.database(cloud.local.folder).name, "plan.eval header.json", "jobs/", "merged/"):
        assert place in found
    assert "user data of i-" in " ".join(everything.with_text("FLEET_CODE_SHA256"))
    assert "boot.log" in " ".join(everything.with_text(NAME))


@pytest.mark.fault("secret-refused")
def test_an_instance_whose_secret_is_refused_is_ended_and_named_and_the_other_goes_on(
    cloud: CloudUnderTest, aws_edge: FaultKit, tmp_path: Path
) -> None:
    secret = Secret()
    aws_edge.fault("PutParameter", match="/i-", code="AccessDeniedException", message="not for this one")
    done = finish(cloud.start(*secret.run(tmp_path), **{NAME: secret.value}))
    assert done.code == 0, done.err
    (one,) = done.report["evals"]
    assert (one["samples_done"], one["missing"], done.report["left"]) == (6, 0, [])
    by_state = {worker["state"]["type"]: worker for worker in cloud.workers_of(done.report["run"])}
    assert by_state.keys() == {"CANCELLED", "COMPLETED"}
    ended = by_state["CANCELLED"]
    instance = ended["infrastructure_pid"].rsplit("::")[-1]
    assert "secrets could not be written" in ended["state"]["message"]
    assert "AccessDeniedException" in ended["state"]["message"]
    assert instance not in [living["InstanceId"] for living in cloud.living_instances()]
    (warning,) = [line for line in done.err.splitlines() if "gets no secrets" in line]
    assert instance in warning
    assert "AccessDeniedException" in warning


@pytest.mark.fault("secret-refused")
def test_a_run_that_gets_no_secret_anywhere_ends_with_the_reason(
    cloud: CloudUnderTest, aws_edge: FaultKit, tmp_path: Path
) -> None:
    secret = Secret()
    aws_edge.fault("PutParameter", match="/i-", code="AccessDeniedException", times=None)
    done = finish(cloud.start(*secret.run(tmp_path), **{NAME: secret.value}))
    assert done.code in (1, 3)
    assert "secrets could not be written" in done.err + done.out
    assert secret.value not in done.err + done.out


def listen_for(secret: Secret, aws_edge: FaultKit) -> None:
    """Count the requests that carry the value, in the first place of the kit's hits. PutParameter may, and is left out by its P."""
    aws_edge.fault("[!P]*", match=re.escape(secret.value), times=None)


def both(cloud: CloudUnderTest) -> list[str] | None:
    """The flow runs of the two workers of the run that is on."""
    run = cloud.newest_run()
    workers = [worker["id"] for worker in cloud.workers_of(run)] if run else []
    return workers if len(workers) == 2 and all(states(cloud, one) for one in workers) else None


def states(cloud: CloudUnderTest, worker: str) -> list[str]:
    """The names of all states so far of a worker's `fetch-secrets`, oldest first; none before it begins."""
    found = [task for task in cloud.task_runs(worker) if task["name"].startswith("fetch-secrets")]
    if not found:
        return []
    history: Sequence[dict[str, Any]] = cloud.prefect(f"task_run_states/?task_run_id={found[0]['id']}")
    return [state["name"] for state in sorted(history, key=lambda state: str(state["timestamp"]))]


class Everything:
    """What a run has left anywhere, as bytes by place; archives with what is in them."""

    def __init__(self, cloud: CloudUnderTest, run: str) -> None:
        self._places: dict[str, bytes] = {}
        s3, ec2 = cloud.aws("s3"), cloud.aws("ec2")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for found in page.get("Contents", []):
                self._add(f"s3 {found['Key']}", s3.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read())
        mine = [{"Name": "tag:inspect-fleet:run", "Values": [run]}]
        for reservation in ec2.describe_instances(Filters=mine)["Reservations"]:
            for instance in reservation["Instances"]:
                name = instance["InstanceId"]
                data = ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]
                self._add(f"user data of {name}", base64.b64decode(data.get("Value", "")))
                self._add(f"console of {name}", ec2.get_console_output(InstanceId=name)["Output"].encode())
                self._add(f"description of {name}", repr(instance).encode())
        self._add("tags", repr(ec2.describe_tags()["Tags"]).encode())
        parameters = cloud.aws("ssm").get_paginator("describe_parameters").paginate()
        self._add("parameters", repr([page["Parameters"] for page in parameters]).encode())

    def add(self, place: str, *contents: bytes) -> None:
        """One more place."""
        self._add(place, b"\n".join(contents))

    def add_files(self, folder: Path) -> None:
        """Every file below a folder: a database with its journals, logs, consoles, what Prefect keeps of results."""
        for place, _, names in os.walk(folder):  # unlike `rglob` it takes it well that a folder goes meanwhile
            for path in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):
                    if path.is_file() and not path.is_symlink():
                        self._add(str(path), path.read_bytes())

    def with_text(self, text: str) -> list[str]:
        """The places that hold it."""
        return [place for place, content in self._places.items() if text.encode() in content]

    def _add(self, place: str, content: bytes) -> None:
        self._places[place] = content
        if content[:4] == b"PK\x03\x04":
            self._places.update({f"{place} {name}": inside for name, inside in members(content)})
        elif content[:2] == b"\x1f\x8b":
            self._places[f"{place} unpacked"] = gzip.decompress(content)


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of a zip, inflated, zstandard's among them."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(archive)
        file.flush()
        with EvalFile(Path(file.name)) as opened:
            for name in zipfile.ZipFile(io.BytesIO(archive)).namelist():
                yield name, opened.read(name)
