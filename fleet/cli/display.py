"""What a person sees of a run: a live display on a terminal, plain lines elsewhere. Always on stderr: stdout is the result's."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fleet.evals.cost import Estimate
    from fleet.evals.listener import Seen

PLAIN_EVERY_S = 5.0
"""Seconds between two progress lines where nobody redraws the screen."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class NeedsApproval(RequestRefused):
    """A launch must be approved, and there is nobody at a terminal to ask."""

    def message(self) -> str:
        """One line with the ways out."""
        return (
            "a launch needs approval, and there is no terminal to ask at: pass --ec2-arg auto_confirm=true "
            "(--ec2-arg estimate=true says what it would cost)"
        )


def printable(text: str) -> str:
    """Text that came from elsewhere, without the control characters that would steer a terminal."""
    return _CONTROL.sub("", text)


class Display(AbstractContextManager["Display"]):
    """Follows a run (`fleet.evals.listener.Listener`) in plain lines."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = clock()
        self._shown = ("", -PLAIN_EVERY_S)

    def stage(self, name: str) -> None:
        """A step begins: one line."""
        self._say(name)

    def warn(self, line: str) -> None:
        """Something a person should know."""
        self._say(f"warning: {line}")

    def progress(self, progress: Seen) -> None:
        """A line when something has changed, at most one in some seconds."""
        line, now = progress.line(), self._clock()
        last, when = self._shown
        if line != last and (now - when >= PLAIN_EVERY_S or progress.fraction >= 1):
            self._shown = (line, now)
            self._say(line)

    @property
    def can_ask(self) -> bool:
        """Whether a person sits there who can approve a launch."""
        return False

    def approve(self, estimate: Estimate) -> bool | None:
        """NeedsApproval: nobody can answer here. Asked for too late for a clean refusal: `can_ask` is for that."""
        raise NeedsApproval()

    def _say(self, line: str) -> None:
        print(f"[{self._clock() - self._began:5.1f}s] {printable(line)}", file=self._stream, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


class LiveDisplay(Display):
    """Follows a run on a terminal: stages above, a bar and the instances below, redrawn in place."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=self._stream)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._stage, self._since = "", self._began
        self._progress: Seen | None = None

    def __enter__(self) -> Self:
        self._live.start()
        self._live.update(self._view(), refresh=True)
        return self

    def stage(self, name: str) -> None:
        """A step begins: the last one moves up, with the time at which it began."""
        self._move_up()
        self._stage, self._since = printable(name), self._clock()
        self._live.update(self._view())

    def warn(self, line: str) -> None:
        """Something a person should know: stays above the bar."""
        self._put(("warning:", "yellow"), f" {printable(line)}")

    def progress(self, progress: Seen) -> None:
        """Redraw."""
        self._progress = progress
        self._live.update(self._view())

    @property
    def can_ask(self) -> bool:
        """They see the display; whether they can type is another matter (`fleet run … < file`)."""
        return sys.stdin is not None and sys.stdin.isatty()

    def approve(self, estimate: Estimate) -> bool | None:
        """Ask the person who sits there. NeedsApproval: nothing can be typed."""
        if not self.can_ask:
            raise NeedsApproval()
        from rich.prompt import Confirm

        self._live.stop()
        try:
            for line in estimate.lines()[1:]:
                self._console.print(printable(line), markup=False, highlight=False)
            return Confirm.ask(f"Launch {estimate.line()}?", console=self._console, default=False)
        finally:
            self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()
        self._move_up()

    def _move_up(self) -> None:
        if self._stage:
            self._put((f"{self._since - self._began:6.1f}s", "dim"), f"  {self._stage}")

    def _put(self, *parts: str | tuple[str, str]) -> None:
        # As text: square brackets in words from elsewhere are no markup.
        from rich.text import Text

        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def _view(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        spinner = Spinner("dots", text=Text(f" {self._stage or 'Starting'}"))
        if self._progress is None:
            return spinner
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            ProgressBar(total=1.0, completed=self._progress.fraction, width=40),
            Text(f"{100 * self._progress.fraction:3.0f}%  {self._progress.line()}"),
        )
        if not self._progress.workers:
            return Group(spinner, bar)
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("instance", "state", "jobs", "samples", "errors", "busy", "minutes", ""):
            table.add_column(title, no_wrap=True)
        for row in self._progress.workers[:20]:
            table.add_row(
                row.instance or "–",
                row.phase,
                str(row.jobs),
                str(row.samples),
                str(row.errors),
                row.slots,
                f"{row.minutes:.1f}",
                printable(row.why)[:60],
            )
        return Group(spinner, bar, table)


def display_for(stream: TextIO | None = None) -> Display:
    """Live on a terminal, plain lines elsewhere."""
    target = stream or sys.stderr
    return LiveDisplay(target) if target.isatty() else Display(target)
