"""The jobs' user with fakes; with real users, groups and an engine in tests/docker/test_worker_user.py."""

from __future__ import annotations

import json
import os
import pwd
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootstrap import worker_user
from bootstrap.commands import Said
from bootstrap.worker_user import (
    RULE,
    SAFE_NAME,
    UserFacts,
    WorkerUserUnfit,
    allow_shutdown,
    check_reach,
    engine_socket,
    hand_over,
    judge,
    look,
    own_name,
    prepare,
    shutdown_rule,
    switches,
    withdraw,
)
from tests.bootstrap.fake_commands import FakeCommands

ME = own_name()


def facts(**changed: object) -> UserFacts:
    told = {
        "name": "ubuntu",
        "uid": 1000,
        "home": Path("/home/ubuntu"),
        "home_is_theirs": True,
        "own_uid": 0,
        **changed,
    }
    return UserFacts(**told)  # type: ignore[arg-type]


def test_root_stands_for_whoever_runs_the_worker() -> None:
    assert not switches("root", "someone")
    assert not switches("someone", "someone")
    assert switches("ubuntu", "root")


ROWS = [
    pytest.param({"uid": None}, "the worker image has no such user. Name a user of the worker image", id="unknown"),
    pytest.param({"own_uid": 1000}, "the worker isn't root and can't become somebody else", id="not root"),
    pytest.param({"home_is_theirs": False}, "/home/ubuntu is no home folder of their own", id="no home"),
    pytest.param({"name": "a b, ALL"}, "the name has signs", id="a name that a rule can't hold"),
]


@pytest.mark.parametrize(("changed", "why"), ROWS)
def test_a_user_who_cannot_run_jobs_is_refused_in_one_line(changed: dict[str, object], why: str) -> None:
    with pytest.raises(WorkerUserUnfit) as unfit:
        judge(facts(**changed))
    assert why in str(unfit.value)
    assert str(unfit.value).startswith("worker_user ")
    assert "\n" not in str(unfit.value)


def test_a_user_with_a_home_is_fit() -> None:
    judge(facts())


@pytest.mark.parametrize("user", ["no-such-user-here", "", "nul\0"])
def test_a_name_that_no_user_has_is_looked_up_without_harm(user: str) -> None:
    assert look(user).uid is None


class Host:
    """A host on which the user is fit, as far as `prepare` asks it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.login = folder / "docker"
        self.login.mkdir(mode=0o700)
        (self.login / "config.json").write_text(json.dumps({"auths": {"r": {"auth": "x"}}}))
        self.bin = folder / "bin"
        self.uv = folder / "uv"
        self.uv.write_text("uv")
        self.sudoers = folder / "sudoers.d"
        self.given: list[Path] = []
        monkeypatch.setattr(worker_user, "look", lambda user: facts(name=user))
        monkeypatch.setattr(worker_user, "group_to_join", lambda user, socket: "docker")
        monkeypatch.setattr(worker_user, "give", lambda path, user: self.given.append(path))

    def prepare(self, commands: FakeCommands, *, docker: bool = True) -> list[str]:
        return list(
            prepare(
                "ubuntu",
                {"PATH": "/bin"},
                docker=self.login if docker else None,
                bin_folder=self.bin,
                uv=lambda: str(self.uv),
                run=commands,
                sudoers=self.sudoers,
            )
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Host:
    return Host(monkeypatch, tmp_path)


FIT = {"uv --version": Said(0, "uv 0.9.1\n"), "usermod": Said(0), "docker info": Said(0, "26.1.5\n")}


def test_a_user_is_put_into_the_engines_group_and_asks_it_with_a_login_of_their_own(host: Host) -> None:
    commands = FakeCommands(FIT)
    lines = host.prepare(commands)
    assert lines == [
        "jobs run as ubuntu (uid 1000, home /home/ubuntu)",
        "ubuntu has uv 0.9.1",
        "ubuntu is in the group docker now",
        "ubuntu reaches Docker 26.1.5, with a login file of their own",
        "no sudo here: no rule for it",
    ]
    assert [(asked.argv[0], asked.user) for asked in commands.asked] == [
        ("uv", "ubuntu"),
        ("usermod", None),
        ("docker", "ubuntu"),
    ]
    assert commands.asked[-1].env is not None
    assert commands.asked[-1].env["HOME"] == "/home/ubuntu"
    assert host.given == [host.login / "config.json", host.login], "nothing is written into a folder that is theirs"
    assert stat.S_IMODE((host.login / "config.json").stat().st_mode) == 0o600
    assert "auths" in (host.login / "config.json").read_text()


def test_without_docker_in_the_plan_docker_is_not_touched(host: Host) -> None:
    commands = FakeCommands(FIT)
    host.prepare(commands, docker=False)
    assert [asked.argv[0] for asked in commands.asked] == ["uv"]
    assert host.given == []


def test_where_uv_is_out_of_reach_a_copy_goes_in_front_of_the_path(host: Host) -> None:
    answers = iter([Said(127, err="the command uv is not installed"), Said(0, "uv 0.9.1\n")])
    commands = FakeCommands({**FIT, "uv --version": lambda _: next(answers)})
    assert "ubuntu has uv 0.9.1" in host.prepare(commands)
    assert os.access(host.bin / "uv", os.X_OK)


FAULTS = [
    pytest.param(
        {"uv --version": Said(126, err="Permission denied")}, "uv doesn't run for them: Permission denied", id="uv"
    ),
    pytest.param(
        {"usermod": Said(6, err="usermod: group 'docker' does not exist")}, "not let into the group docker", id="group"
    ),
    pytest.param(
        {"docker info": Said(1, err="permission denied while trying to connect")},
        "permission denied while",
        id="engine",
    ),
    pytest.param(
        {"docker info": Said(0, "\n")}, "Docker's engine doesn't answer them", id="an engine that says nothing"
    ),
]


@pytest.mark.parametrize(("changed", "why"), FAULTS)
def test_each_thing_that_is_missing_is_told_with_what_to_do(host: Host, changed: dict[str, Said], why: str) -> None:
    with pytest.raises(WorkerUserUnfit, match="worker_user 'ubuntu' can't run jobs") as unfit:
        host.prepare(FakeCommands({**FIT, **changed}))
    assert why in str(unfit.value)


@pytest.fixture
def sudo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    folder = tmp_path / "sudoers.d"
    folder.mkdir()
    return folder


def test_the_rule_is_checked_before_sudo_can_see_it_and_taken_back_afterwards(sudo: Path) -> None:
    seen: list[str] = []

    def visudo(asked: object) -> Said:
        seen.extend(path.name for path in sudo.iterdir())
        return Said(0)

    allow_shutdown("ubuntu", sudoers=sudo, run=FakeCommands({"visudo": visudo}))
    assert all("." in name for name in seen), "sudo passes over names with a dot"
    assert (sudo / RULE).read_text() == "ubuntu ALL=(root) NOPASSWD: /usr/sbin/shutdown, /sbin/shutdown\n"
    assert stat.S_IMODE((sudo / RULE).stat().st_mode) == 0o440
    withdraw(sudoers=sudo)
    withdraw(sudoers=sudo)
    assert list(sudo.iterdir()) == []


def test_a_rule_that_sudo_refuses_is_not_left_behind(sudo: Path) -> None:
    with pytest.raises(WorkerUserUnfit, match="syntax error"):
        allow_shutdown("ubuntu", sudoers=sudo, run=FakeCommands({"visudo": Said(1, err=">>> syntax error")}))
    assert list(sudo.iterdir()) == []


@given(st.text())
def test_a_rule_holds_one_user_and_one_line(name: str) -> None:
    """Whatever name gets as far as a rule: it has no sign that means something to sudo."""
    if SAFE_NAME.fullmatch(name):
        rule = shutdown_rule(name)
        assert rule.count("\n") == 1
        assert rule.split(" ", 1)[0] == name


@pytest.mark.parametrize(
    ("address", "path"),
    [("", "/var/run/docker.sock"), ("unix:///run/d.sock", "/run/d.sock"), ("tcp://127.0.0.1:2375", None)],
)
def test_the_engines_socket_is_where_docker_host_says(address: str, path: str | None) -> None:
    assert engine_socket(address) == (Path(path) if path else None)


def test_what_others_share_stays_theirs(tmp_path: Path) -> None:
    """uv links the files of packages: who owned them could change them for every environment."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    nobody = pwd.getpwnam("nobody")
    tree = tmp_path / "environment"
    (tree / "source").mkdir(parents=True)
    (tree / "source" / "task.py").write_text("")
    (tree / "shared.py").write_text("")
    os.link(tree / "shared.py", tmp_path / "cache.py")
    (tree / "link").symlink_to("/etc/passwd")
    before = Path("/etc/passwd").stat().st_uid
    assert hand_over(tree, "nobody") == 4
    owners = {str(path.relative_to(tree)): path.lstat().st_uid for path in tree.rglob("*")}
    assert owners == {"source": nobody.pw_uid, "source/task.py": nobody.pw_uid, "link": nobody.pw_uid, "shared.py": 0}
    assert tree.stat().st_uid == nobody.pw_uid
    assert Path("/etc/passwd").stat().st_uid == before, "a link is not followed"


def test_an_environment_in_a_closed_folder_is_told_with_the_folder() -> None:
    commands = FakeCommands(
        {"/root/.cache/python": Said(126, err="/root/.cache/python can't be run: Permission denied")}
    )
    with pytest.raises(WorkerUserUnfit, match=r"Permission denied\. Set FLEET_CACHE_DIR"):
        check_reach("ubuntu", Path("/root/.cache/python"), {}, run=commands)
    assert commands.asked[0].user == "ubuntu"
