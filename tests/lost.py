"""Finished samples that a merged log lacks: what an eval must never lose, whatever befell its run."""

from __future__ import annotations

import io
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from fleet.local import preset
from tests.cloud import CloudUnderTest

OBJECT = re.compile(r"/evals/(?P<eval>[^/]+)/(?P<kind>jobs|merged)/[^/]+\.eval$")


@dataclass(slots=True)
class Logs:
    """An eval's results and merged logs: keys, with when each was written."""

    jobs: dict[str, datetime] = field(default_factory=dict)
    merged: dict[str, datetime] = field(default_factory=dict)


def lost_samples(cloud: CloudUnderTest, since: datetime) -> list[str]:
    """Samples of results that lay in the bucket when a log was merged after `since`, and aren't in it."""
    found: dict[str, Logs] = defaultdict(Logs)
    for page in cloud.aws("s3").get_paginator("list_objects_v2").paginate(Bucket=preset.BUCKET):
        for entry in page.get("Contents", []):
            if match := OBJECT.search(entry["Key"]):
                getattr(found[match["eval"]], match["kind"])[entry["Key"]] = entry["LastModified"]
    lost = []
    for eval_id, logs in found.items():
        if not logs.merged or (written := max(logs.merged.values())) < since:
            continue
        (last, *_) = (key for key, when in logs.merged.items() if when == written)
        finished = set().union(*(samples(cloud, key) for key, when in logs.jobs.items() if when < written))
        lost += [f"{eval_id}: {name}" for name in sorted(finished - samples(cloud, last))]
    return lost


def samples(cloud: CloudUnderTest, key: str) -> set[str]:
    """The members of a log that are samples; none, where it is no whole log."""
    content = cloud.aws("s3").get_object(Bucket=preset.BUCKET, Key=key)["Body"].read()
    try:
        return {name for name in zipfile.ZipFile(io.BytesIO(content)).namelist() if name.startswith("samples/")}
    except zipfile.BadZipFile:
        return set()
