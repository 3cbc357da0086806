from __future__ import annotations

import fcntl
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bootstrap import environment as environment_module
from bootstrap.environment import (
    InspectTooOld,
    JobEnvironment,
    PackagesUnresolvable,
    PythonUnavailable,
    build,
    inspect_version,
    resolve,
)
from bootstrap.unpacking import EnvironmentUnbuildable
from fleet.errors import RequestRefused
from fleet.evals.documents import EnvironmentSpec
from fleet.evals.source import SourceArchive, pack
from fleet.file_lock import FileLocked
from tests.job_environment import kit_source


def small_source(folder: Path, **files: str) -> SourceArchive:
    """A checkout of a few files, packed."""
    root = folder / "small"
    root.mkdir(parents=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "-A"], check=True)
    return pack(root, folder)


def test_a_lock_has_exact_versions_and_no_address(environment: JobEnvironment) -> None:
    lines = [line for line in environment.spec.lock.splitlines() if line]
    assert all(re.match(r"^[\w.-]+==[^\s;]+( ; .+)?$", line) for line in lines), lines
    assert not re.search(r"https?://|--", environment.spec.lock)
    assert inspect_version(environment.spec.lock)


def test_where_nothing_names_inspect_ours_is_taken(environment: JobEnvironment) -> None:
    """So that the planner's header and the merge's reader are of one release, unless the user wants another."""
    from inspect_ai import __version__ as ours

    assert inspect_version(environment.spec.lock) == ours


def test_the_same_request_resolves_alike_without_asking_again(
    environment: JobEnvironment, job_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dependency's new release in between must not make another eval of the same request."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("bootstrap.uv.uv_program", lambda: pytest.fail("uv was asked"))
    assert resolve([], kit_source(job_environments), None, cache=job_environments) == environment.spec


def test_an_environment_that_is_there_costs_nothing(environment: JobEnvironment, job_environments: Path) -> None:
    again = build(environment.spec, cache=job_environments, artifact=lambda _: pytest.fail("it was unpacked again"))
    assert again == environment


def test_the_source_is_installed_and_our_own_code_is_out_of_reach(environment: JobEnvironment) -> None:
    code = "import evalkit, importlib.util as u; print(evalkit.__file__, u.find_spec('fleet'), u.find_spec('prefect'))"
    answer = subprocess.run(
        [str(environment.python), "-c", code],
        cwd=environment.working_folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [str(environment.source / "src/evalkit/__init__.py"), "None", "None"]  # type: ignore[operator]
    assert environment.working_folder == environment.source


def test_two_at_once_build_once(tmp_path: Path) -> None:
    """A half-built environment is nobody's: the second waits for the first, and a dead builder's remains are cleared."""
    source = small_source(tmp_path, **{"task.py": "x = 1\n"})
    spec = EnvironmentSpec(python="3.11", lock="", source=source.sha256)
    asked: list[str] = []

    def artifact(sha256: str) -> Path:
        asked.append(sha256)
        return source.path

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: build(spec, cache=tmp_path / "cache", artifact=artifact), range(2))
    assert one == other
    assert asked == [source.sha256]
    assert (one.working_folder / "task.py").read_text() == "x = 1\n"

    (one.folder / "ready").unlink()
    (one.folder / "venv" / "broken").touch()
    again = build(spec, cache=tmp_path / "cache", artifact=artifact)
    assert asked == [source.sha256] * 2
    assert not (again.folder / "venv" / "broken").exists()


@pytest.mark.timeout(20)
@pytest.mark.fault("hang")
def test_a_builder_that_hangs_is_named_to_whoever_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_module, "LOCKED_S", 0.05)
    spec = EnvironmentSpec(python="3.11", lock="")

    def artifact(_: str) -> Path:
        raise AssertionError("nothing is built")

    monkeypatch.setattr(environment_module, "_install", lambda *_: None)
    lock = build(spec, cache=tmp_path, artifact=artifact).folder.with_suffix(".lock")
    (lock.with_suffix("") / "ready").unlink()
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(FileLocked, match="has been locked by"):
            build(spec, cache=tmp_path, artifact=artifact)


def test_an_archive_that_isnt_what_its_name_says_is_refused(tmp_path: Path) -> None:
    source = small_source(tmp_path, **{"task.py": "x = 1\n"})
    spec = EnvironmentSpec(python="3.11", lock="", source="0" * 64)
    with pytest.raises(EnvironmentUnbuildable, match="SHA-256"):
        build(spec, cache=tmp_path / "cache", artifact=lambda _: source.path)


def test_a_package_that_takes_its_version_from_git_installs_from_an_archive(tmp_path: Path) -> None:
    """An archive has no .git; setuptools-scm is told a version instead."""
    source = small_source(
        tmp_path,
        **{
            "pyproject.toml": "[build-system]\nrequires=['setuptools','setuptools-scm']\nbuild-backend='setuptools.build_meta'\n"
            "[project]\nname='scmkit'\ndynamic=['version']\n[tool.setuptools_scm]\n[tool.setuptools]\npackages=['scmkit']\n",
            "scmkit/__init__.py": "",
        },
    )
    spec = EnvironmentSpec(python="3.11", lock="", source=source.sha256, installable=True)
    made = build(spec, cache=tmp_path / "cache", artifact=lambda _: source.path)
    code = "import importlib.metadata as m; print(m.version('scmkit'))"
    assert subprocess.check_output([str(made.python), "-c", code], text=True).strip() == "0.0.0"


def test_a_workspace_travels_with_its_members(tmp_path: Path) -> None:
    """A dependency that lies in the source is named by its place there, so it is found wherever the source is unpacked."""
    package = "[build-system]\nrequires=['uv_build>=0.8']\nbuild-backend='uv_build'\n[project]\nversion='1'\n"
    root = (
        package.replace("[project]", "[project]\nname='outerkit'\ndependencies=['innerkit']")
        + "[tool.uv.sources]\ninnerkit={workspace=true}\n[tool.uv.workspace]\nmembers=['packages/*']\n"
    )
    source = small_source(
        tmp_path,
        **{
            "pyproject.toml": root,
            "src/outerkit/__init__.py": "",
            "packages/inner/pyproject.toml": package.replace("[project]", "[project]\nname='innerkit'"),
            "packages/inner/src/innerkit/__init__.py": "",
        },
    )
    spec = resolve([], source, None, cache=tmp_path)
    assert "./packages/inner" in spec.lock
    assert str(tmp_path) not in spec.lock
    bare = spec.model_copy(update={"lock": "-e ./packages/inner\n"})  # without Inspect: this is about the members
    made = build(bare, cache=tmp_path / "cache", artifact=lambda _: source.path)
    code = "import innerkit, outerkit; print(innerkit.__file__)"
    found = subprocess.check_output([str(made.python), "-c", code], cwd=tmp_path, text=True).strip()
    assert Path(found).is_relative_to(made.working_folder)


@pytest.mark.parametrize(
    ("packages", "error", "why"),
    [
        (["evalkit-that-nobody-published==1"], PackagesUnresolvable, "evalkit-that-nobody-published"),
        (["click==8.1.7", "click==8.1.6"], PackagesUnresolvable, "click"),
        (["inspect-ai==0.3.100"], InspectTooOld, r"inspect-ai 0\.3\.100 .* needs inspect-ai>=0\.3\.278"),
        (["--index-url=https://user:secret@localhost/"], PackagesUnresolvable, "isn't a requirement"),
        (["./dist/my.whl"], PackagesUnresolvable, "a checkout travels as `source`"),
        (["mine @ file:///tmp/mine"], PackagesUnresolvable, "a checkout travels as `source`"),
        (["not a requirement"], PackagesUnresolvable, "not a requirement"),
    ],
)
def test_packages_that_cant_be_had_are_refused_in_one_line(
    packages: list[str], error: type[RequestRefused], why: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=why) as refused:
        resolve(packages, None, None, cache=tmp_path)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


def test_a_uv_lock_is_obeyed_and_may_be_too_old(tmp_path: Path) -> None:
    project = "[project]\nname='locked'\nversion='1'\nrequires-python='>=3.11'\ndependencies=['click']\n"
    lock = (
        'version = 1\nrequires-python = ">=3.11"\n'
        '[[package]]\nname = "locked"\nversion = "1"\nsource = { virtual = "." }\ndependencies = [{ name = "click" }]\n'
        '[package.metadata]\nrequires-dist = [{ name = "click" }]\n'
        '[[package]]\nname = "click"\nversion = "8.1.7"\nsource = { registry = "https://index.invalid/simple" }\n'
        'wheels = [{ url = "https://index.invalid/click-8.1.7-py3-none-any.whl", hash = "sha256:' + "0" * 64 + '" }]\n'
    )
    source = small_source(tmp_path / "new", **{"pyproject.toml": project, "uv.lock": lock})
    spec = resolve([], source, None, cache=tmp_path)
    assert "click==8.1.7" in spec.lock
    assert spec.installable

    old = lock.replace("click-8", "inspect_ai-8").replace("click", "inspect-ai").replace("8.1.7", "0.3.200")
    source = small_source(
        tmp_path / "old", **{"pyproject.toml": project.replace("click", "inspect-ai"), "uv.lock": old}
    )
    with pytest.raises(InspectTooOld, match=r"0\.3\.200 \(pinned by the source's uv\.lock\)"):
        resolve([], source, None, cache=tmp_path)


def test_a_python_that_isnt_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(PythonUnavailable, match=r"Python 3\.99"):
        build(EnvironmentSpec(python="3.99", lock=""), cache=tmp_path, artifact=lambda _: pytest.fail("no source"))
