"""A controller that is killed while its instances work: the same request goes on at once, and leaves nothing of either run."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from tests.cloud import ELEMENTS, CloudUnderTest, finish, until

pytestmark = [pytest.mark.cloud, pytest.mark.exhaustive, pytest.mark.fault("controller-killed")]

REQUEST = (
    *("run", *ELEMENTS, "-M", "latency=3", "-M", "seed=take-over", "--eval-arg", "limit=12", "--samples-per-job", "1"),
    *("--ec2-arg", "max_workers=2", "--ec2-arg", "concurrency_per_worker=1", "--local-cloud", "--json"),
)


def test_the_same_request_goes_on_at_once_and_nothing_is_left(cloud: CloudUnderTest, tmp_path: Path) -> None:
    """Fault: SIGKILL to a controller. 0 samples lost, nothing done twice by two fleets, nothing left without a reaping."""
    earlier = cloud.stored("jobs")
    dead = cloud.start(*REQUEST, "--log-dir", str(tmp_path / "dead"))
    try:
        until(
            "both instances' work",
            lambda: len(cloud.stored("jobs") - earlier) >= 2 or dead.poll() is not None,
            seconds=200,
        )
        assert dead.poll() is None, finish(dead).err
        killed = cloud.newest_run()
        assert killed
    finally:
        dead.kill()
        dead.communicate()

    done = cloud.fleet(*REQUEST, "--log-dir", str(tmp_path / "next"))
    assert done.code == 0, done.err
    assert cloud.left_behind() == []
    assert done.report["left"] == []
    (one,) = done.report["evals"]
    log = read_eval_log(one["log"])
    assert (log.status, len({sample.id for sample in log.samples or []})) == ("success", 12)
    state, why = cloud.state(killed)
    assert (state, why) == ("CRASHED", f"its controller is gone: flow run {done.report['run']} goes on with its eval")
    # On a busy machine they may have worked everything off before the next command was there.
    assert {worker["state"]["type"] for worker in cloud.workers_of(killed)} <= {"CANCELLED", "COMPLETED"}
