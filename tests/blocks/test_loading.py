"""A block that can't be had: as Prefect says it, and as each flow does."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas import BlockDocument

from blocks.account import AccountUnknown, FleetAccount, fleet_account
from blocks.hawk import HawkDeployment, HawkUnknown, hawk_deployment
from blocks.loading import BlockUnusable, loaded
from blocks.scheduled_eval import ScheduledEval
from blocks.secrets import WorkerSecrets, kept_values
from fleet.errors import RequestRefused
from fleet.evals.secrets import SecretsRefused
from flows.nightly import ScheduleRefused, from_block

SECRET = "sk-very-secret-value"
HAVERS: list[tuple[type[Any], Callable[[str], Any], type[RequestRefused], str]] = [
    (FleetAccount, fleet_account, AccountUnknown, "no Fleet Account block 'other'"),
    (HawkDeployment, hawk_deployment, HawkUnknown, "the Hawk deployment 'other' can't be used"),
    (ScheduledEval, from_block, ScheduleRefused, "the scheduled eval in the block scheduled-eval/other can't be run"),
    (WorkerSecrets, kept_values, SecretsRefused, "the worker-secrets block 'other' can't be used"),
]
each = pytest.mark.parametrize(("kind", "have", "error", "said"), HAVERS, ids=lambda row: getattr(row, "__name__", ""))


def absent(name: str) -> None:
    """As Prefect says it."""
    raise ValueError(f"Unable to find block document named {name} for block type b")


def unreadable(kind: type[Any]) -> Callable[[str], Any]:
    """Prefect's own way from a document whose fields aren't the block's."""
    schema = kind._to_block_schema(block_type_id=uuid4())
    data = {"token": SECRET, "values": [SECRET]}
    document = BlockDocument(
        name="other", data=data, block_schema=schema, block_schema_id=uuid4(), block_type_id=uuid4()
    )
    return lambda _: kind._load_from_block_document(document)


@each
@pytest.mark.fault("request-refused")
def test_a_block_that_is_not_there_is_one_line_and_the_request_s_fault(
    kind: type[Any], have: Callable[[str], Any], error: type[RequestRefused], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "load", staticmethod(absent))
    with pytest.raises(error) as refused:
        have("other")
    told = str(refused.value)
    assert said in told
    assert "there is no such block" in told
    assert "\n" not in told
    assert refused.value.exit_code == 2


@each
@pytest.mark.fault("request-refused")
def test_a_block_that_cannot_be_read_is_one_line_that_quotes_nothing_of_it(
    kind: type[Any], have: Callable[[str], Any], error: type[RequestRefused], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "load", staticmethod(unreadable(kind)))
    with pytest.raises(error) as refused:
        have("other")
    told = str(refused.value)
    assert said in told
    assert "no such block" not in told
    assert "\n" not in told
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_what_is_no_fault_of_a_block_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: str) -> None:
        raise RuntimeError("Timed out while attempting to connect")

    monkeypatch.setattr(FleetAccount, "load", staticmethod(load))
    with pytest.raises(RuntimeError, match="Timed out"):
        loaded(FleetAccount, "default")


def test_which_of_the_two_it_is_can_be_told_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for load, told in ((absent, True), (unreadable(FleetAccount), False)):
        monkeypatch.setattr(FleetAccount, "load", staticmethod(load))
        with pytest.raises(BlockUnusable) as unusable:
            loaded(FleetAccount, "default")
        assert unusable.value.absent is told
        assert SECRET not in "".join(traceback.format_exception(unusable.value))
