import json
import os
import subprocess
import sys
from pathlib import Path

import uv

EXAMPLES = Path(__file__).parents[2] / "examples"

LIST = """
import json
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai._util.registry import registry_find, registry_info
ensure_entry_points()
print(json.dumps([registry_info(found).name for found in registry_find(lambda info: "fleet_examples" in info.name)]))
"""


def test_the_package_installs_and_inspect_finds_its_tasks_and_model(tmp_path: Path) -> None:
    """Built and installed as a source is; the project's own environment doesn't hold it."""
    folder = tmp_path / "site-packages"  # Inspect gives a package's name only to what lies in such a folder
    subprocess.run(
        [uv.find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(EXAMPLES)], check=True
    )
    found = subprocess.run(
        [sys.executable, "-c", LIST],
        env={**os.environ, "PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    names = json.loads(found.stdout)
    assert {"fleet_examples/elements", "fleet_examples/elements_shell", "fleet_examples/scripted"} <= set(names)
    assert (folder / "fleet_examples" / "elements.csv").is_file()
    assert (folder / "fleet_examples" / "compose.yaml").is_file()
