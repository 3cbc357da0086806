"""A command at work in a real terminal (tmux), kept as an SVG."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH, HEIGHT = 104, 22
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code", "Menlo, Consolas, DejaVu Sans Mono"
)
"""Rich's, with fonts that a machine has: a picture fetches nothing."""


class Terminal:
    """A shell in a terminal of its own. Made by `a_terminal`."""

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        self.tmux("send-keys", "-l", "--", line)
        self.tmux("send-keys", "Enter")

    def text(self) -> str:
        """What is on the screen."""
        return self.tmux("capture-pane", "-p")

    def keep(self, to: Path, title: str) -> None:
        """Keep what is on the screen as a picture."""
        screen = self.tmux("capture-pane", "-p", "-e").rstrip()
        console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(Text.from_ansi(screen), no_wrap=True, overflow="crop", crop=True)
        to.write_text(console.export_svg(title=title, theme=MONOKAI, code_format=FORMAT, unique_id="terminal"))

    def tmux(self, *arguments: str) -> str:
        """The output of a tmux command."""
        return subprocess.run(
            ["tmux", "-L", self._socket, *arguments], check=True, capture_output=True, text=True
        ).stdout


@contextmanager
def a_terminal(folder: Path, environ: Mapping[str, str]) -> Iterator[Terminal]:
    """A shell in `folder` whose prompt is `$` and that finds this environment's commands."""
    terminal = Terminal(f"pictures-{os.getpid()}")
    path = f"{Path(sys.executable).parent}:{environ['PATH']}"
    shell = shlex.join(
        ["env", f"PATH={path}", "PS1=$ ", "PS2=      ", "COLORTERM=truecolor", "bash", "--norc", "--noprofile"]
    )
    subprocess.run(
        [
            *("tmux", "-L", f"pictures-{os.getpid()}", "-f", "/dev/null", "new-session", "-d"),
            *("-x", str(WIDTH), "-y", str(HEIGHT), "-c", str(folder), shell),
        ],
        env=dict(environ),
        check=True,
    )
    try:
        terminal.tmux("set-option", "-g", "status", "off")
        yield terminal
    finally:
        terminal.tmux("kill-server")
