"""How a job crashes, and how AWS refuses. No test in here."""

from __future__ import annotations

from bootstrap.runners import JobCrashed
from fleet.aws.failures import Denied, Throttled


def crash(kind: str, why: str = "boom") -> JobCrashed:
    return JobCrashed(kind=kind, why=why)


def refusal(kind: type[Throttled] | type[Denied], code: str) -> Throttled | Denied:
    return kind(service="s3", operation="PutObject", code=code, target="s3://bucket/key", why="")
