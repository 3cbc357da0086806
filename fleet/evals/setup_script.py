"""The script of `worker_setup`, read where the run starts and checked before anything is created."""

from __future__ import annotations

from pathlib import Path

from fleet.errors import RequestRefused

MOST_BYTES = 1_000_000


class SetupScriptRefused(RequestRefused):
    """The option names nothing that instances could run."""

    path: str
    why: str

    def message(self) -> str:
        """One line: which file, why, what is wanted."""
        return (
            f"worker_setup {self.path} refused: {self.why}. It takes the path of a script on the machine where the run starts, "
            f"a text of at most {MOST_BYTES:,} bytes that bash runs (or what its first line names)"
        )


def read_setup_script(path: str | None) -> bytes | None:
    """The script's content; None: the run has none. SetupScriptRefused."""
    if path is None:
        return None
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise SetupScriptRefused(path=path, why=(error.strerror or str(error)).lower()) from error
    if why := problem_of(content):
        raise SetupScriptRefused(path=path, why=why)
    return content


def problem_of(content: bytes) -> str:
    """Why this is no script; empty: it is one."""
    if len(content) > MOST_BYTES:
        return "it is too large"
    if not content.strip():
        return "it is empty"
    if b"\0" in content:
        return "it is no text"
    if b"\r\n" in content.split(b"\n", 1)[0] + b"\n":
        return "its lines end as on Windows (CR LF)"
    return ""
