from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from fleet.aws.images import CONTRACT, pointer_for
from worker_image import recipe as recipes
from worker_image.names import BuildNames, pipeline_name
from worker_image.recipe import Recipe


def test_the_same_recipe_gives_the_same_bytes_and_hash() -> None:
    assert Recipe().bundle == Recipe().bundle
    assert Recipe().hash("ami-1") == Recipe().hash("ami-1")


@pytest.mark.parametrize(
    "other",
    [Recipe(architecture="arm64"), Recipe(gpu=False), Recipe(pull=("alpine",)), Recipe(volume_gb=40)],
    ids=["architecture", "gpu", "pull", "volume"],
)
def test_what_decides_the_image_changes_the_hash(other: Recipe) -> None:
    assert other.hash("ami-1") != Recipe().hash("ami-1")


def test_a_new_base_image_changes_the_hash_and_the_types_that_build_dont() -> None:
    """So that an image is built anew when Canonical has published, and not when another type happened to be free."""
    assert Recipe().hash("ami-2") != Recipe().hash("ami-1")
    assert Recipe(instance_types=("m7i.large",)).hash("ami-1") == Recipe().hash("ami-1")


def test_a_changed_file_of_the_bake_changes_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "BAKE", tmp_path)
    (tmp_path / "step.sh").write_text("one")
    before = Recipe().hash("ami-1")
    (tmp_path / "step.sh").write_text("two")
    assert Recipe().hash("ami-1") != before


def test_the_bundle_holds_steps_files_lock_and_what_is_asked_for() -> None:
    with zipfile.ZipFile(io.BytesIO(Recipe(gpu=False, pull=("alpine", "python:3.12")).bundle)) as bundle:
        names = bundle.namelist()
        told = json.loads(bundle.read("recipe.json"))
    assert {"drive.py", "plain_s3.py", "locked.py", "requirements.lock", "files/daemon.json", "steps/20-docker.sh"} <= {
        *names
    }
    assert not [name for name in names if "__pycache__" in name]
    assert (told["contract"], told["gpu"], told["pull"]) == (CONTRACT, False, ["alpine", "python:3.12"])


def test_nvidias_software_is_baked_where_a_fallback_type_may_have_a_gpu() -> None:
    assert Recipe().with_gpu
    assert not Recipe(architecture="arm64").with_gpu
    assert Recipe(architecture="arm64", gpu=True).with_gpu
    assert not Recipe(gpu=False).with_gpu


@pytest.mark.parametrize("name", ["", "--privileged", "two words", "a\nb"])
def test_what_names_no_container_image_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Recipe(pull=(name,))


def test_each_architecture_has_its_own_base_pointer_and_pipeline() -> None:
    assert Recipe().base_parameter.endswith("/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id")
    assert Recipe(architecture="arm64").base_parameter.endswith("/current/arm64/hvm/ebs-gp3/ami-id")
    assert pointer_for("/inspect-fleet/worker-image", "x86_64") == "/inspect-fleet/worker-image"
    assert pointer_for("/inspect-fleet/worker-image", "arm64") == "/inspect-fleet/worker-image-arm64"
    assert pipeline_name("x86_64") == "inspect-fleet-worker-x86-64"


def test_every_build_has_names_of_its_own_that_ec2_takes() -> None:
    one, other = (BuildNames(recipe=Recipe(), base="ami-1", owner="me", prefix="p") for _ in range(2))
    assert one.id != other.id
    assert one.image_name != other.image_name
    assert 3 <= len(one.image_name) <= 128
    assert one.folder.startswith("p/runs/")  # where a worker's role may write
    assert all(len(value) <= 256 for value in {**one.image_tags(), **one.machine_tags("canary")}.values())
