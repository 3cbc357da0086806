from __future__ import annotations

import os
from pathlib import Path

import pytest

from bootstrap import uv
from bootstrap.uv import TIMED_OUT, decisive_line, run_uv


@pytest.mark.fault("hang")
def test_a_uv_that_hangs_is_ended_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(uv, "uv_program", lambda: str(program))
    answer = run_uv(["sync"], cwd=tmp_path, seconds=0.1)
    assert answer.returncode == TIMED_OUT
    assert decisive_line(answer.stderr).startswith("uv sync didn't end within 0.1 s")


def test_uvs_sentence_is_found_among_its_lines() -> None:
    said = "Using Python\n  × No solution found when resolving dependencies:\n  ╰─▶ Because a\n      needs b,\n      it fails.\n"
    assert decisive_line(said) == "Because a needs b, it fails."
    assert decisive_line("warning: x\nerror: Failed to parse\n") == "Failed to parse"
    newer = "error: No solution found\n  cause: Because a needs b,\n         it fails.\n"
    assert decisive_line(newer) == "Because a needs b, it fails."
    assert decisive_line("") == "uv said nothing"
    assert os.linesep not in decisive_line(said)


def test_of_a_failed_build_its_backends_last_words_are_told() -> None:
    said = (
        "Resolved 1 package\nerror: Failed to build `tools @ file:///there`\n  cause: The build backend returned an error\n"
        "  cause: Call to `setuptools.build_meta.build_editable` failed (exit status: 1)\n\n         [stdout]\n"
        "         running\n\n         [stderr]\n         Traceback (most recent call last):\n           File 'x', line 1\n"
        "         ModuleNotFoundError: No module named 'nosuch'\n\nhint: This error likely indicates\n\n[tool.uv]\n"
    )
    assert (
        decisive_line(said) == "Failed to build `tools @ file:///there`: ModuleNotFoundError: No module named 'nosuch'"
    )
    older = said.replace("error: F", "  × F").replace("  cause: The", "  ├─▶ The").replace("  cause: C", "  ╰─▶ C")
    assert decisive_line(older) == decisive_line(said)
    silent = "error: Failed to build `tools @ file:///there`\n  cause: The build backend returned an error\n\n         [stderr]\n"
    assert decisive_line(silent) == "Failed to build `tools @ file:///there`"
