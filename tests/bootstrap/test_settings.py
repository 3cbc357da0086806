"""Settings in a job environment, built by the real uv."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bootstrap.environment import JobEnvironment, PackagesUnresolvable, build, resolve
from bootstrap.plain import run_plain
from bootstrap.run_plan import job_environment, plan_run
from bootstrap.unpacking import EnvironmentUnbuildable
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.request import EvalRequest
from fleet.evals.settings import SettingArchive, pack_setting
from fleet.evals.source import SourceArchive, pack
from tests.checkouts import git, made, setting_kit

PLAIN = "[project]\nname = '{name}'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = {needs}\n"
"""A project without a build system: uv makes an environment of it and builds nothing."""

BUILT = "[build-system]\nrequires = ['uv_build>=0.8']\nbuild-backend = 'uv_build'\n" + PLAIN

LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "tools"
version = "1"
source = { virtual = "." }
"""


def packed(folder: Path, files: dict[str, str], name: str = "tools") -> SettingArchive:
    """A setting of these files, packed."""
    return pack_setting(made(folder / "checkouts" / name, files), folder)


def built(cache: Path, *settings: SettingArchive, source: SourceArchive | None = None) -> JobEnvironment:
    """An environment of settings alone: without Inspect, which they don't need to be unpacked and synced."""
    named = source.sha256 if source else None
    spec = EnvironmentSpec(python="3.11", lock="", source=named, settings=[it.spec for it in settings])
    return build(spec, cache=cache, artifact=artifacts(*settings, source=source))


def artifacts(*settings: SettingArchive, source: SourceArchive | None = None) -> Callable[[str], Path]:
    found = {part.sha256: part.path for it in settings for part in (it.files, it.git)}
    return (found | ({source.sha256: source.path} if source else {})).__getitem__


def said(folder: Path, *arguments: str) -> str:
    return subprocess.check_output(["git", "-C", str(folder), *arguments], text=True).strip()


def test_a_setting_lies_where_jobs_start_with_an_environment_of_its_own(tmp_path: Path) -> None:
    setting = packed(
        tmp_path, {"pyproject.toml": PLAIN.format(name="tools", needs=[]), "uv.lock": LOCK, "data.txt": "42\n"}
    )
    environment = built(tmp_path / "cache", setting)
    there = environment.working_folder / ".settings" / "tools"
    assert (there / "data.txt").read_text() == "42\n"
    prefix = subprocess.check_output([there / ".venv/bin/python", "-c", "import sys; print(sys.prefix)"], text=True)
    assert prefix.strip() == str(there / ".venv")
    assert said(there, "log", "--format=%H") == setting.git.commit
    assert said(there, "status", "--porcelain") == ""


def test_a_locked_setting_gets_what_its_lock_says_and_nothing_for_developers(tmp_path: Path) -> None:
    """The lock is older than the project, and its developers' tool can't be installed: neither matters on an instance."""
    project = PLAIN.format(name="tools", needs=["nobody-locked-this"]) + "[dependency-groups]\ndev = ['a-tool']\n"
    tool = '[[package]]\nname = "a-tool"\nversion = "1"\nsource = { directory = "nowhere" }\n\n'
    lock = (
        LOCK.replace("[[package]]", f"{tool}[[package]]")
        + '\n[package.dev-dependencies]\ndev = [{ name = "a-tool" }]\n'
    )
    environment = built(tmp_path / "cache", packed(tmp_path, {"pyproject.toml": project, "uv.lock": lock}))
    there = environment.working_folder / ".settings" / "tools"
    assert (there / ".venv/bin/python").exists()
    assert (there / "uv.lock").read_text() == lock


def test_what_is_made_there_does_not_show_in_its_git(tmp_path: Path) -> None:
    """Without a lock uv writes one, and an editable install may leave traces: a task that asks git sees the checkout."""
    setting = packed(
        tmp_path,
        {
            "pyproject.toml": PLAIN.format(name="tools", needs=[]),
            "ct_plugin/pyproject.toml": "[project]\nname='tools-plugin'\nversion='1'\n"
            "[tool.setuptools]\npy-modules=['tools_plugin']\n",
            "ct_plugin/tools_plugin.py": "x = 1\n",
        },
    )
    environment = built(tmp_path / "cache", setting)
    there = environment.working_folder / ".settings" / "tools"
    assert (there / "uv.lock").is_file()
    subprocess.run([environment.python, "-c", "import tools_plugin"], cwd=tmp_path, check=True)
    assert said(there, "status", "--porcelain") == ""


def test_a_settings_environment_is_made_once_for_its_content(tmp_path: Path) -> None:
    setting = packed(tmp_path, {"pyproject.toml": PLAIN.format(name="tools", needs=[])})
    first = built(tmp_path / "cache", setting)
    spec = first.spec
    again = build(spec, cache=tmp_path / "cache", artifact=lambda _: pytest.fail("it was unpacked again"))
    assert again == first


def test_an_environment_goes_to_the_setting_whatever_a_person_or_the_source_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv would take the source's workspace, or the variable, for the place of the environment."""
    monkeypatch.setenv("UV_PROJECT_ENVIRONMENT", str(tmp_path / "elsewhere"))
    workspace = PLAIN.format(name="outer", needs=[]) + "[tool.uv.workspace]\nmembers = ['.settings/*']\n"
    source = pack(made(tmp_path / "source", {"pyproject.toml": workspace}), tmp_path)
    setting = packed(tmp_path, {"pyproject.toml": PLAIN.format(name="tools", needs=[])})
    environment = built(tmp_path / "cache", setting, source=source)
    assert (environment.working_folder / ".settings/tools/.venv/bin/python").exists()
    assert not (tmp_path / "elsewhere").exists()
    assert environment.source is not None
    assert environment.working_folder == environment.source


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"pyproject.toml": PLAIN.format(name="tools", needs=["nobody @ file:///nowhere"])}, "nowhere"),
        ({"pyproject.toml": PLAIN.format(name="tools", needs=[]), "uv.lock": "version = [\n"}, "TOML parse error"),
        ({"pyproject.toml": PLAIN.format(name="tools", needs=[]).replace("3.11", "3.99")}, r"3\.99"),
    ],
)
def test_a_sync_that_fails_names_the_folder_and_leaves_no_environment(
    files: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    good = packed(tmp_path, {"pyproject.toml": PLAIN.format(name="fine", needs=[])}, "fine")
    bad = packed(tmp_path, files)
    with pytest.raises(EnvironmentUnbuildable, match=rf"\(uv sync in \.settings/tools\): .*{why}") as refused:
        built(tmp_path / "cache", good, bad)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "cache").rglob("ready"))


def test_a_plugin_that_does_not_install_names_its_folder(tmp_path: Path) -> None:
    setting = packed(
        tmp_path,
        {"ct_plugin/pyproject.toml": BUILT.format(name="tools-plugin", needs=[])},  # and no such module
    )
    with pytest.raises(EnvironmentUnbuildable, match=r"\(install the plugin \.settings/tools/ct_plugin\): "):
        built(tmp_path / "cache", setting)


def test_a_source_with_a_setting_of_its_own_at_that_place_is_refused(tmp_path: Path) -> None:
    source = pack(made(tmp_path / "source", {".settings/tools/a.txt": "mine\n"}), tmp_path)
    setting = packed(tmp_path, {"data.txt": "42\n"})
    with pytest.raises(EnvironmentUnbuildable, match=r"the source has a \.settings/tools of its own"):
        built(tmp_path / "cache", setting, source=source)


def test_an_archive_that_isnt_what_its_name_says_is_refused(tmp_path: Path) -> None:
    setting = packed(tmp_path, {"data.txt": "42\n"})
    with pytest.raises(EnvironmentUnbuildable, match=r"unpack \.settings/tools/\.git\): its SHA-256 is"):
        build(
            EnvironmentSpec(python="3.11", lock="", settings=[setting.spec]),
            cache=tmp_path / "cache",
            artifact=lambda _: setting.files.path,
        )


def test_a_plugins_dependencies_are_resolved_with_all_others(tmp_path: Path) -> None:
    """Exact versions for every machine, the setting's own package by its place; needs the index, as each resolution does."""

    def with_plugin(name: str, needs: list[str]) -> SettingArchive:
        described = BUILT.format(name=f"{name}-plugin", needs=[name, *needs])
        files = {
            "pyproject.toml": BUILT.format(name=name, needs=[]),
            f"src/{name}/__init__.py": "",
            "ct_plugin/pyproject.toml": described + f"[tool.uv.sources]\n{name} = {{ path = '..', editable = true }}\n",
            f"ct_plugin/src/{name}_plugin/__init__.py": "",
        }
        return packed(tmp_path, files, name)

    settings = [with_plugin("one", []), with_plugin("two", ["click==8.1.7"])]
    spec = resolve([], None, None, settings, cache=tmp_path / "cache")
    assert "click==8.1.7" in spec.lock
    beside = [line for line in spec.lock.splitlines() if "==" not in line]
    assert beside == ["-e ./.settings/one", "-e ./.settings/two"]
    alone = spec.model_copy(update={"lock": "\n".join(beside)})  # without Inspect: this is about the settings
    environment = build(alone, cache=tmp_path / "cache", artifact=artifacts(*settings))
    code = "import one, one_plugin, two, two_plugin; print(one.__file__, two_plugin.__file__)"
    where = subprocess.check_output([environment.python, "-c", code], cwd=tmp_path, text=True).split()
    there = environment.working_folder / ".settings"
    assert where == [f"{there}/one/src/one/__init__.py", f"{there}/two/ct_plugin/src/two_plugin/__init__.py"]

    with pytest.raises(
        PackagesUnresolvable, match=r"\(click==8\.1\.6, \.settings/one/ct_plugin/pyproject\.toml, .settings/two"
    ):
        resolve(["click==8.1.6"], None, None, settings, cache=tmp_path / "cache")


def test_a_setting_without_a_plugin_changes_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no part of what is resolved, so the lock that is kept serves."""
    before = packed(tmp_path / "a", {"data.txt": "1\n"})
    after = packed(tmp_path / "b", {"data.txt": "2\n"})
    locks = iter(["click==8.1.7\n"])
    monkeypatch.setattr("bootstrap.environment._compile", lambda *_: next(locks))
    one, two = (resolve([], None, None, [it], cache=tmp_path / "cache") for it in (before, after))
    assert one.lock == two.lock
    assert one.settings != two.settings


@pytest.fixture
def kit(
    tmp_path: Path, environment: JobEnvironment, job_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> EvalRequest:
    """A request for the task that the setting of `tests/fixtures` registers, with the packages that evalkit has."""

    def resolved(_: object, __: object, ___: object, settings: tuple[SettingArchive, ...]) -> EnvironmentSpec:
        specs = [setting.spec for setting in settings]
        return EnvironmentSpec(python=environment.spec.python, lock=environment.spec.lock, settings=specs)

    monkeypatch.setenv("FLEET_CACHE_DIR", str(job_environments))
    monkeypatch.setattr("bootstrap.run_plan.resolve", resolved)
    checkout = setting_kit(tmp_path)
    (checkout / "notes.txt").write_text("mine\n")
    return EvalRequest.model_validate(
        {"tasks": ["settingkit_plugin/directions"], "models": ["mockllm/model"], "settings": [str(checkout)]}
    )


def test_a_plugin_registers_a_task_that_the_planner_finds(kit: EvalRequest, tmp_path: Path) -> None:
    """And plans alike as long as the setting is the same, whatever else is done in its checkout."""
    plan = plan_run(kit, tmp_path / "plan", slots=1)
    (one,) = plan.evals
    assert one.manifest.sample_ids == ["north", "east", "south", "west"]
    (setting,) = one.manifest.environment.settings
    assert [path.name for path in plan.archives] == [f"{setting.files}.tar.gz", f"{setting.git}.tar.gz"]
    assert plan.warnings == (
        "1 untracked files of the setting settingkit stay behind (git add them to ship them): notes.txt",
    )
    checkout = Path(kit.settings[0])
    git(checkout, "gc", "--quiet")
    git(checkout, "tag", "later")
    (checkout / "notes.txt").unlink()
    again = plan_run(kit, tmp_path / "again", slots=1)
    assert again.evals[0].manifest.eval_id == one.manifest.eval_id
    assert again.warnings == ()


def test_a_task_uses_its_setting_as_on_the_machine_it_came_from(kit: EvalRequest, tmp_path: Path) -> None:
    ground = job_environment(kit, tmp_path / "plan", lambda line: None)
    (done,) = run_plain(kit, ground.environment, str(tmp_path / "logs"), tmp_path / "work", say=lambda line: None)
    assert done.status == "success", done.error
    for sample in read_eval_log(done.log).samples or pytest.fail("no samples"):
        (score,) = (sample.scores or {}).values()
        assert score.metadata == {"subject": "work", "changed": "", "own_environment": True, "values": None}
