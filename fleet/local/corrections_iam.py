"""Instances as callers, with the policies of their roles; moto knows who they are and evaluates no condition on tags.

Each call of an instance passes here, so that a session is looked up once. A role's policies are read at each call: they change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.ssm.models import ssm_backends
from moto.sts.models import sts_backends

from fleet.local.corrections_ec2 import LOCK
from fleet.local.permission import Caller
from fleet.local.preset import ACCOUNT, REGION


@dataclass(frozen=True, slots=True)
class _Session:
    instance: str
    region: str
    role: Any
    """moto's; None: it was deleted."""


_sessions: dict[str, _Session | None] = {}


def caller_of(access_key: str) -> Caller | None:
    """The instance whose role's credentials these are: a session named by an instance id. None: anyone else's."""
    if access_key not in _sessions:
        with LOCK:
            _sessions[access_key] = _session(access_key)
    session = _sessions[access_key]
    if session is None:
        return None
    role = session.role
    documents = () if role is None else (*list(role.policies.values()), *_attached(role))
    return Caller(session.instance, session.region, role.name if role else "deleted", documents)


def _attached(role: Any) -> Iterable[str]:
    return [
        version.document
        for policy in list(role.managed_policies.values())
        for version in policy.versions
        if version.version_id == policy.default_version_id
    ]


def _session(access_key: str) -> _Session | None:
    found = sts_backends[ACCOUNT]["aws"].get_assumed_role_from_access_key(access_key) if access_key else None
    if found is None or not found.session_name.startswith("i-"):
        return None
    try:
        role = iam_backends[ACCOUNT]["aws"].get_role_by_arn(found.role_arn)
    except NotFoundException:
        role = None
    return _Session(found.session_name, _region_of(found.session_name), role)


def _region_of(instance: str) -> str:
    for region, backend in list(ec2_backends[ACCOUNT].items()):
        with contextlib.suppress(EC2ClientError):
            backend.get_instance(instance)
            return str(region)
    return REGION


def tags_of(region: str, service: str, name: str) -> Mapping[str, str]:
    """The tags of a parameter (`ssm`) or of what EC2 has (`ec2`); empty: none, or no such resource."""
    with LOCK:
        if service == "ec2":
            tags = ec2_backends[ACCOUNT][region].tags.get(name, {})
            return {str(key): str(value) for key, value in tags.items()}
        backend = ssm_backends[ACCOUNT][region]
        if backend.get_parameter(name) is None:
            return {}
        found: dict[str, str] = backend.list_tags_for_resource("Parameter", name)
        return found
