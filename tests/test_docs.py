"""What the documents name must exist: a pointer that rots misleads more than none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FILE = re.compile(
    r"`((?:fleet|flows|blocks|bootstrap|worker_image|tests|examples|docs)/[\w./-]+\.\w+|prefect\.yaml|pyproject\.toml)`"
)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    named = [ROOT / name for name in FILE.findall(text)]
    linked = [page.parent / name for name in LINK.findall(text)]
    missing = [str(path.relative_to(ROOT)) for path in named + linked if not path.exists()]
    assert missing == []


def test_every_make_target_the_readme_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", (ROOT / "README.md").read_text()))
    assert named <= targets
