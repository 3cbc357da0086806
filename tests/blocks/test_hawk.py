"""Where Hawk is: by a block, by the environment, or by nobody."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blocks.hawk import HawkDeployment, HawkUnknown, hawk_deployment


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The blocks that Prefect has, by name."""
    there: dict[str, Any] = {}

    def load(name: str) -> HawkDeployment:
        if name not in there:
            raise ValueError(f"Unable to find block document named {name}")
        try:
            return HawkDeployment.model_validate(there[name])
        except ValidationError as error:
            raise RuntimeError(f"Unable to load {name!r} due to failed validation") from error

    monkeypatch.setattr(HawkDeployment, "load", staticmethod(load))
    monkeypatch.delenv("HAWK_API_URL", raising=False)
    return there


def test_a_block_says_it_whatever_the_environment_says(blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    blocks["default"] = {"address": "https://hawk.example.org", "token": "t-1"}
    monkeypatch.setenv("HAWK_API_URL", "https://other.example.org")
    found = hawk_deployment("default")
    assert found.address == "https://hawk.example.org"
    assert "t-1" not in repr(found)


def test_without_a_block_the_environment_serves_but_only_for_the_default_one(
    blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAWK_API_URL", "http://127.0.0.1:8000")
    assert hawk_deployment("default").address == "http://127.0.0.1:8000"
    with pytest.raises(HawkUnknown, match=r"'staging' can't be used: there is no such block; make the block [^,]*$"):
        hawk_deployment("staging")


@pytest.mark.fault("request-refused")
def test_nobody_says_it(blocks: dict[str, Any]) -> None:
    with pytest.raises(
        HawkUnknown, match=r"there is no such block; make .*hawk-deployment/default .*HAWK_API_URL"
    ) as refused:
        hawk_deployment("default")
    assert refused.value.exit_code == 2


def test_a_block_that_cannot_be_read_is_named_and_the_environment_is_not_asked(
    blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAWK_API_URL", "https://other.example.org")
    blocks["default"] = {"address": ""}
    with pytest.raises(HawkUnknown, match="'default' can't be used: address: string should have at least 1 character"):
        hawk_deployment("default")
