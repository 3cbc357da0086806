from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bootstrap import canary
from bootstrap.canary import Check, Unfit, caches, code, dependencies, gpu, image_file, inotify, run_checks, said
from bootstrap.host import DockerUnreachable
from fleet.aws.images import CONTRACT

RECIPE = {"contract": CONTRACT, "gpu": False, "pull": []}


def written(tmp_path: Path, **more: Any) -> Path:
    path = tmp_path / "image.json"
    path.write_text(json.dumps({**RECIPE, "baked": "2026-01-02T03:04:05Z", **more}))
    return path


def test_every_check_is_made_also_after_one_that_failed() -> None:
    """So that a person sees all at once what isn't fit."""

    def bad() -> str:
        raise DockerUnreachable(why="no\n engine")

    def broken() -> str:
        return str(json.loads("{"))

    found = run_checks({"docker": bad, "json": broken, "uv": lambda: "0.9"})
    assert [(one.name, one.passed) for one in found] == [("docker", False), ("json", False), ("uv", True)]
    assert all("\n" not in one.detail for one in found)


def test_an_image_of_the_recipe_and_contract_passes(tmp_path: Path) -> None:
    assert "baked 2026-01-02" in image_file(written(tmp_path), RECIPE)


@pytest.mark.parametrize(
    ("more", "says"),
    [({"contract": CONTRACT + 1}, "says contract 2, this version needs 1"), ({"pull": ["alpine"]}, "pull differ")],
)
def test_an_image_of_another_contract_or_recipe_doesnt(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    """Another build's bundle may have been fetched: a pipeline's has a fixed address."""
    with pytest.raises(Unfit, match=says):
        image_file(written(tmp_path, **more), RECIPE)


def test_an_image_that_says_nothing_of_itself_doesnt(tmp_path: Path) -> None:
    found = run_checks({"image": lambda: image_file(tmp_path / "absent.json", RECIPE)})
    assert found[0].passed is False


def test_too_few_inotify_instances_that_cant_be_raised_are_unfit(tmp_path: Path) -> None:
    path = tmp_path / "limit"
    path.write_text("128\n")
    assert "raised from 128" in inotify(path)
    path.unlink()
    path.mkdir()
    assert run_checks({"inotify": lambda: inotify(path)})[0].passed is False


def test_nvidias_toolkit_must_be_there_only_if_the_recipe_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu(written(tmp_path)) == "not in the recipe"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unfit, match="dpkg-query isn't installed"):
        gpu(written(tmp_path, gpu=True))


def test_the_shared_caches_must_be_named() -> None:
    both = {"UV_CACHE_DIR": "/opt/uv-cache", "UV_PYTHON_INSTALL_DIR": "/opt/uv-python"}
    assert caches(both) == "/opt/uv-cache, /opt/uv-python"
    with pytest.raises(Unfit, match="UV_PYTHON_INSTALL_DIR"):
        caches({"UV_CACHE_DIR": "/opt/uv-cache"})


def test_what_is_installed_here_is_locked_and_a_difference_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dependencies().startswith("as locked, on Python")
    bake = tmp_path / "worker_image/bake"
    bake.mkdir(parents=True)
    (bake / "locked.py").write_text((canary.CODE / "worker_image/bake/locked.py").read_text())
    (bake / "requirements.lock").write_text("boto3==0.0.1\n")
    monkeypatch.setattr(canary, "CODE", tmp_path)
    with pytest.raises(Unfit, match=r"boto3: .*, locked is 0\.0\.1"):
        dependencies()


def test_code_from_another_place_than_was_shipped_is_unfit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "said", lambda command, cwd: "/opt/stale/flows/fleet_worker.py")
    with pytest.raises(Unfit, match=r"come from /opt/stale"):
        code()


def test_a_program_that_fails_or_isnt_there_is_unfit() -> None:
    assert said([sys.executable, "-c", "print('one'); print('two')"]) == "one"
    with pytest.raises(Unfit, match="ended with 3: worse"):
        said([sys.executable, "-c", "print('bad\\nworse'); raise SystemExit(3)"])
    with pytest.raises(Unfit, match="no-such-program isn't installed"):
        said(["no-such-program"])


def test_its_exit_code_says_whether_all_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(canary.REPORT, raising=False)
    monkeypatch.setattr(canary, "run_checks", lambda checks: [Check("uv", True, "0.9"), Check("docker", False, "no")])
    assert canary.main() == 1
    assert capsys.readouterr().out == "passed uv: 0.9\nFAILED docker: no\n"
    monkeypatch.setattr(canary, "run_checks", lambda checks: [Check("uv", True, "0.9")])
    assert canary.main() == 0
