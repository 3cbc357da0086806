"""The control plane's program: what its processes are told, where it listens, and how its parts lean on each other."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap import control_plane
from bootstrap.control_plane import (
    ControlPlaneUnfit,
    Place,
    Shipper,
    client_environment,
    listen,
    main,
    parts_of,
    place_of,
    server_environment,
)
from bootstrap.identity import Metadata
from fleet.aws.failures import AwsRefused
from fleet.aws.session import Aws
from fleet.services.control_plane import ControlPlaneOrder, account_of

AUTH = "fleet:not-for-anybody"
ORDER = ControlPlaneOrder(
    volume="vol-0123456789abcdef0",
    code="s3://bucket/code",
    code_sha256="0" * 64,
    account=account_of({"bucket": "bucket", "subnets": ["subnet-1"]}),
    log_folder="s3://bucket/prefix/runs/control-plane/instances",
)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("i-0123456789abcdef0", "127.77.3.9", "eu-west-1", tmp_path)


def test_the_server_asks_for_the_auth_string_and_keeps_its_database_on_the_volume(place: Place) -> None:
    told = server_environment(place, AUTH, {"PATH": "/bin", "PREFECT_API_KEY": "theirs", "PREFECT_PROFILE": "theirs"})
    assert told["PREFECT_SERVER_API_AUTH_STRING"] == AUTH
    assert told["PREFECT_SERVER_DATABASE_CONNECTION_URL"].endswith(f"{place.data}/prefect/prefect.db")
    assert told["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert told["PREFECT_SERVER_UI_API_URL"] == "/api", "a browser comes by an address that only the laptop knows"
    assert "theirs" not in told.values()


def test_pool_workers_tell_instances_the_private_address(place: Place) -> None:
    """They log in by the auth string, which they have no right to hand out: instances read it themselves."""
    told = client_environment(place, AUTH, {"PATH": "/bin"})
    assert told["PREFECT_API_URL"] == "http://127.77.3.9:4200/api"
    assert told["PREFECT_API_AUTH_STRING"] == AUTH
    assert "PREFECT_SERVER_API_AUTH_STRING" not in told
    assert told["FLEET_PARENT"] == str(os.getpid()), "they end with this program, however it ends"


def test_instances_log_in_by_the_parameter_that_the_accounts_block_names() -> None:
    assert ORDER.account["api_auth_parameter"] == "/inspect-fleet/shared/prefect-auth"
    assert ORDER.account["api_key_parameter"] == ""


def test_an_order_is_the_same_after_its_travel_and_holds_no_secret() -> None:
    assert ControlPlaneOrder.read(ORDER.write()) == ORDER
    assert len(ORDER.write()) < 4096, "a standard parameter's size"
    fields = {"version", "volume", "code", "code_sha256", "auth_parameter", "account", "log_folder"}
    assert set(ControlPlaneOrder.model_fields) == fields


def test_pool_workers_begin_when_the_pools_are_made(place: Place) -> None:
    with socket.socket() as listener:
        parts = parts_of(place, ORDER, AUTH, listener)
    assert [(part.name, part.after, part.once) for part in parts] == [
        ("server", None, False),
        ("deploy", "server", True),
        ("pool workers", "deploy", False),
    ]


def test_only_the_private_address_is_listened_on(place: Place) -> None:
    with listen(place) as listener:
        assert listener.getsockname() == ("127.77.3.9", 4200)
        with pytest.raises(ControlPlaneUnfit, match=r"127\.77\.3\.9:4200 can't be listened on"):
            listen(place)


def test_a_machine_without_a_private_address_is_no_control_plane(tmp_path: Path) -> None:
    metadata = SimpleNamespace(instance_id=lambda: "i-0123456789abcdef0", get=lambda path: None)
    with pytest.raises(ControlPlaneUnfit, match="no private address"):
        place_of(cast("Metadata", metadata), tmp_path)


def test_the_log_goes_to_s3_when_it_has_changed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[tuple[str, bytes]] = []

    class Objects:
        def __init__(self, _: Aws, bucket: str) -> None:
            assert bucket == "bucket"

        def put(self, key: str, data: bytes) -> None:
            if data == b"refused":
                raise AwsRefused(service="s3", operation="PutObject", code="Slow", target=key, why="")
            puts.append((key, data))

    monkeypatch.setattr(control_plane, "Objects", Objects)
    log = place.data / "logs" / "control-plane.log"
    log.parent.mkdir(parents=True)
    log.write_text("one")
    shipper = Shipper(cast("Aws", None), ORDER, place)
    shipper.ship()
    shipper.ship()
    key = "prefix/runs/control-plane/instances/i-0123456789abcdef0/control-plane.log"
    assert puts == [(key, b"one")]
    log.write_text("refused")
    os.utime(log, (1, 1))
    shipper.ship()  # says so, and nothing more
    assert len(puts) == 1


def test_what_it_cant_begin_without_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert main(["/tmp/x"]) == 1  # noqa: S108  never touched
    assert "fatal: no instance id from the metadata service" in capsys.readouterr().out
    assert main([]) == 2


def test_orders_are_documents_like_any_other() -> None:
    raw = json.loads(ORDER.write()) | {"version": 2}
    with pytest.raises(Exception, match="its version is 2, this release reads 1"):
        ControlPlaneOrder.read(json.dumps(raw))
