"""The run's secrets on their way to this instance's runners, and nowhere else.

The parameter is written right after the launch, so a fetch may come too early: then the parameter is missing, or the
right to read it is (its tag lags). Both mean "later", and so does an SSM that is asked too often or doesn't answer: all
instances of a fleet ask at once. Prefect's retries carry the wait; what is here says when it is over.

Values live in this process's memory and in the runners' environment. They are no task's result or argument, and no text
that leaves this process shows one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from fleet.aws.failures import Throttled, Unreachable
from fleet.aws.parameters import ParameterNotReady, SecretUnreadable
from fleet.errors import FleetError
from fleet.evals.secrets import setting_parameter

_LOG = logging.getLogger(__name__)

SOON = (ParameterNotReady, Throttled)
"""Failures of a fetch of setting values that time mends: their parameters were written before the instance's own."""
SETTING_DELAYS = [5.0, 10, 15, 20]
"""Seconds before each retry of such a fetch: five tries in all."""
LATER = (ParameterNotReady, Throttled, Unreachable)
"""Failures of a fetch that time mends; any other is for good."""
PATIENCE = 15 * 60.0
"""Seconds until a parameter that doesn't come is given up."""
RETRY_DELAYS = [1.0, 1, 2, 2, 5, 5, 10]
"""Seconds before each retry; the last one stays. The write takes seconds, the tag now and then some more."""
RETRIES = 200
"""More than fit into `PATIENCE`, even with every delay cut by the jitter: time ends the wait, never this count."""
JITTER = 0.3
LOG_EVERY = 60.0
ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(\w+)\s*=(.*)$", re.MULTILINE)
"""A line of a setting's values."""
SHORTEST_HIDDEN = 6
"""Values shorter than this are no keys; hiding them would only spoil texts (`true`, `8080`)."""
SHORTEST_PIECE = 8
"""Of a value that a text was cut in."""
SHORTEST_LINE = 16
"""Of a value of several lines, as private keys are: who quotes it may join its lines."""


class SecretsNeverCame(FleetError):
    """The parameter was not readable within `PATIENCE`. Nothing on the instance can help: the controller has to be looked at."""

    parameter: str
    waited: int
    why: str

    def message(self) -> str:
        """One line: parameter, wait, last error, the likely causes."""
        return (
            f"the secrets parameter {self.parameter} could not be read within {self.waited} seconds; last: {self.why}. "
            "Likely causes: the controller never wrote it or never tagged it with this instance's ARN (look at the run's "
            "provision-secrets step), the instance's role may not read parameters tagged with its own ARN, or the instance "
            "can't reach SSM."
        )


class ReadsSecrets(Protocol):
    """What is needed of `fleet.aws.parameters.Parameters`."""

    def get_secret(self, name: str) -> dict[str, str]:
        """The values; one of `LATER`: later."""
        ...


class Secrets:
    """Values by environment variable name, for this process's memory: shown, logged and pickled as nothing."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = dict(values or {})
        self._of_settings: dict[str, str] = {}

    def keep(self, values: Mapping[str, str]) -> None:
        """Take over what was fetched."""
        self._values = dict(values)

    def environment(self) -> dict[str, str]:
        """A copy of the values, for the environment of a runner."""
        return dict(self._values)

    def keep_hidden(self, setting: str, text: str) -> None:
        """Hide the values in a setting's text as well. No runner gets them in its environment: its jobs read the file."""
        for name, value in ASSIGNMENT.findall(text):
            self._of_settings[f"{setting}: {name}"] = value.strip().strip("'\"")

    def names(self) -> list[str]:
        """The names, which are no secret."""
        return sorted(self._values)

    def hide(self, text: str) -> str:
        """`text` with each value in it replaced: errors of providers like to quote the key they refused.

        So is what is left of a value in which the text begins or ends, since a long one was cut somewhere before it came here.
        """
        for name, value in sorted(self._hidden(), key=lambda item: -len(item[1])):
            text = without_pieces(text.replace(value, f"<{name}>"), value, f"<{name}>")
        return text

    def _hidden(self) -> Iterator[tuple[str, str]]:
        """What is hidden, and by which name."""
        for name, value in {**self._of_settings, **self._values}.items():
            if len(value) >= SHORTEST_HIDDEN:
                yield name, value
            if "\n" in value:
                yield from ((name, line.strip()) for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE)

    def forget(self) -> None:
        """Drop the values."""
        self._values = {}
        self._of_settings = {}

    def __repr__(self) -> str:
        return f"Secrets({len(self._values)} values)"

    def __reduce__(self) -> tuple[type[Secrets], tuple[()]]:
        return Secrets, ()


def without_pieces(text: str, value: str, name: str) -> str:
    """`text` with `name` in place of the end of `value` with which it begins, and of the beginning with which it ends."""
    lengths = range(min(len(value) - 1, len(text)), SHORTEST_PIECE - 1, -1)
    if first := next((length for length in lengths if text.startswith(value[-length:])), 0):
        text = name + text[first:]
    if last := next((length for length in lengths if text.endswith(value[:length])), 0):
        text = text[:-last] + name
    return text


class SecretsFetch:
    """One parameter's fetch over all its tries. Call it until it raises none of `LATER`."""

    def __init__(
        self,
        parameters: ReadsSecrets,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = _LOG.info,
    ) -> None:
        self.name = name
        self._parameters = parameters
        self._clock = clock
        self._say = say
        self._began: float | None = None
        self._said = 0.0

    def __call__(self, into: Secrets) -> None:
        """One try. One of `LATER`: try again; SecretsNeverCame: `PATIENCE` is over; anything else is for good."""
        now = self._clock()
        if self._began is None:
            self._began = self._said = now
        try:
            into.keep(self._parameters.get_secret(self.name))
        except LATER as error:
            waited = now - self._began
            if waited >= PATIENCE:
                said = f"{error.code}: {error.why}" if error.why else error.code
                raise SecretsNeverCame(parameter=self.name, waited=round(waited), why=said) from error
            if now - self._said >= LOG_EVERY:
                self._said = now
                self._say(f"waiting for {self.name} for {waited:.0f} s; last: {error}")
            raise


class SettingFetch:
    """The fetch of one setting's values, from the parameter beside the instance's own."""

    def __init__(self, parameters: ReadsSecrets, own: str, setting: str) -> None:
        self.name = setting_parameter(own, setting)
        self._parameters = parameters
        self._setting = setting

    def __call__(self, into: Secrets) -> str:
        """One try; the text, whose values `into` hides from now on. One of `SOON`: try again; anything else is for good."""
        values = self._parameters.get_secret(self.name)
        if values.keys() != {self._setting}:
            raise SecretUnreadable(parameter=self.name)
        into.keep_hidden(self._setting, values[self._setting])
        return values[self._setting]
