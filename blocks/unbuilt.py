"""Options that a request and a fleet's configuration have already and that nothing here carries out yet.

They are refused, never passed over: a run without its setup script would look like one that had it.
"""

from __future__ import annotations

from blocks.ec2_config import Ec2Config
from fleet.errors import RequestRefused
from fleet.evals.request import EvalRequest


class OptionUnbuilt(RequestRefused):
    """This release knows the options and can't do what they ask for."""

    options: list[str]

    def message(self) -> str:
        """One line: which options, and what helps."""
        return f"this release can't do {', '.join(self.options)} yet: run without"


def refuse_unbuilt(request: EvalRequest, config: Ec2Config | None = None) -> None:
    """OptionUnbuilt: a request (and, for a fleet, its configuration) asks for what isn't built. Names all of it."""
    asked = [
        ("worker_setup", config is not None and config.worker_setup is not None),
        ("worker_user (other than root)", config is not None and config.worker_user != "root"),
    ]
    if options := [option for option, wanted in asked if wanted]:
        raise OptionUnbuilt(options=options)
