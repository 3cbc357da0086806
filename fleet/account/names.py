"""The names of an account's resources: what the template creates, and what everything else asks for.

Constants only. The local cloud's account has the same names, so that the product finds them by the same defaults.
"""

from __future__ import annotations

STACK = "inspect-fleet"
"""The CloudFormation stack, unless a person names it otherwise."""
ROLE = "inspect-fleet-worker"
PROFILE = "inspect-fleet-worker"
SECURITY_GROUP = "inspect-fleet-worker"
"""Name of a group that lets nothing in."""
CONTROLLER_POLICY = "inspect-fleet-controller"
LAUNCHER_POLICY = "inspect-fleet-launcher"
IMAGE_POLICY = "inspect-fleet-image"
PREFIX = "inspect-fleet"
"""Prefix of every key in the bucket."""
IMAGE_PARAMETER = "/inspect-fleet/worker-image"
"""The SSM parameter that names the worker image. Written by whoever builds one, not by the template: a stack that owned it
would set it back at each update."""


def bucket(account: str, region: str) -> str:
    """The name of an account's bucket, unless a person names it otherwise."""
    return f"inspect-fleet-{account}-{region}"
