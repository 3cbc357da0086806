"""The end of an instance's boot log: what it said last, for the flow run's log when the instance is gone."""

from __future__ import annotations

from fleet.aws.failures import AwsRefused, calling
from fleet.aws.objects import bucket_and_key
from fleet.aws.session import Aws

TAIL_BYTES = 8_192
TAIL_LINES = 40


def tail(aws: Aws, log_folder: str | None, instance_id: str) -> str | None:
    """The last lines of `<log folder>/<instance id>/boot.log`; None where there is none to be had. Blocking."""
    if not log_folder:
        return None
    bucket, folder = bucket_and_key(log_folder)
    key = f"{folder}/{instance_id}/boot.log"
    try:
        with calling("s3", f"s3://{bucket}/{key}"):
            found = aws.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes=-{TAIL_BYTES}")
            text = found["Body"].read().decode(errors="replace")
    except AwsRefused:
        return None  # never sent, an empty object, no permission: the log is a help, not a need
    lines = text.splitlines()
    whole = found["ContentLength"] < TAIL_BYTES
    return "\n".join((lines if whole else lines[1:])[-TAIL_LINES:]).strip() or None
