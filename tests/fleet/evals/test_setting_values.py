from __future__ import annotations

from pathlib import Path

import pytest

from fleet.evals.secrets import SecretsRefused
from fleet.evals.setting_values import values_beside


def test_the_text_beside_a_checkout_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux.env").write_text("A=1\nB='two'\n")
    (tmp_path / "bare").mkdir()
    found = values_beside({"linux": tmp_path / "linux", "bare": tmp_path / "bare"})
    assert found == {"linux": "A=1\nB='two'\n"}


def test_a_setting_without_values_has_none_and_an_empty_file_is_some(tmp_path: Path) -> None:
    (tmp_path / "empty.env").touch()
    assert values_beside({"empty": tmp_path / "empty", "none": tmp_path / "none"}) == {"empty": ""}


def test_a_dot_in_a_checkouts_name_stays(tmp_path: Path) -> None:
    (tmp_path / "linux.v2.env").write_text("A=1")
    (tmp_path / "linux.env").write_text("another's")
    assert values_beside({"linux-v2": tmp_path / "linux.v2"}) == {"linux-v2": "A=1"}


def test_files_that_can_not_be_used_are_all_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_bytes(b"KEY=\xff\xfesecret")
    (tmp_path / "b.env").write_bytes(b"KEY=\0secret")
    (tmp_path / "c.env").mkdir()
    with pytest.raises(SecretsRefused) as refusal:
        values_beside({name: tmp_path / name for name in "abc"})
    message = str(refusal.value)
    for name in "abc":
        assert f"values of the setting {name}" in message
        assert str(tmp_path / f"{name}.env") in message
    assert "secret" not in message.replace(str(tmp_path), "")
