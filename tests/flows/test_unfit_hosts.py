"""Instances on which one thing is wrong, each launched for real: what a person sees, what stays in S3, what is left.

They boot side by side, since nothing of one concerns another.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fleet.evals.documents import EnvironmentSpec, SettingSpec, WorkerOrder
from fleet.evals.layout import Layout
from fleet.evals.registry import RegistryAccess
from fleet.evals.settings import pack_setting
from fleet.local import preset
from fleet.pool.code import code_archive
from tests.checkouts import made
from tests.cloud import CloudUnderTest, a_cloud, until
from tests.fake_docker import WRONG, put_devices, put_docker

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

LAYOUT = Layout("inspect-fleet")
USER_PARAMETER, TOKEN_PARAMETER = "/inspect-fleet/shared/docker-user", "/inspect-fleet/shared/docker-token"
TOKEN = "a-token-that-nobody-may-see"
LOGIN = RegistryAccess(username_parameter=USER_PARAMETER, token_parameter=TOKEN_PARAMETER)


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what a person is told of it."""

    step: str
    says: str
    docker: str = "well"
    gpu: bool = False
    needs_docker: bool = True
    setup: bytes = b""
    setting: bool = False
    source: str | None = None
    more: dict[str, Any] = field(default_factory=dict)


FAULTS = {
    "the engine is stopped": Fault("prepare-host", "Cannot connect to the Docker daemon", docker="stopped"),
    "the engine has another pool": Fault("prepare-host", "address pool is 172.16.0.0/12 in /16s", docker="pool"),
    "a wrong password": Fault("docker-login", "unauthorized: incorrect username or password", docker="password"),
    "a GPU that no container sees": Fault("check-gpu", "could not select device driver", gpu=True),
    "a setting whose sync fails": Fault("install-code", "uv sync in .settings/tools", needs_docker=False, setting=True),
    "a setup script that exits 3": Fault(
        "worker-setup",
        "exited with code 3 (no such kernel module)",
        needs_docker=False,
        setup=b"echo no such kernel module; exit 3",
    ),
    "no lock of the packages": Fault(
        "install-code",
        "install the packages",
        needs_docker=False,
        more={"lock": "-r requirements-that-are-not-there.lock\n"},
    ),
}


@pytest.fixture(scope="module")
def unfit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudUnderTest]:
    """A cloud whose instances have a `docker` that can fail in each way."""
    folder = tmp_path_factory.mktemp("unfit")
    put_docker(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        with a_cloud(f"unfit-{os.getpid()}") as cloud:
            yield cloud


@pytest.mark.fault("host-step-fails")
def test_an_unfit_host_says_what_is_wrong_keeps_its_log_and_is_gone(unfit: CloudUnderTest, tmp_path: Path) -> None:
    ssm, s3, sqs = (unfit.aws(service) for service in ("ssm", "s3", "sqs"))
    ssm.put_parameter(Name=USER_PARAMETER, Value="someone", Type="String")
    ssm.put_parameter(Name=TOKEN_PARAMETER, Value=TOKEN, Type="SecureString")
    deployment = unfit.prefect("deployments/name/fleet-worker/fleet-worker")["id"]
    code = put(s3, code_archive())
    started: dict[str, str] = {}
    for number, (name, fault) in enumerate(FAULTS.items()):
        run = uuid4().hex
        queues = [sqs.create_queue(QueueName=f"inspect-fleet-{run}-{use}")["QueueUrl"] for use in ("work", "events")]
        spec = EnvironmentSpec(
            python="3.11",
            lock=fault.more.get("lock", ""),
            settings=[a_setting(s3, tmp_path)] if fault.setting else [],
        )
        order = WorkerOrder(
            run=run,
            region=preset.REGION,
            bucket=preset.BUCKET,
            prefix=LAYOUT.prefix,
            eval_ids=["an-eval"],
            environment=spec,
            work_queue=queues[0],
            events_queue=queues[1],
            secrets_parameter="",
            needs_docker=fault.needs_docker,
            registry=LOGIN,
            worker_setup=put(s3, fault.setup) if fault.setup else None,
        )
        variables = {
            "command": "fleet-python -m bootstrap.engine",
            "instance_profile": preset.PROFILE,
            "code": f"s3://{preset.BUCKET}/{LAYOUT.artifact(code)}",
            "code_sha256": code,
            "log_folder": f"s3://{preset.BUCKET}/{LAYOUT.instance_logs(run)}",
            "env": {
                WRONG: fault.docker,
                "FLEET_PCI_DEVICES": str(put_devices(tmp_path / f"pci-{number}", gpu=fault.gpu)),
            },
        }
        body = {"parameters": {"order": order.model_dump(mode="json")}, "job_variables": variables, "name": name}
        started[name] = unfit.prefect(f"deployments/{deployment}/create_flow_run", body)["id"]

    for name, run in started.items():
        fault = FAULTS[name]
        state, message = unfit.wait_for(run, "FAILED", seconds=300)
        assert state == "FAILED", f"{name}: {message}"
        assert message.startswith(f"{fault.step} failed: "), name
        assert fault.says in message, name
        assert "\n" not in message, name
        assert TOKEN not in message, name
        found = unfit.prefect(f"flow_runs/{run}")
        instance = found["infrastructure_pid"].rpartition("::")[2]
        until(f"{name}: the instance is gone", partial(is_gone, unfit, instance), seconds=60)
        folder = found["job_variables"]["log_folder"].removeprefix(f"s3://{preset.BUCKET}/")
        kept = s3.get_object(Bucket=preset.BUCKET, Key=f"{folder}/{instance}/boot.log")["Body"].read().decode()
        assert fault.says in kept, name
        assert TOKEN not in kept, name
        steps = unfit.steps(run, among=[fault.step])
        assert [step for step, ended in steps.items() if ended == "FAILED"] == [fault.step], name
    assert unfit.living_instances() == []


def put(s3: Any, content: bytes) -> str:
    """An artifact, by its SHA-256."""
    sha256 = hashlib.sha256(content).hexdigest()
    s3.put_object(Bucket=preset.BUCKET, Key=LAYOUT.artifact(sha256), Body=content)
    return sha256


def a_setting(s3: Any, folder: Path) -> SettingSpec:
    """A setting that packs and doesn't sync: its dependency is no requirement."""
    broken = "[project]\nname='tools'\nversion='1'\ndependencies=['x y']\n"
    setting = pack_setting(made(folder / "tools", {"pyproject.toml": broken}), folder)
    for archive in (setting.files, setting.git):
        put(s3, archive.path.read_bytes())
    return setting.spec


def is_gone(cloud: CloudUnderTest, instance: str) -> bool:
    """Whether EC2 has ended it."""
    return instance not in {each["InstanceId"] for each in cloud.living_instances()}
