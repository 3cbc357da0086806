"""Parameters that every worker of an account may read, such as a registry's token: plain text, kept by the account's owner."""

from __future__ import annotations

from fleet.aws.failures import calling
from fleet.aws.session import Aws
from fleet.aws.silence import botocore_silent


def shared_text(aws: Aws, name: str) -> str:
    """What the parameter `name` holds, decrypted where it is a SecureString. AwsRefused.

    botocore's debug log is off meanwhile: it would show the value.
    """
    with calling("ssm", name):
        ssm = aws.ssm  # first: making a client imports what is to be silent
        with botocore_silent():
            return str(ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
