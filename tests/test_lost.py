"""What whole runs are judged by must itself be able to say that something is lost."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from tests.archives import zip_of
from tests.cloud import CloudUnderTest
from tests.lost import lost_samples

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOBS, MERGED = "inspect-fleet/evals/e-1/jobs/", "inspect-fleet/evals/e-1/merged/"


class FakeBucket:
    """As much of S3 as is asked: keys with their times, and contents."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[bytes, datetime]] = {}

    def put(self, key: str, *samples: str, minute: int) -> None:
        log = zip_of(dict.fromkeys(("header.json", *(f"samples/{sample}.json" for sample in samples)), "{}"))
        self.stored[key] = (log, NOON + timedelta(minutes=minute))

    def get_paginator(self, _: str) -> Any:
        return self

    def paginate(self, **_: str) -> Iterator[dict[str, Any]]:
        yield {"Contents": [{"Key": key, "LastModified": when} for key, (_, when) in self.stored.items()]}

    def get_object(self, *, Key: str, **_: str) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        return {"Body": io.BytesIO(self.stored[Key][0])}

    def lost(self) -> list[str]:
        return lost_samples(cast("CloudUnderTest", SimpleNamespace(aws=lambda _: self)), NOON)


def test_a_finished_sample_that_the_merged_log_lacks_is_lost() -> None:
    bucket = FakeBucket()
    bucket.put(f"{JOBS}0.eval", "1_epoch_1", "2_epoch_1", minute=1)
    bucket.put(f"{JOBS}1.eval", "1_epoch_2", minute=2)
    bucket.put(f"{MERGED}log.eval", "1_epoch_1", "1_epoch_2", minute=3)
    assert bucket.lost() == ["e-1: samples/2_epoch_1.json"]
    bucket.put(f"{MERGED}log.eval", "1_epoch_1", "1_epoch_2", "2_epoch_1", minute=3)
    assert bucket.lost() == []


def test_what_no_merge_could_have_seen_is_not_lost() -> None:
    """Results that came later, that can't be read, or of an eval that was merged before the test."""
    bucket = FakeBucket()
    bucket.put(f"{JOBS}0.eval", "1_epoch_1", minute=1)
    assert bucket.lost() == [], "nothing was merged: the results are kept"
    bucket.put(f"{MERGED}log.eval", "1_epoch_1", minute=2)
    bucket.put(f"{JOBS}1.eval", "2_epoch_1", minute=3)
    bucket.stored[f"{JOBS}2.eval"] = (b"cut short", NOON)
    assert bucket.lost() == []
    bucket.put(f"{MERGED}log.eval", minute=-1)
    bucket.put(f"{JOBS}1.eval", "2_epoch_1", minute=-2)
    assert bucket.lost() == []
