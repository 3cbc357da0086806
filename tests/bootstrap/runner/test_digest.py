from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser

from bootstrap.runner.digest import digest

plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


@given(st.text(), st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_a_copy_has_the_same_digest_whatever_its_id(said: str, metadata: dict[str, Any]) -> None:
    sample = Sample(input=said, target="x", id=1, metadata=metadata)
    assert digest(sample) == digest(sample.model_copy(deep=True, update={"id": "other"}))
    turned = Sample(input=said, target="x", metadata=dict(reversed(metadata.items())))
    assert digest(turned) == digest(sample)


@pytest.mark.parametrize(
    "other",
    [
        {"input": "b"},
        {"target": "y"},
        {"choices": ["1", "2"]},
        {"metadata": {"k": 2}},
        {"files": {"a.txt": "content"}},
        {"setup": "true"},
        {"sandbox": "docker"},
    ],
)
def test_any_other_content_has_another(other: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"input": "a", "target": "x", "metadata": {"k": 1}}
    assert digest(Sample(**fields)) != digest(Sample(**{**fields, **other}))


@dataclasses.dataclass
class Held:
    number: int


class Unheld:
    pass


def test_what_differs_only_by_process_or_machine_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Random message ids, the order of sets, addresses of objects, and where environment, source and caches lie."""
    one, other = (Sample(input=[ChatMessageUser(content="hello")]) for _ in range(2))
    assert one.input[0].id != other.input[0].id  # type: ignore[union-attr]
    assert digest(one) == digest(other)
    assert digest(Sample(input="a", metadata={"k": {"x", "y", "z"}})) == digest(
        Sample(input="a", metadata={"k": {"z", "y", "x"}})
    )
    assert digest(Sample(input="a", metadata={"k": Unheld()})) == digest(Sample(input="a", metadata={"k": Unheld()}))
    assert digest(Sample(input="a", metadata={"k": Held(1)})) != digest(Sample(input="a", metadata={"k": Held(2)}))

    found = set()
    for name in ("here", "there"):
        source, prefix, home = (tmp_path / name / part for part in ("source", "venv", "home"))
        source.mkdir(parents=True)
        monkeypatch.chdir(source)
        monkeypatch.setattr(sys, "prefix", str(prefix))
        monkeypatch.setenv("HOME", str(home))
        files = {"a": str(source / "a.txt"), "b": str(prefix / "lib/b.txt"), "c": str(home / ".cache/c.txt")}
        said = f"Look into {home}/.cache/kit (or {source}), please."
        found.add(digest(Sample(input=said, files=files, metadata={"path": source / "x", str(home / ".cache"): 1})))
    assert len(found) == 1


def digest_at(monkeypatch: pytest.MonkeyPatch, said: str, **variables: str) -> str:
    """The digest of a sample that says this, where the variables are these and no others that name a cache."""
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return digest(Sample(input=said))


@pytest.mark.parametrize(
    ("one", "its", "other", "others"),
    [
        ("/home/x/.cache/kit/a", {"HOME": "/home/x"}, "/root/.cache/kit/a", {"HOME": "/root"}),
        ("/Users/x/Library/Caches/kit/a", {"HOME": "/Users/x"}, "/root/.cache/kit/a", {"HOME": "/root"}),
        ("/Users/x y/.cache/kit/a", {"HOME": "/Users/x y"}, "/root/.cache/kit/a", {"HOME": "/root"}),
        (
            "/home/x/.cache/huggingface/hub/a",
            {"HOME": "/home/x"},
            "/srv/hf/hub/a",
            {"HF_HOME": "/srv/hf", "HOME": "/r"},
        ),
        ("file:///data/c/kit", {"XDG_CACHE_HOME": "/data/c"}, "file:///root/.cache/kit", {"HOME": "/root"}),
        ("/data/c/kit", {"XDG_CACHE_HOME": "/data/c", "HOME": "/h"}, "/root/.cache/kit", {"HOME": "/root"}),
        ("/srv/sets/a", {"HF_DATASETS_CACHE": "/srv/sets"}, "/root/.cache/huggingface/datasets/a", {"HOME": "/root"}),
        # Only words here: neither side knows the home that is named.
        ("see /home/y/.cache/a", {"HOME": "/home/x"}, "see /home/y/.cache/a", {"HOME": "/home/y"}),
        ("in /root or /home/x/a", {"HOME": "/home/x"}, "in /root or /home/x/a", {"HOME": "/root"}),
    ],
)
def test_a_cache_is_the_same_wherever_it_lies(
    one: str, its: dict[str, str], other: str, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert digest_at(monkeypatch, one, **its) == digest_at(monkeypatch, other, **others)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/home/x/a", "/home/y/a"),
        ("/home/x/.cached/a", "/home/y/.cached/a"),
        ("/data/c2/a", "/data/c3/a"),
        ("/mnt/data/c/a", "/mnt2/data/c/a"),
    ],
)
def test_a_text_that_only_looks_like_a_cache_is_content(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"HOME": "/home/x", "XDG_CACHE_HOME": "/data/c"}
    assert digest_at(monkeypatch, one, **there) != digest_at(monkeypatch, other, **there)
