"""Who is calling AWS: named on everything that a run creates, so that people can ask each other before they delete."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.aws.failures import calling
from fleet.aws.session import Aws

LONGEST_TAG = 256
"""Characters in a tag's value, by every service that we tag in."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity that AWS sees."""

    account: str
    """The account's number."""
    arn: str
    name: str
    """The IAM user's or the session's name (with SSO, the person's), fit to be a tag's value."""

    @property
    def partition(self) -> str:
        """The part of AWS that the account belongs to: `aws`, `aws-us-gov`, `aws-cn`."""
        return self.arn.split(":")[1]

    def instance_arn(self, region: str, instance: str) -> str:
        """The ARN of an instance of this account."""
        return f"arn:{self.partition}:ec2:{region}:{self.account}:instance/{instance}"


def caller(aws: Aws) -> Caller:
    """Who this process is to AWS. AwsRefused: no identity, or one that AWS doesn't take; no permission is needed."""
    with calling("sts"):
        identity = aws.sts.get_caller_identity()
    return Caller(account=identity["Account"], arn=identity["Arn"], name=name_in(identity["Arn"]))


def name_in(arn: str) -> str:
    """The last part of a caller's ARN, with what a tag can't hold replaced: session names may have commas."""
    name = re.split("[:/]", arn)[-1]
    return re.sub(r"[^\w.=+@-]", "-", name)[:LONGEST_TAG]
