from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from fleet.local import cloud, state
from fleet.local.cloud import CloudNotStarted, LocalCloud
from fleet.local.process_ref import ProcessRef
from fleet.local.state import CloudState, Part

UP = LocalCloud(name="a", folder=Path("/clouds/a"), aws_endpoint="http://aws:1", prefect_api="http://prefect:2/api")
GONE = ProcessRef(pid=1, started="long ago")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_CACHE_DIR", str(tmp_path))
    return tmp_path


def left_behind(name: str, **changes: object) -> Path:
    """The folder of a cloud whose processes are gone."""
    folder = state.cloud_folder(name)
    folder.mkdir(parents=True)
    known = CloudState(name=name, supervisor=GONE, prefect_api="http://127.0.0.1:9/api")
    state.write(folder, known.model_copy(update=changes))
    return folder


def test_nothing_is_up_at_first() -> None:
    assert cloud.find() is None
    assert cloud.status() is None
    assert cloud.names() == []


def test_down_of_nothing_leaves_nothing() -> None:
    assert cloud.down("never-was") == []


def test_a_cloud_without_its_supervisor_is_not_up_but_seen() -> None:
    left_behind("a", phase="ready", parts={"host": Part(process=GONE, ready=True, log="x")})
    assert cloud.find("a") is None
    assert cloud.names() == ["a"]
    found = cloud.status("a")
    assert found is not None
    assert (found.phase, found.healthy) == ("crashed", False)
    assert {part.part: part.health for part in found.parts} == {"supervisor": "gone", "host": "gone"}


def test_down_removes_what_a_crash_left() -> None:
    folder = left_behind("a", phase="ready")
    assert cloud.down("a") == []
    assert not folder.exists()


def test_a_state_of_another_release_is_removed_too() -> None:
    folder = left_behind("a")
    (folder / "state.json").write_text('{"version": 99}')
    assert cloud.find("a") is None
    assert cloud.down("a") == []
    assert not folder.exists()


def test_down_leaves_no_lock_behind(cache: Path) -> None:
    left_behind("a")
    cloud.down("a")
    assert list(state.clouds_folder().iterdir()) == []


def test_a_lock_that_was_removed_while_one_waited_is_taken_anew() -> None:
    """Else two processes could each hold a lock of one name: the removed file's, and the new one's."""
    holders: list[str] = []
    disturbed: list[str] = []

    def act(who: str) -> None:
        with cloud._locked("a") as lock:
            holders.append(who)
            time.sleep(0.01)  # long enough for another to come in, if it could
            if holders[-1] != who:
                disturbed.append(who)
            lock.unlink()

    threads = [threading.Thread(target=act, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(holders) == [str(number) for number in range(8)]
    assert disturbed == []


def test_templates_and_job_environments_outlive_a_cloud(cache: Path) -> None:
    (cache / "templates").mkdir()
    left_behind("a")
    cloud.down("a")
    assert (cache / "templates").exists()


def test_an_owner_that_is_gone_gets_no_cloud() -> None:
    said: list[str] = []
    with pytest.raises(CloudNotStarted, match="the supervisor ended with exit code 1"):
        cloud.up("a", owner_pid=2**22 - 1, say=said.append)
    assert any("is gone already" in line for line in said), "the log's last lines are shown"


def test_applying_a_cloud_drops_every_variable_that_leads_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as theirs:
        theirs.setattr(os, "environ", {"AWS_PROFILE": "prod", "PREFECT_API_KEY": "theirs", "HOME": "/home/me"})
        UP.apply()
        assert "AWS_PROFILE" not in os.environ
        assert "PREFECT_API_KEY" not in os.environ
        assert os.environ["HOME"] == "/home/me"
        assert os.environ["PREFECT_API_URL"] == "http://prefect:2/api"
        assert os.environ["AWS_ENDPOINT_URL"] == "http://aws:1"
        assert UP.foreign() == [], "nothing is left to drop"


def test_prefect_may_be_imported_for_a_cloud_before_aws_of_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest stays the person's: planning still needs it."""
    coming = LocalCloud(name="a", folder=Path("/clouds/a"), aws_endpoint="", prefect_api="http://prefect:2/api")
    with monkeypatch.context() as theirs:
        theirs.setattr(os, "environ", {"AWS_PROFILE": "prod", "PREFECT_API_KEY": "theirs"})
        coming.apply_to_prefect()
        assert "PREFECT_API_KEY" not in os.environ
        assert os.environ["PREFECT_API_URL"] == "http://prefect:2/api"
        assert os.environ["AWS_PROFILE"] == "prod"
        assert "AWS_ENDPOINT_URL" not in os.environ
        before = {name: value for name, value in os.environ.items() if name.startswith("PREFECT")}
        UP.apply()
        assert before == {name: value for name, value in os.environ.items() if name.startswith("PREFECT")}


def test_the_ui_is_where_the_api_is() -> None:
    assert UP.prefect_ui == "http://prefect:2"


def test_who_waits_is_told_once_when_aws_and_prefect_answer_before_the_pool_workers_do() -> None:
    """A controller has seconds of work before it launches anything."""
    folder = state.cloud_folder("a")
    folder.mkdir(parents=True)
    me = ProcessRef.of(os.getpid())
    assert me is not None
    told: list[LocalCloud] = []
    told_at: list[int] = []
    part, ready = Part(log="x"), Part(log="x", ready=True)
    looks: list[tuple[str, dict[str, Part]]] = [
        ("starting", {}),
        ("starting", {"host": ready, "server": part}),
        ("starting", {"host": ready, "server": ready}),  # a first start: its database is still to be made
        ("starting", {"host": ready, "server": part, "workers": part}),
        ("starting", {"host": ready, "server": ready, "workers": part}),
        ("starting", {"host": ready, "server": ready, "workers": part}),
        ("ready", {"host": ready, "server": ready, "workers": ready}),
    ]
    rest = iter(looks)

    def next_look() -> bool:
        told_at.append(len(told))
        phase, parts = next(rest)
        known = CloudState(name="a", supervisor=me, aws_endpoint="http://aws:1", prefect_api="http://prefect:2/api")
        state.write(folder, known.model_copy(update={"phase": phase, "parts": parts}))
        return True

    next_look()
    found = cloud._wait_ready("a", folder, lambda _: None, next_look, told.append)
    assert told == [found]
    assert told_at == [0, 0, 0, 0, 0, 1, 1]


def test_who_asks_for_a_cloud_that_is_up_is_told_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "find", lambda _: UP)
    told: list[LocalCloud] = []
    assert cloud.up("a", answering=told.append) is UP
    assert told == [UP]
