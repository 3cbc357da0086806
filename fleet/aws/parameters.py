"""Secrets on their way to one instance: a JSON object of names and values in one SecureString parameter.

The parameter's tags say who may read it, so they are there from its first moment: one PutParameter with tags and without
Overwrite, which SSM refuses together. No value leaves this file except as the result of `get_secret`: errors carry names and
sizes, SSM's own words only where they can't repeat the value, and botocore's debug log is off while a value passes through it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fleet.aws.batches import in_one, refused_of
from fleet.aws.failures import (
    BAD_CREDENTIALS,
    DENIED,
    PASSING,
    THROTTLED,
    AwsRefused,
    botocore_errors,
    calling,
    code_of,
    refused,
)
from fleet.aws.parameter_rules import Tier, document, tier_for, values_in
from fleet.aws.session import Aws
from fleet.aws.silence import botocore_silent
from fleet.aws.write_pace import WritePace
from fleet.errors import FleetError

if TYPE_CHECKING:
    from mypy_boto3_ssm.type_defs import TagTypeDef

NOT_READY = frozenset({"AccessDenied", "AccessDeniedException", "ParameterNotFound"})
"""A parameter that isn't written yet, or whose tag hasn't reached the policy: under a condition on tags, absent is denied too."""
QUOTABLE = THROTTLED | DENIED | BAD_CREDENTIALS | {"InvalidKeyId", "ParameterAlreadyExists", "ParameterLimitExceeded"}
"""Codes whose text can't repeat the value. A ValidationException's does."""

INSTANCE_TAG = "InstanceArn"
"""Tag of an instance's parameter: the one instance whose role may read it."""

NAMES_A_CALL = 10
"""Of DeleteParameters, SSM's limit."""
WRITE_SECONDS = 300.0
"""How long a write is tried again, from its first try on: a third of the time that an instance waits for it."""


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


class Parameters:
    """The parameters of one account and region. Methods raise AwsRefused where SSM refuses or doesn't answer, `try_delete` none.

    Share one among the threads of a run: their writes keep one pace, so that a throttled one slows them all.
    """

    def __init__(
        self,
        aws: Aws,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.aws = aws
        self._clock = clock
        self._pace = WritePace(clock=clock, pause=pause)

    def put_secret(
        self,
        name: str,
        values: Mapping[str, str],
        tags: Mapping[str, str],
        *,
        advanced: bool = False,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Write `values` as the SecureString `name`, with `tags` from its first moment, in place of what was there.

        `advanced` allows the tier that costs money, where the values don't fit into the other. `wanted` is asked before each
        try; once it says no, nothing more is tried and the answer is False: something may be there all the same.

        Throttled, Unreachable: SSM was too busy, or away, for WRITE_SECONDS. SecretsTooLarge: nothing was written.
        """
        tier = tier_for(values, advanced=advanced)
        text = document(values)
        labels: list[TagTypeDef] = [{"Key": key, "Value": value} for key, value in tags.items()]
        deadline: float | None = None
        while wanted():
            self._pace.turn()
            if not wanted():
                break
            if deadline is None:  # the wait for one's first turn is the run's, not this write's
                deadline = self._clock() + WRITE_SECONDS
            refusal = self._put(name, text, tier, labels)
            if refusal is not None and refusal.code == "ParameterAlreadyExists":
                # Left by an earlier try or run: SSM takes no new tags along with a new value.
                refusal = self._deleted(name) or refusal
            if refusal is None:
                self._pace.taken()
                return True
            if refusal.code in PASSING:
                self._pace.refused()
            elif refusal.code != "ParameterAlreadyExists":
                raise refusal
            if self._clock() >= deadline:
                raise refusal
        return False

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
        values = values_in(text)
        if values is None:
            raise SecretUnreadable(parameter=name)
        return values

    def delete(self, names: Sequence[str]) -> None:
        """Delete these parameters; absent ones are success. AwsRefused names those that are left; the others are gone."""
        if refusals := self.try_delete(names):
            raise in_one(refusals)

    def try_delete(self, names: Sequence[str]) -> Mapping[str, AwsRefused]:
        """Delete these parameters, as `delete` does; those that are left, each with SSM's refusal."""
        return refused_of(names, self._delete, at_once=NAMES_A_CALL)

    def find(self, path: str) -> list[str]:
        """The names of all parameters below `path`, at any depth; no value is read."""
        with calling("ssm", f"{path}/*"):
            pages = self.aws.ssm.get_paginator("describe_parameters").paginate(
                ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": [path]}],
                PaginationConfig={"PageSize": 50},
            )
            return [found["Name"] for page in pages for found in page["Parameters"]]

    def tagged(self, path: str, tag: str, value: str) -> dict[str, datetime.datetime]:
        """The parameters below `path` with this tag, by name, and when each was written; no value is read."""
        with calling("ssm", f"{path}/*"):
            pages = self.aws.ssm.get_paginator("describe_parameters").paginate(
                ParameterFilters=[
                    {"Key": "Path", "Option": "Recursive", "Values": [path]},
                    {"Key": f"tag:{tag}", "Values": [value]},
                ],
                PaginationConfig={"PageSize": 50},
            )
            return {found["Name"]: found["LastModifiedDate"] for page in pages for found in page["Parameters"]}

    def has(self, name: str, tag: str, value: str) -> bool:
        """Whether there is a parameter of this name with this tag; its value isn't read."""
        with calling("ssm", name):
            pages = self.aws.ssm.get_paginator("describe_parameters").paginate(
                ParameterFilters=[
                    {"Key": "Name", "Option": "Equals", "Values": [name]},
                    {"Key": f"tag:{tag}", "Values": [value]},
                ]
            )
            return any(page["Parameters"] for page in pages)  # a page may be empty, and the next one not

    def _delete(self, names: Sequence[str]) -> None:
        with calling("ssm", ", ".join(names)):
            self.aws.ssm.delete_parameters(Names=list(names))

    def _deleted(self, name: str) -> AwsRefused | None:
        """Delete one; the refusal, if SSM refuses."""
        try:
            self.delete([name])
        except AwsRefused as refusal:
            return refusal
        return None

    def _put(self, name: str, text: str, tier: Tier, labels: list[TagTypeDef]) -> AwsRefused | None:
        """Write once; the refusal, if SSM refuses. Raised here it would carry SSM's own error, which may hold the value."""
        from botocore.exceptions import ClientError

        try:
            ssm = self.aws.ssm_once
            with botocore_silent():
                ssm.put_parameter(Name=name, Value=text, Type="SecureString", Tier=tier, Tags=labels)
        except ClientError as error:
            quotable = code_of(error) in QUOTABLE
            return refused(
                error, service="ssm", target=name, why=None if quotable else "(SSM's words may repeat the value)"
            )
        except botocore_errors() as error:
            return refused(error, service="ssm", target=name)
        return None
