"""The optional stack with the Image Builder pipeline: the same bake, on the same base, under the names that are looked for."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import botocore.session
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
    resources = template["Resources"]
    document = yaml.safe_load(resources["Bake"]["Properties"]["Data"])
    fetch, bake = document["phases"][0]["steps"]
    assert (fetch["action"], bake["action"]) == ("S3Download", "ExecuteBash")
    (told,) = resources["Recipe"]["Properties"]["Components"][0]["Parameters"]
    assert [list(one) for one in document["parameters"]] == [[told["Name"]]]
    assert fetch["inputs"][0]["source"] == f"{{{{ {told['Name']} }}}}"
    assert filled(told["Value"][0][0], architecture, template) == f"s3://b/{bundle_key('p', architecture)}"
    script = "#!/bin/bash\n" + "\n".join(bake["inputs"]["commands"]) + "\n"
    checked = subprocess.run([BIN / "shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "drive.py" in script


COMPONENTS = {"1.1.0": "ab9b24f7c475bafddbac74dc5584115f3300bdddc39bd88b22ad0c4c014c1bf8"}
"""Each version of the component and what it holds. A row is never edited: a stack that has it can't be given another text under
the same number. Add the next one."""


def test_another_component_has_another_version(template: dict[str, Any]) -> None:
    """Image Builder makes a version once, and CloudFormation's update would fail with "already exists"."""
    found = template["Resources"]["Bake"]["Properties"]
    content = json.dumps({name: value for name, value in found.items() if name != "Version"}, sort_keys=True)
    assert found["Version"] == list(COMPONENTS)[-1]
    assert hashlib.sha256(content.encode()).hexdigest() == COMPONENTS[found["Version"]]


def test_the_component_is_the_same_in_every_stack_of_an_architecture(template: dict[str, Any]) -> None:
    """Else a stack with another bucket would need another version of it."""
    assert "${" not in json.dumps({**template["Resources"]["Bake"]["Properties"], "Name": ""})


def test_a_recipe_that_changes_gets_a_version_of_its_own(template: dict[str, Any]) -> None:
    """The volume's size is part of it, and a parameter of the stack: Image Builder counts for itself."""
    assert template["Resources"]["Recipe"]["Properties"]["Version"] == "1.0.x"
    shape: Any = botocore.session.get_session().get_service_model("imagebuilder").shape_for("CreateImageRecipeRequest")
    assert re.fullmatch(shape.members["semanticVersion"].metadata["pattern"], "1.0.x")
