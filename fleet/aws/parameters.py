"""Secrets on their way to one instance: a JSON object of names and values in one SecureString parameter.

The parameter's tags say who may read it, so they are there from its first moment: one PutParameter with tags and without
Overwrite, which SSM refuses together. No value leaves this file except as the result of `get_secret`: errors carry names and
sizes, SSM's own words only where they can't repeat the value, and botocore's debug log is off while a value passes through it.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.aws.failures import BAD_CREDENTIALS, DENIED, THROTTLED, AwsRefused, Throttled, calling, code_of, refused
from fleet.aws.session import Aws
from fleet.aws.silence import botocore_silent
from fleet.errors import FleetError, RequestRefused

if TYPE_CHECKING:
    from mypy_boto3_ssm.type_defs import TagTypeDef

NOT_READY = frozenset({"AccessDenied", "AccessDeniedException", "ParameterNotFound"})
"""A parameter that isn't written yet, or whose tag hasn't reached the policy: under a condition on tags, absent is denied too."""
QUOTABLE = THROTTLED | DENIED | BAD_CREDENTIALS | {"InvalidKeyId", "ParameterAlreadyExists", "ParameterLimitExceeded"}
"""Codes whose text can't repeat the value. A ValidationException's does."""

INSTANCE_TAG = "InstanceArn"
"""Tag of an instance's parameter: the one instance whose role may read it."""

STANDARD_BYTES = 4096
"""The most a parameter of the standard tier holds."""
NAMES_A_CALL = 10
"""Of DeleteParameters, SSM's limit."""
WRITE_SECONDS = 120.0
"""How long a throttled write is tried again: SSM takes about 3 writes a second, so that 64 instances need 21 s."""
LONGEST_WAIT = 8.0
"""Seconds between two tries, at most."""


class SecretsTooLarge(RequestRefused):
    """The secrets of an instance don't fit in one parameter; raised before anything is created. Pass fewer, or shorter ones."""

    size: int
    """Bytes of all, as they are stored."""
    largest: str
    largest_size: int

    def message(self) -> str:
        """One line: the sizes and the largest entry's name."""
        return (
            f"the secrets take {self.size:,} bytes, an SSM parameter holds {STANDARD_BYTES:,}: "
            f"the largest is {self.largest} ({self.largest_size:,} bytes)"
        )


class ParameterNotReady(FleetError):
    """The parameter can't be read now, but perhaps soon: it isn't written, or its tag hasn't reached the policy."""

    parameter: str
    code: str
    why: str

    def message(self) -> str:
        """One line: the parameter, SSM's words, and the two likely causes."""
        return (
            f"parameter {self.parameter} can't be read ({self.code}{f': {self.why}' if self.why else ''}): either it wasn't "
            f"written with this instance's ARN in its tag {INSTANCE_TAG}, or the instance's role doesn't allow "
            f"ssm:GetParameter where that tag is the instance's own ARN"
        )


class SecretUnreadable(FleetError):
    """What the parameter holds isn't a JSON object of texts: something else wrote it."""

    parameter: str

    def message(self) -> str:
        """One line, without what was found."""
        return f"parameter {self.parameter} doesn't hold a JSON object of names and texts: something else wrote it"


def check_secret_size(values: Mapping[str, str]) -> None:
    """SecretsTooLarge: these secrets don't fit in one parameter. Called before anything is created."""
    size = len(_document(values).encode())
    if size > STANDARD_BYTES:
        largest, largest_size = max(
            ((name, len(value.encode())) for name, value in values.items()), key=lambda of: of[1]
        )
        raise SecretsTooLarge(size=size, largest=largest, largest_size=largest_size)


class Parameters:
    """The parameters of one account and region. Every method raises AwsRefused where SSM refuses or doesn't answer.

    Share one among the threads of a run: its writes go one at a time, so that a throttled one slows them all.
    """

    def __init__(
        self,
        aws: Aws,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.aws = aws
        self._clock = clock
        self._pause = pause
        self._jitter = jitter
        self._writing = threading.Lock()

    def put_secret(self, name: str, values: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Write `values` as the SecureString `name`, with `tags` from its first moment, in place of what was there.

        Throttled: SSM was too busy for WRITE_SECONDS. SecretsTooLarge: nothing was written.
        """
        check_secret_size(values)
        document = _document(values)
        labels: list[TagTypeDef] = [{"Key": key, "Value": value} for key, value in tags.items()]
        with self._writing:
            for give_up in self._tries():
                refusal = self._put(name, document, labels)
                if refusal is not None and refusal.code == "ParameterAlreadyExists":
                    # Left by an earlier try: SSM takes no new tags along with a new value.
                    self.delete([name])
                    refusal = self._put(name, document, labels)
                if refusal is None:
                    return
                if give_up or not isinstance(refusal, Throttled):
                    raise refusal

    def get_secret(self, name: str) -> dict[str, str]:
        """The values in the SecureString `name`.

        ParameterNotReady: ask again until a deadline. SecretUnreadable: it holds something else.
        """
        try:
            with calling("ssm", name):
                ssm = self.aws.ssm  # first: making a client imports what is to be silent
                with botocore_silent():
                    text = ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
        except AwsRefused as refusal:
            if refusal.code in NOT_READY:
                raise ParameterNotReady(parameter=name, code=refusal.code, why=refusal.why) from refusal
            raise
        values = _values(text)
        if values is None:
            raise SecretUnreadable(parameter=name)
        return values

    def delete(self, names: Sequence[str]) -> None:
        """Delete these parameters; absent ones are success."""
        for start in range(0, len(names), NAMES_A_CALL):
            some = list(names[start : start + NAMES_A_CALL])
            with calling("ssm", ", ".join(some)):
                self.aws.ssm.delete_parameters(Names=some)

    def find(self, path: str) -> list[str]:
        """The names of all parameters below `path`, at any depth; no value is read."""
        with calling("ssm", f"{path}/*"):
            pages = self.aws.ssm.get_paginator("describe_parameters").paginate(
                ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": [path]}],
                PaginationConfig={"PageSize": 50},
            )
            return [found["Name"] for page in pages for found in page["Parameters"]]

    def _put(self, name: str, document: str, labels: list[TagTypeDef]) -> AwsRefused | None:
        """Write once; the refusal, if SSM refuses. Raised here it would carry SSM's own error, which may hold the value."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            ssm = self.aws.ssm
            with botocore_silent():
                ssm.put_parameter(Name=name, Value=document, Type="SecureString", Tier="Standard", Tags=labels)
        except ClientError as error:
            quotable = code_of(error) in QUOTABLE
            return refused(
                error, service="ssm", target=name, why=None if quotable else "(SSM's words may repeat the value)"
            )
        except BotoCoreError as error:
            return refused(error, service="ssm", target=name)
        return None

    def _tries(self) -> Iterator[bool]:
        """One item a try, waiting longer and longer between them; True when it is the last."""
        deadline = self._clock() + WRITE_SECONDS
        longest = 0.5
        while self._clock() < deadline:
            yield False
            self._pause(longest * (0.5 + self._jitter() / 2))
            longest = min(2 * longest, LONGEST_WAIT)
        yield True


def _document(values: Mapping[str, str]) -> str:
    return json.dumps(dict(values), ensure_ascii=False, separators=(",", ":"))


def _values(text: str) -> dict[str, str] | None:
    try:
        found = json.loads(text)
    except ValueError:  # it carries the text along, so it mustn't become a cause
        return None
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    return None
