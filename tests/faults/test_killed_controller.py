"""A controller that is killed at each step of `run_eval`: the same request finishes the eval, and the reaper leaves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from inspect_ai.log import read_eval_log

from tests.cloud import ELEMENTS, CloudUnderTest, until
from tests.faults.moments import Call, Controller, Moment, account, locks

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.timeout(900),  # four runs or more, each in seconds where the machine has nothing else to do
    pytest.mark.fault("controller-killed"),
    pytest.mark.fault("leftovers"),
]

SECRET = "KILLED_KEY"
SAMPLES, EPOCHS = 2, 2
"""Each (sample, epoch) is a job, and they are done one after the other."""
NUMBERS = count(1)
"""Each eval is another one, so that nothing of it is finished before it begins."""

Start = Callable[[], Controller]


@pytest.fixture
def start(cloud: CloudUnderTest, tmp_path: Path) -> Iterator[Start]:
    """Makes one and the same request, each time it is called; nothing that it starts outlives the test."""
    started: list[Controller] = []
    request = (
        *("run", *ELEMENTS, "-M", f"seed={next(NUMBERS)}", "-M", "latency=1"),
        *("--eval-arg", f"limit={SAMPLES}", "--eval-arg", f"epochs={EPOCHS}", "--samples-per-job", "1"),
        *("--ec2-arg", "max_workers=1", "--ec2-arg", "concurrency_per_worker=1"),
        *("--secret", SECRET),
        *("--local-cloud", "--json", "--log-dir", str(tmp_path / "logs")),
    )

    def begin() -> Controller:
        folder = tmp_path / f"run-{len(started)}"
        folder.mkdir()
        started.append(Controller(cloud, folder, *request, **{SECRET: "sk-of-no-use"}))
        return started[-1]

    yield begin
    for each in started:
        each.end()


def parameters(cloud: CloudUnderTest) -> list[dict[str, Any]]:
    """The instances' secrets."""
    path = "/inspect-fleet/instances"
    return cast(
        "list[dict[str, Any]]", cloud.aws("ssm").get_parameters_by_path(Path=path, Recursive=True)["Parameters"]
    )


def a_result(cloud: CloudUnderTest) -> bool:
    """A job is done of the eval that has a lock."""
    return any(cloud.keys(f"{lock.removesuffix('lock.json')}jobs/") for lock in locks(cloud))


MERGED = Call("PutObject", "/merged/")
MOMENTS = (
    Moment("planning", said="Planning in the job environment"),
    Moment("estimating", calls=[Call("GetObject", r"/manifest\.json")]),
    Moment("checking the image", calls=[Call("DescribeImages")]),
    Moment("about to take the lock", calls=[Call("PutObject", r"/lock\.json")]),
    Moment("the lock taken", calls=[Call("HeadObject", "/artifacts/")]),
    Moment("artifacts put", calls=[Call("PutObject", r"/plan\.eval")]),
    Moment("the plan log put, no manifest", calls=[Call("PutObject", r"/manifest\.json")]),
    Moment("the manifest put, no queue", calls=[Call("CreateQueue", "-dead")]),
    Moment("queues half made", calls=[Call("CreateQueue", "-events")]),
    Moment("queues made, no job sent", calls=[Call("SendMessageBatch", "-work")]),
    Moment("jobs sent", calls=[Call("SendMessageBatch", "-work"), Call("HeadObject", "/artifacts/")]),
    Moment("a launch asked for", calls=[Call("RunInstances", refused=False)]),
    Moment("the instance boots, its secrets not written", calls=[Call("PutParameter", "/inspect-fleet/instances/")]),
    Moment("secrets written", seen=parameters),
    Moment("running", said="] Running", seen=a_result),
    Moment("all jobs done, the intake not closed", calls=[Call("DeleteQueue", "-work")]),
    Moment("collecting, before the merge", calls=[Call("GetObject", r"/plan\.eval")]),
    Moment("collecting, after the merge", calls=[MERGED]),
    Moment("the log put, about to clean up", calls=[MERGED, Call("DeleteQueue", "-work")]),
    Moment("cleaning up, before the secrets", calls=[MERGED, Call("DeleteParameters")]),
    Moment("cleaning up, before the last events", calls=[MERGED, Call("ReceiveMessage", "-events")]),
    Moment("cleaning up, before the queues", calls=[MERGED, Call("DeleteQueue", "-dead")]),
    Moment("cleaning up, queues half gone", calls=[MERGED, Call("DeleteQueue", "-events")]),
    Moment("cleaning up, before the lock", calls=[MERGED, Call("GetObject", r"/lock\.json")]),
)
BY_NAME = {moment.name: moment for moment in MOMENTS}


def expect_whole(controller: Controller) -> None:
    """It ends well, its log has each (sample, epoch) once, and it says that it left nothing."""
    done = controller.finish()
    assert done.code == 0, done.err
    (one,) = done.report["evals"]
    log = read_eval_log(one["log"])
    pairs = Counter((sample.id, sample.epoch) for sample in log.samples or [])
    assert (log.status, len(pairs), set(pairs.values())) == ("success", SAMPLES * EPOCHS, {1})
    assert done.report["left"] == []


def expect_nothing_left(cloud: CloudUnderTest, before: dict[str, list[str]]) -> None:
    """After the reaper's round everything is as it was."""
    environment: Any = cloud.local.environment()
    reaped = cloud.fleet("reap", "--yes", "--now", **environment)
    assert reaped.code == 0, reaped.err
    with suppress(AssertionError):  # a terminated instance's processes and flow run end some moments after it
        until("all is as before", lambda: account(cloud) == before, seconds=30)
    assert account(cloud) == before, reaped.out
    assert cloud.left_behind() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", MOMENTS, ids=[moment.name for moment in MOMENTS])
def test_the_same_request_finishes_what_a_killed_controller_began(
    cloud: CloudUnderTest, start: Start, moment: Moment
) -> None:
    """Fault: SIGKILL to the controller at this step of `run_eval`. 0 samples lost, nothing left after `fleet reap`."""
    before = account(cloud)
    controller = start()
    controller.reach(moment)
    controller.kill()
    expect_whole(start())
    expect_nothing_left(cloud, before)


@pytest.mark.long
def test_a_request_whose_controller_is_killed_again_and_again_is_finished_at_last(
    cloud: CloudUnderTest, start: Start
) -> None:
    """Fault: SIGKILL as it launches, as the next one works, as the third has merged. 0 samples lost, nothing left."""
    before = account(cloud)
    for name in ("a launch asked for", "running", "cleaning up, before the queues"):
        controller = start()
        controller.reach(BY_NAME[name])
        controller.kill()
    expect_whole(start())
    expect_nothing_left(cloud, before)
