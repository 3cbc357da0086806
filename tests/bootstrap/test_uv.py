from __future__ import annotations

import os

from bootstrap.uv import decisive_line


def test_uvs_sentence_is_found_among_its_lines() -> None:
    said = "Using Python\n  × No solution found when resolving dependencies:\n  ╰─▶ Because a\n      needs b,\n      it fails.\n"
    assert decisive_line(said) == "Because a needs b, it fails."
    assert decisive_line("warning: x\nerror: Failed to parse\n") == "Failed to parse"
    newer = "error: No solution found\n  cause: Because a needs b,\n         it fails.\n"
    assert decisive_line(newer) == "Because a needs b, it fails."
    assert decisive_line("") == "uv said nothing"
    assert os.linesep not in decisive_line(said)
