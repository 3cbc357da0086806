from __future__ import annotations

from pathlib import Path

import pytest

from fleet.evals.setup_script import MOST_BYTES, SetupScriptRefused, read_setup_script


def test_a_run_without_a_script_has_none() -> None:
    assert read_setup_script(None) is None


@pytest.mark.parametrize(
    "content", [b"echo hello\n", b"#!/usr/bin/env python3\nprint('hi')\n", b"#!/bin/bash\r\n"[:11] + b"\ntrue\n"]
)
def test_a_text_is_read_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "setup.sh").write_bytes(content)
    assert read_setup_script(str(tmp_path / "setup.sh")) == content


ROWS = [
    pytest.param(b"", "it is empty", id="empty"),
    pytest.param(b" \n\n", "it is empty", id="blank"),
    pytest.param(b"\x7fELF\0\0", "it is no text", id="binary"),
    pytest.param(b"#!/bin/bash\r\ntrue\r\n", "CR LF", id="windows"),
    pytest.param(b"#" * (MOST_BYTES + 1), "it is too large", id="large"),
    pytest.param(None, "no such file or directory", id="absent"),
]


@pytest.mark.parametrize(("content", "why"), ROWS)
def test_what_instances_could_not_run_is_refused_in_one_line(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "setup.sh"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SetupScriptRefused) as refused:
        read_setup_script(str(path))
    assert why in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_folder_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(SetupScriptRefused, match="is a directory"):
        read_setup_script(str(tmp_path))
