from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bootstrap import setting_values
from bootstrap.environment import JobEnvironment
from bootstrap.setting_values import PlacedValues, SettingInUse, SettingsFolderGone, values_in_place
from fleet.evals.documents import EnvironmentSpec, SettingSpec
from fleet.evals.settings import FOLDER
from fleet.file_lock import FileLocked, locked

TEXT = "KEY='sk-secret'\nOTHER=ü\n"


def a_setting(name: str) -> SettingSpec:
    return SettingSpec(name=name, files="0", git="0", commit="0", package=False, plugin=False)


@pytest.fixture
def environment(tmp_path: Path) -> JobEnvironment:
    folder = tmp_path / "environment"  # what lies beside it is this test's own
    source = folder / "source"
    (source / FOLDER / "linux").mkdir(parents=True)
    return JobEnvironment(
        spec=EnvironmentSpec(python="3.11", lock="", source="0", settings=[a_setting("linux"), a_setting("mac")]),
        python=folder / "venv" / "bin" / "python",
        source=source,
    )


def files(environment: JobEnvironment) -> dict[str, str]:
    folder = environment.working_folder / FOLDER
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_values_lie_beside_their_setting_for_their_owner_alone_and_go_with_the_block(
    environment: JobEnvironment,
) -> None:
    with values_in_place(environment, {"linux": TEXT, "empty": ""}):
        assert files(environment) == {"linux.env": TEXT, "empty.env": ""}
        for name in files(environment):
            status = (environment.working_folder / FOLDER / name).stat()
            assert stat.S_IMODE(status.st_mode) == 0o600
            assert status.st_uid == os.getuid()
    assert files(environment) == {}


def test_they_go_too_when_the_block_fails(environment: JobEnvironment) -> None:
    with pytest.raises(KeyboardInterrupt), values_in_place(environment, {"linux": TEXT}):
        raise KeyboardInterrupt
    assert files(environment) == {}


def test_an_environment_without_values_is_not_touched(environment: JobEnvironment) -> None:
    before = sorted(environment.folder.rglob("*"))
    with values_in_place(environment, {}):
        assert sorted(environment.folder.rglob("*")) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_they_are_the_worker_users_own(environment: JobEnvironment) -> None:
    nobody = pwd.getpwnam("nobody")
    with PlacedValues(environment, "nobody") as placed:
        placed.put("linux", TEXT)
        status = (environment.working_folder / FOLDER / "linux.env").stat()
        assert (status.st_uid, status.st_gid) == (nobody.pw_uid, nobody.pw_gid)
        assert stat.S_IMODE(status.st_mode) == 0o600
    assert files(environment) == {}


def test_the_last_user_removes_them(environment: JobEnvironment) -> None:
    with values_in_place(environment, {"linux": TEXT}):
        with values_in_place(environment, {"linux": TEXT}):
            pass
        assert files(environment) == {"linux.env": TEXT}
    assert files(environment) == {}


def test_the_last_user_removes_what_others_had_more(environment: JobEnvironment) -> None:
    with values_in_place(environment, {"linux": TEXT}), values_in_place(environment, {"linux": TEXT, "mac": TEXT}):
        pass
    assert files(environment) == {}


def test_other_values_of_a_setting_in_use_are_refused_and_change_nothing(environment: JobEnvironment) -> None:
    with values_in_place(environment, {"linux": TEXT}):
        other = values_in_place(environment, {"linux": "KEY=other"})
        with pytest.raises(SettingInUse, match="linux") as refused:
            other.__enter__()
        assert "other" not in str(refused.value).replace("another", "").replace("other values", "")
        assert files(environment) == {"linux.env": TEXT}
    with values_in_place(environment, {"linux": "KEY=other"}):
        assert files(environment) == {"linux.env": "KEY=other"}


KILLED = """
import sys, time
from pathlib import Path
from bootstrap.environment import JobEnvironment
from bootstrap.setting_values import values_in_place
from fleet.evals.documents import EnvironmentSpec
folder = Path(sys.argv[1])
spec = EnvironmentSpec(python="3.11", lock="", source="0")
environment = JobEnvironment(spec=spec, python=folder / "venv" / "bin" / "python", source=folder / "source")
with values_in_place(environment, {"linux": "KEY=of the killed"}):
    print("there", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_in_nobodys_way(environment: JobEnvironment) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(environment.folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    with pytest.raises(SettingInUse), values_in_place(environment, {"linux": TEXT}):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert files(environment) == {"linux.env": "KEY=of the killed"}
    with values_in_place(environment, {"linux": TEXT}):
        assert files(environment) == {"linux.env": TEXT}
    assert files(environment) == {}


def test_many_come_and_go_and_each_has_them_while_it_is_there(environment: JobEnvironment) -> None:
    def use(_: int) -> bool:
        with values_in_place(environment, {"linux": TEXT}):
            return (environment.working_folder / FOLDER / "linux.env").read_text() == TEXT

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(200)))
    assert files(environment) == {}


@pytest.mark.parametrize("name", ["values.turn", "values.users", ".values-turn", ".values-users"])
@pytest.mark.fault("planted-link")
def test_a_link_in_the_jobs_own_folder_leads_nobody_elsewhere(environment: JobEnvironment, name: str) -> None:
    """On an instance, root comes and goes there after the worker user's code ran."""
    victim = environment.folder.parent / "victim"
    (environment.folder / name).symlink_to(victim)
    with values_in_place(environment, {"linux": TEXT}):
        assert files(environment) == {"linux.env": TEXT}
    assert not victim.exists()


@pytest.mark.fault("planted-link")
def test_the_folder_of_settings_turned_into_a_link_leads_nobody_elsewhere(environment: JobEnvironment) -> None:
    elsewhere = environment.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "linux.env").write_text("another's")
    place = environment.working_folder / FOLDER
    with PlacedValues(environment) as placed:
        placed.put("linux", TEXT)
        place.rename(environment.folder / "away")
        place.symlink_to(elsewhere)
        with pytest.raises(SettingsFolderGone, match=r"\.settings, which is no folder any more"):
            placed.put("mac", TEXT)
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == {"linux.env": "another's"}


@pytest.mark.timeout(20)
@pytest.mark.fault("planted-link")
def test_a_link_or_a_pipe_where_values_go_is_replaced_and_not_read(environment: JobEnvironment) -> None:
    place = environment.working_folder / FOLDER
    victim = environment.folder / "victim"
    victim.write_text("another's")
    os.mkfifo(place / "linux.env")
    (place / "mac.env").symlink_to(victim)
    with values_in_place(environment, {"linux": TEXT, "mac": TEXT}):
        assert files(environment) == {"linux.env": TEXT, "mac.env": TEXT}
    assert files(environment) == {}
    assert victim.read_text() == "another's"


@pytest.mark.timeout(20)
def test_a_turn_that_never_ends_is_an_error(environment: JobEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_values, "TURN_SECONDS", 0.05)
    turn = environment.folder.with_suffix(setting_values.TURN)
    with locked(turn, seconds=0), pytest.raises(FileLocked), values_in_place(environment, {"linux": TEXT}):
        pass
