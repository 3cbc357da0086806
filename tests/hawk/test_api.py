"""What the double of the fast tests says of Hawk's API is so: both clients, asked of Hawk's real server with its real runner."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.hawk.api import (
    OVER,
    HawkApi,
    HawkConflict,
    HawkForbidden,
    HawkInvalid,
    HawkRefusedLogin,
    JobStatus,
)
from fleet.hawk.calls import HawkCalls
from fleet.hawk.connect import Hawk as Client
from fleet.hawk.logs import read_logs, reports
from fleet.hawk.looking import end
from fleet.hawk.mapping import ExpectedLog
from fleet.hawk.plain import PlainCalls
from tests.cloud import until
from tests.hawk.published import Published
from tests.hawk.server import Hawk

pytestmark = [pytest.mark.hawk, pytest.mark.timeout(900)]
ENVIRONMENT_S = 300.0
"""Seconds for a runner's environment and its eval; twenty where nothing else runs."""


@pytest.fixture(params=["plain", "package"])
def calls(request: pytest.FixtureRequest) -> Callable[[str], HawkCalls]:
    if request.param == "plain":
        return PlainCalls
    from fleet.hawk.package import PackageCalls  # only where Hawk's client is, and this file is collected everywhere

    return PackageCalls


@pytest.fixture
def api(deployment: Hawk, calls: Callable[[str], HawkCalls]) -> Client:
    return Client(calls(deployment.address), deployment.token)


def config(kit: Published, task: str, **args: Any) -> dict[str, Any]:
    """An eval set of one task with the scripted model."""
    return {
        "name": "kit",
        "tasks": [{"package": "evalkit", "name": "evalkit", "items": [{"name": task, "args": args}]}],
        "models": [{"package": "evalkit", "name": "kit", "items": [{"name": "one"}]}],
        "packages": [f"evalkit @ git+{kit.remote}@{kit.commit}"],
        "epochs": 2,
        "retry_attempts": 0,
    }


def an_id() -> str:
    return f"kit-{uuid.uuid4().hex[:8]}"


def in_state(api: HawkApi, eval_set: str, *states: str) -> JobStatus:
    """Its status once it is one of these."""

    def look() -> JobStatus | None:
        found = api.job_status(eval_set)
        return found if found and found.status in states else None

    return until(f"{eval_set} is {states}", look, seconds=ENVIRONMENT_S, every=1.0)


def test_an_eval_set_is_launched_followed_and_fetched(
    api: Client, kit: Published, deployment: Hawk, tmp_path: Path
) -> None:
    """Every call of a run that goes well; what finished is told as success by its log, and the runner's words are there."""
    eval_set = an_id()
    assert api.job_status(eval_set) is None
    assert api.submit(eval_set, config(kit, "plain", count=4), secrets={}).eval_set_id == eval_set
    in_state(api, eval_set, *OVER)
    progress = api.eval_set_status(eval_set)
    assert (progress.status, progress.progress.done, progress.progress.total) == ("complete", 8, 8)
    names = api.log_names(eval_set)
    found = read_logs(api.download(names, tmp_path))
    (report,) = reports([ExpectedLog("evalkit/plain", {"count": 4}, "kit/one")], found)
    assert (report.status, report.samples_done, report.errors, report.missing) == ("success", 8, 0, 0)
    assert any("successfully" in line for line in api.last_words(eval_set, 10))
    assert deployment.started().count(eval_set) == 1


def test_a_runner_that_is_told_to_stop_ends_and_what_runs_is_launched_only_once(
    api: Client, kit: Published, deployment: Hawk
) -> None:
    """A second launch beside a running one is a conflict. What was stopped is over, with a log that says so."""
    eval_set = an_id()
    api.submit(eval_set, config(kit, "slow"), secrets={})
    until(
        "samples run", lambda: api.eval_set_status(eval_set).progress.running or None, seconds=ENVIRONMENT_S, every=1.0
    )
    with pytest.raises(HawkConflict):
        api.resume(eval_set, secrets={})
    end(api, eval_set)
    assert in_state(api, eval_set, *OVER).status in OVER
    assert len(api.log_names(eval_set)) == 1
    api.delete(eval_set)
    assert deployment.started().count(eval_set) == 1
    assert eval_set not in [one.name for one in deployment.installed()]


def test_what_hawk_refuses_is_told_by_its_kind(
    api: Client, kit: Published, deployment: Hawk, calls: Callable[[str], HawkCalls]
) -> None:
    """A token that expired, another person's eval set, a configuration with an unknown field, and one without its secret."""
    with pytest.raises(HawkRefusedLogin):
        Client(calls(deployment.address), lambda: deployment.token(seconds=-60)).job_status(an_id())
    wrong = {**config(kit, "plain"), "tasks": "none"}
    with pytest.raises(HawkInvalid, match="tasks"):
        api.submit(an_id(), wrong, secrets={})
    secretive = {**config(kit, "plain"), "runner": {"secrets": [{"type": "env", "name": "A_KEY"}]}}
    with pytest.raises(HawkInvalid, match="A_KEY"):
        api.submit(an_id(), secretive, secrets={})
    eval_set = an_id()
    api.submit(eval_set, config(kit, "slow"), secrets={})
    stranger = Client(calls(deployment.address), lambda: deployment.token(who="grace"))
    with pytest.raises(HawkForbidden):
        stranger.stop(eval_set)
    end(api, eval_set)
    assert deployment.started().count(eval_set) == 1
