"""The edge of AWS for the controller's benchmark: S3 and SQS of one eval, as boto3's clients answer, without a network.

What lies here costs the measured process as little as may be: objects are files, results and events are made as they are asked for.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from botocore.exceptions import ClientError

from fleet.evals.documents import EvalManifest, JobResult, WorkerEvent
from fleet.evals.layout import Layout

PAGE = 1000
"""Keys that S3 lists in one answer."""
WORKERS = 24


class Body(io.BytesIO):
    """What a get answers."""

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        """As botocore's stream."""
        yield from iter(lambda: self.read(size), b"")


class Eval:
    """The results and events of one eval: job after job is started and done, on workers by turns."""

    def __init__(self, manifest: EvalManifest, layout: Layout, template: Path) -> None:
        self.id = manifest.eval_id
        self.jobs = [job.job for job in manifest.jobs]
        self.folder = layout.results(self.id)
        self.done = 0
        """Of the jobs, in their order: whose results lie in S3."""
        self.sent = 0
        self.heard = 0
        self._template = Template(self.id, template)

    def events(self) -> Iterator[str]:
        """What workers say, each job's result stored before they say it."""
        for number, job in enumerate(self.jobs):
            where = {"worker": f"worker-{number % WORKERS}", "instance": f"i-{number % WORKERS}", "at": float(number)}
            about = {"eval_id": self.id, "job": job}
            yield WorkerEvent(kind="job_started", **where, **about, detail={"failures": 0}).write()
            self.done = number + 1
            said = {"seconds": 1.0, "samples": 1, "errors": 0, "tokens": 5}
            yield WorkerEvent(kind="job_done", **where, **about, detail=said).write()

    def listed(self, start: int) -> list[dict[str, Any]]:
        """A page of the results there are."""
        jobs = self.jobs[start : min(start + PAGE, self.done)]
        return [{"Key": f"{self.folder}{job}.eval", "Size": 4_000, "ETag": f'"{hash(job):032x}"'} for job in jobs]

    def result(self, job: str) -> bytes:
        """A result as a runner leaves it, of one sample."""
        return self._template.result(job)


class Template:
    """The result of job 0, of which that of another job differs by the names of job and sample, all of one length."""

    JOB = f"{0:06}-{0:08x}"

    def __init__(self, eval_id: str, members: Path) -> None:
        with zipfile.ZipFile(members) as archive:
            found = {name: archive.read(name) for name in archive.namelist()}
        name = sample_name(self.JOB)
        sample = {**json.loads(found["sample"]), "id": name}
        record = {"id": name, "epoch": 1, "scores": sample["scores"], "metadata": {"n": 0, "kind": "a"}}
        stamp = "2025-01-01T00:00:00+00:00"
        usage = {"parrot/one": {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}}
        facts = {"eval_id": eval_id, "job": self.JOB, "started_at": stamp, "completed_at": stamp, "model_usage": usage}
        summary = [{**json.loads(found["summary"]), "id": name}]
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("_journal/start.json", found["start"])
            archive.writestr(f"samples/{name}_epoch_1.json", json.dumps(sample))
            archive.writestr("summaries.json", json.dumps(summary))
            archive.writestr("header.json", found["header"])
            archive.writestr(JobResult.MEMBER, JobResult.model_validate(facts | {"samples": [record]}).write())
            self._named = [info for info in archive.infolist() if info.filename not in FIXED]
        self._whole = file.getvalue()

    def result(self, job: str) -> bytes:
        """With the names of a job, and the checksums that follow."""
        made = self._whole.replace(self.JOB.encode(), job.encode())
        made = made.replace(sample_name(self.JOB).encode(), sample_name(job).encode())
        for info in self._named:
            start = info.header_offset + 30 + len(info.filename)
            sum_ = struct.pack("<L", zlib.crc32(made[start : start + info.file_size]))
            made = made.replace(struct.pack("<L", info.CRC), sum_)  # in its own header, and in the directory
        return made


FIXED = ("_journal/start.json", "header.json")


def sample_name(job: str) -> str:
    """The sample of a job."""
    return f"s{job.partition('-')[0]}"


class S3:
    """One bucket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of: Eval | None = None

    def put_object(self, *, Key: str, Body: Any, **_: Any) -> dict[str, str]:  # noqa: N803
        with (self.folder / quote(Key, safe="")).open("wb") as file:
            shutil.copyfileobj(Body if hasattr(Body, "read") else io.BytesIO(Body), file)
        return {"ETag": '"e"'}

    def upload_fileobj(self, body: Any, _: str, key: str) -> None:
        self.put_object(Key=key, Body=body)

    def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        if self.of and Key.startswith(self.of.folder):
            return {"Body": Body(self.of.result(Key.rsplit("/", 1)[1].removesuffix(".eval"))), "ETag": '"e"'}
        path = self.folder / quote(Key, safe="")
        if not path.exists():
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": Body(path.read_bytes()), "ETag": '"e"'}

    def get_paginator(self, _: str) -> Any:
        return SimpleNamespace(paginate=self._pages)

    def _pages(self, *, Prefix: str, **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        if self.of is None or self.of.folder != Prefix:
            yield {}
            return
        for start in range(0, max(self.of.done, 1), PAGE):
            yield {"Contents": self.of.listed(start)}


class Sqs:
    """A work queue that counts what is sent, and an events queue from which an eval's events come."""

    def __init__(self) -> None:
        self.of: Eval | None = None
        self._events: Iterator[str] = iter(())

    def begin(self, of: Eval) -> None:
        """From now on events come."""
        self.of, self._events = of, of.events()

    def create_queue(self, *, QueueName: str, **_: Any) -> dict[str, str]:  # noqa: N803
        return {"QueueUrl": QueueName}

    def get_queue_attributes(self, *, QueueUrl: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        return {"Attributes": {"QueueArn": QueueUrl}}

    def send_message_batch(self, *, Entries: Sequence[Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        if self.of:
            self.of.sent += len(Entries)
        return {"Successful": list(Entries)}

    def receive_message(self, *, MaxNumberOfMessages: int, **_: Any) -> dict[str, Any]:  # noqa: N803
        bodies = itertools.islice(self._events, MaxNumberOfMessages)
        attributes = {"ApproximateReceiveCount": "1"}
        return {"Messages": [{"Body": body, "ReceiptHandle": "r", "Attributes": attributes} for body in bodies]}

    def delete_message_batch(self, *, Entries: Sequence[Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        if self.of:
            self.of.heard += len(Entries)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}
