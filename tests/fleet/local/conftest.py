"""The real host process, started once for all tests of this folder, and clients of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from fleet.local import preset
from fleet.local.faults import FaultKit
from fleet.local.metadata import TOKEN_HEADER, TTL_HEADER
from tests.processes import processes_with

PATIENCE = 30.0
"""Seconds; a busy machine is slow, and only a failing test waits so long."""


@dataclass
class Host:
    """A running host."""

    process: subprocess.Popen[str]
    folder: Path
    aws: str
    metadata: str

    def client(self, service: str, *, key: str = "person", secret: str = "person", token: str | None = None) -> Any:  # noqa: S107
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.aws,
            region_name=preset.REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token=token,
        )

    def as_instance(self, service: str, instance: str) -> Any:
        """A client with the instance's own credentials, as its metadata service gives them."""
        role = self.imds(instance, "meta-data/iam/security-credentials/")
        found = json.loads(self.imds(instance, f"meta-data/iam/security-credentials/{role}"))
        return self.client(service, key=found["AccessKeyId"], secret=found["SecretAccessKey"], token=found["Token"])

    def imds(self, instance: str, path: str) -> str:
        """What the instance's metadata service answers; KeyError for 404."""
        try:
            token = ask("PUT", f"{self.metadata}/{instance}/latest/api/token", {TTL_HEADER: "60"})
            return ask("GET", f"{self.metadata}/{instance}/latest/{path}", {TOKEN_HEADER: token})
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise KeyError(path) from error
            raise

    def folder_of(self, instance: str) -> Path:
        return self.folder / "instances" / instance

    def home_of(self, instance: str) -> Path:
        return self.folder_of(instance) / "home"

    def stop(self) -> int:
        """End it as a person would; returns its exit code."""
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def running_of(self, instance: str) -> set[int]:
        """The processes of an instance, by the mark in their environment."""
        return set(processes_with(f"FLEET_LOCAL_INSTANCE={self.folder}:{instance}"))


def start_host(folder: Path, **environment: str) -> Host:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.local.host", "--folder", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the host ended with {process.wait()}"
    ready = json.loads(line)
    return Host(process, folder.resolve(), ready["aws"], ready["metadata"])


def ask(method: str, url: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        error.close()
        raise


def wait_until(true: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true answer. These are real processes: nothing but looking says that they got there."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"{true} was not true within {seconds} s"
        time.sleep(0.01)
    return found


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host(tmp_path_factory.mktemp("host"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def kit(host: Host) -> Iterator[FaultKit]:
    """Faults of one test, gone after it, like its timing."""
    found = FaultKit(host.aws)
    found.clear()  # also of the calls that were counted while nobody had it
    yield found
    found.clear()
    found.timing(pending=0.05, grace=5.0, minute=60.0, notice=120.0, credentials=21_600)


@pytest.fixture(scope="session")
def ec2(host: Host) -> Any:
    return host.client("ec2")


@pytest.fixture(scope="session")
def sqs(host: Host) -> Any:
    return host.client("sqs")


@pytest.fixture(scope="session")
def ssm(host: Host) -> Any:
    return host.client("ssm")


@pytest.fixture
def unique() -> str:
    return uuid4().hex[:12]


@pytest.fixture
def launch(ec2: Any) -> Iterator[Callable[..., str]]:
    """Launches one instance with a user data script, and terminates it after the test."""
    launched: list[str] = []

    def launch_one(script: str = "", **parameters: Any) -> str:
        answer = ec2.run_instances(**launch_parameters(script, **parameters))
        launched.extend(instance["InstanceId"] for instance in answer["Instances"])
        return launched[-1]

    yield launch_one
    if launched:
        ec2.terminate_instances(InstanceIds=launched)
        wait_until(lambda: all(state_of(ec2, instance) == "terminated" for instance in launched))


def launch_parameters(script: str = "", **parameters: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "ImageId": preset.IMAGE,
        "InstanceType": "c7i.4xlarge",
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "IamInstanceProfile": {"Name": preset.PROFILE},
        "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
    }
    if script:
        defaults["UserData"] = f"#!/bin/bash\n{script}"
    return defaults | parameters


def describe(ec2: Any, instance: str) -> dict[str, Any]:
    found: dict[str, Any] = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    return found


def state_of(ec2: Any, instance: str) -> str:
    return str(describe(ec2, instance)["State"]["Name"])
