"""The optional stack with the Image Builder pipeline: the same bake, on the same base, under the names that are looked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from worker_image.image_pipeline import bundle_key
from worker_image.names import pipeline_name
from worker_image.recipe import Architecture, Recipe

TEMPLATE = Path(__file__).parents[2] / "worker_image" / "pipeline.yaml"
BIN = Path(sys.executable).parent


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms: a tag becomes what it is given."""


def short_form(loader: Loader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


Loader.add_multi_constructor("!", short_form)


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(TEMPLATE.read_text(), Loader)  # noqa: S506  a SafeLoader
    return found


def filled(text: str, architecture: Architecture, template: dict[str, Any]) -> str:
    short = architecture.replace("_", "-")
    words = {"Bucket": "b", "Prefix": "p", "Architecture": short, **template["Mappings"]["Of"][short]}
    for name, value in words.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def test_the_template_is_sound() -> None:
    done = subprocess.run([BIN / "cfn-lint", TEMPLATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_the_pipeline_has_the_name_that_is_looked_for_and_the_base_of_the_recipe(
    template: dict[str, Any], architecture: Architecture
) -> None:
    resources = template["Resources"]
    name = filled(resources["Pipeline"]["Properties"]["Name"], architecture, template)
    assert name == pipeline_name(architecture)
    parent = filled(resources["Recipe"]["Properties"]["ParentImage"][0], architecture, template)
    assert parent == f"ssm:{Recipe(architecture=architecture).base_parameter}"


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_the_component_fetches_the_bundle_where_it_is_put_and_runs_it(
    template: dict[str, Any], architecture: Architecture
) -> None:
    document = yaml.safe_load(filled(template["Resources"]["Bake"]["Properties"]["Data"][0], architecture, template))
    fetch, bake = document["phases"][0]["steps"]
    assert (fetch["action"], bake["action"]) == ("S3Download", "ExecuteBash")
    assert fetch["inputs"][0]["source"] == f"s3://b/{bundle_key('p', architecture)}"
    script = "#!/bin/bash\n" + "\n".join(bake["inputs"]["commands"]) + "\n"
    checked = subprocess.run([BIN / "shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "drive.py" in script
