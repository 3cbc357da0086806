"""What the ec2 pool is told about a fleet's instances: exactly what the run's options and the account say."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect.logging import disable_run_logger

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.evals.documents import WorkerOrder
from fleet.evals.preparation import EVAL_TAG, OWNER_TAG, RUN_TAG
from fleet.evals.progress import EvalTally, RunTally, WorkerPhase
from fleet.evals.steps import Finished, GoOn, Step
from fleet.pool.variables import EC2JobConfiguration
from flows import run_eval
from flows.launch_fleet import TOGETHER, batches, job_variables
from tests.worker_order import ORDER

ACCOUNT = FleetAccount(bucket="bucket", subnets=["subnet-1"], security_groups=["sg-1"])
CODE = "0" * 64
IMAGE: Any = SimpleNamespace(id="ami-0123456789abcdef0")


def variables(config: Ec2Config, order: WorkerOrder = ORDER) -> EC2JobConfiguration:
    return EC2JobConfiguration(**job_variables(order, IMAGE.id, config, ACCOUNT, owner="r.one@example.org", code=CODE))


def test_every_option_of_an_instance_reaches_the_pool() -> None:
    config = Ec2Config(
        instance_type="m7i.large",
        instance_type_fallbacks=["m6i.large"],
        region=ACCOUNT.region,
        spot=True,
        volume_gb=250,
        max_hours=3,
        boot_seconds=60,
    )
    found = variables(config, ORDER.model_copy(update={"region": ACCOUNT.region}))
    assert found.instance_types == ["m7i.large", "m6i.large"]
    assert (found.market, found.volume_gb, found.max_hours, found.boot_seconds) == ("spot", 250, 3, 60)
    assert (found.subnets, found.security_groups) == (["subnet-1"], ["sg-1"])
    assert (found.region, found.image) == (ACCOUNT.region, "ami-0123456789abcdef0")


def test_an_instance_is_tagged_with_run_evals_and_owner_beside_the_persons_own() -> None:
    tags = variables(Ec2Config(tags={"team": "evals"})).tags
    assert tags == {
        "team": "evals",
        RUN_TAG: ORDER.run,
        EVAL_TAG: " ".join(ORDER.eval_ids),
        OWNER_TAG: "r.one@example.org",
    }


@given(count=st.integers(0, 2_000))
def test_a_large_fleet_is_asked_for_in_batches_that_are_all_of_it(count: int) -> None:
    sizes = batches(count)
    assert sum(sizes) == count
    assert all(0 < size <= TOGETHER for size in sizes)
    assert len(sizes) == -(-count // TOGETHER)


@pytest.mark.parametrize(("left", "launched"), [(108, [50, 50, 7]), (101, [50, 50, 7]), (100, [50, 50]), (50, [50])])
def test_the_next_batch_comes_after_a_look_until_the_run_is_over_or_has_no_work_for_it(
    left: int, launched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that secrets are written while the rest is asked for; what isn't needed any more is never launched."""
    asked: list[int] = []
    steps: list[Step] = [GoOn(), GoOn(), Finished()]
    watch: Any = SimpleNamespace(handout=None, facts=[], tally=RunTally({}))
    run: Any = SimpleNamespace(
        id="run", owed=[50, 50, 7], last=None, locks=SimpleNamespace(lost=None), show=lambda _: None, watch=watch
    )

    def looks(*_: object) -> Iterator[tuple[None, Step]]:
        for step in steps:
            watch.facts = [SimpleNamespace(phase=WorkerPhase.WORKING)] * sum(asked)
            watch.tally = a_tally(left)
            yield None, step

    monkeypatch.setattr(run_eval, "launch", lambda _run, _order, _image, count: asked.append(count))
    monkeypatch.setattr(run_eval, "watching", looks)
    watch.tally = a_tally(108)
    with disable_run_logger():
        run_eval.launch_owed(run, ORDER, IMAGE)
        run_eval.watch_run.fn(run, ORDER, IMAGE, watch)
    assert (asked, run.owed) == (launched, [])


def a_tally(open_jobs: int) -> RunTally:
    jobs = dict.fromkeys(map(str, range(open_jobs)), 1)
    return RunTally({"e": EvalTally(eval_id="e", task="t", model="m", jobs=jobs)})
