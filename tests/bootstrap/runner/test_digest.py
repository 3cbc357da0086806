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
    """Random message ids, the order of sets, addresses of objects, and where environment, source and home lie."""
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
        found.add(digest(Sample(input="a", files=files, metadata={"path": source / "x"})))
    assert len(found) == 1
