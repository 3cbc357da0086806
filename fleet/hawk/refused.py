"""What a Hawk deployment can't do as a request asks."""

from __future__ import annotations

from fleet.errors import RequestRefused


class HawkRefused(RequestRefused):
    """Hawk can't run the request as it stands. Raised before Hawk is asked anything, with everything that is wrong."""

    problems: list[str]

    def message(self) -> str:
        """One line: all that can't be honoured, each with what to do."""
        return f"Hawk can't run this request: {'; '.join(self.problems)}"
