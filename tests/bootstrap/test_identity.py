from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bootstrap.identity import InstanceUnknown, Metadata
from tests.bootstrap.metadata import FakeMetadata, serving


@pytest.fixture
def service() -> Iterator[FakeMetadata]:
    with serving(FakeMetadata()) as fake:
        yield fake


def metadata_of(service: FakeMetadata) -> Metadata:
    return Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint + "/"}, sleep=lambda _: None)


def test_the_id_is_asked_for_with_a_token_and_under_the_endpoints_prefix(service: FakeMetadata) -> None:
    assert metadata_of(service).instance_id() == "i-0123456789abcdef0"
    assert len(service.tokens) == 1


def test_one_token_serves_many_questions(service: FakeMetadata) -> None:
    service.values["placement/region"] = "us-east-1"
    metadata = metadata_of(service)
    assert [metadata.get("placement/region"), metadata.get("instance-id")] == ["us-east-1", "i-0123456789abcdef0"]
    assert len(service.tokens) == 1


def test_an_expired_token_is_renewed(service: FakeMetadata) -> None:
    service.expire_after = 2
    metadata = metadata_of(service)
    metadata.get("instance-id")
    assert metadata.get("instance-id") == "i-0123456789abcdef0"
    assert len(service.tokens) == 2


def test_what_is_not_there_is_none(service: FakeMetadata) -> None:
    assert metadata_of(service).get("spot/instance-action") is None


@pytest.mark.parametrize(
    ("values", "why"),
    [({}, "it has none"), ({"instance-id": "<html>log in</html>"}, "it answered '<html>log in</html>'")],
)
def test_no_instance_id_is_fatal_with_the_reason(service: FakeMetadata, values: dict[str, str], why: str) -> None:
    service.values = values
    with pytest.raises(InstanceUnknown) as caught:
        metadata_of(service).instance_id()
    assert why in str(caught.value)
    assert service.endpoint in str(caught.value)


PAGE = "<html>\n<h1>Log in, é</h1>\n</html>"


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"token": PAGE}, id="a page for a token"),
        pytest.param({"token": "<html></html>"}, id="a page in one word for a token"),
        pytest.param({"token": ""}, id="no token"),
        pytest.param({"status": 500}, id="a fault"),
        pytest.param({"status": 503}, id="busy"),
        pytest.param({"raw": b"\x16\x03\x01 hello"}, id="no HTTP"),
        pytest.param({"raw": b""}, id="nothing at all"),
        pytest.param({"raw": b"HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\nbroken off"}, id="broken off"),
        pytest.param({"raw": b"HTTP/1.0 200 OK\r\n\r\n\xff\xfe\x80"}, id="no text"),
        pytest.param({"raw": b"HTTP/1.0 nope\r\n\r\n"}, id="no status"),
    ],
)
@pytest.mark.fault("odd-answer")
def test_an_odd_answer_is_none_and_the_next_good_one_counts(service: FakeMetadata, odd: dict[str, Any]) -> None:
    metadata = metadata_of(service)
    before = {name: getattr(service, name) for name in odd}
    for name, value in odd.items():
        setattr(service, name, value)
    with pytest.raises(OSError):  # noqa: PT011 - the one family that every caller catches
        metadata.get("instance-id")
    for name, value in before.items():
        setattr(service, name, value)
    assert metadata.get("instance-id") == "i-0123456789abcdef0"


def test_a_service_that_comes_up_late_is_waited_for(service: FakeMetadata) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            service.values["instance-id"] = "i-0aaaaaaaaaaaaaaaa"

    service.values.clear()
    metadata = Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint}, sleep=sleep)
    assert metadata.instance_id() == "i-0aaaaaaaaaaaaaaaa"
    assert waits == [1, 2]


def test_no_service_at_all_is_fatal_with_the_reason() -> None:
    with serving(FakeMetadata()) as gone:
        endpoint = gone.endpoint
    waits: list[float] = []
    with pytest.raises(InstanceUnknown, match=r"refused.*\(5 tries\)"):
        Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}, sleep=waits.append).instance_id()
    assert waits == [1, 2, 3, 4]


def test_a_machine_that_switched_metadata_off_is_not_asked(service: FakeMetadata) -> None:
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.raises(InstanceUnknown, match="AWS_EC2_METADATA_DISABLED"):
        Metadata(environ).instance_id()
    assert service.tokens == []
