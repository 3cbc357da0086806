"""The manifests of the evals at work, which say what a message's job is."""

from __future__ import annotations

from typing import Protocol

from bootstrap.clockwork import Clockwork
from fleet.errors import FleetError
from fleet.evals.documents import EvalId, EvalManifest, Job, JobId, JobMessage
from fleet.evals.layout import Layout


class JobUnknown(FleetError):
    """A message names a job that its manifest doesn't have."""

    eval_id: str
    job: str

    def message(self) -> str:
        """One line."""
        return f"the manifest of {self.eval_id} has no job {self.job}"


class ReadsObjects(Protocol):
    """What is needed of `fleet.aws.objects.Objects`."""

    def get(self, key: str) -> bytes:
        """The object's content."""
        ...


class Manifests:
    """The manifests of the evals at work, each read once."""

    def __init__(self, objects: ReadsObjects, layout: Layout, clockwork: Clockwork) -> None:
        self._objects = objects
        self._layout = layout
        self._clockwork = clockwork
        self._read: dict[str, tuple[EvalManifest, dict[JobId, Job]]] = {}

    async def job(self, message: JobMessage) -> tuple[EvalManifest, Job]:
        """The manifest and the job that a message means. JobUnknown, DocumentRefused, AwsRefused, ObjectAbsent."""
        manifest = await self.of(message.eval_id)
        job = self._read[message.eval_id][1].get(message.job)
        if job is None:
            raise JobUnknown(eval_id=message.eval_id, job=message.job)
        return manifest, job

    async def of(self, eval_id: EvalId) -> EvalManifest:
        """One eval's manifest. DocumentRefused, AwsRefused, ObjectAbsent."""
        if eval_id not in self._read:
            text = await self._clockwork.in_thread(self._objects.get, self._layout.manifest(eval_id))
            manifest = EvalManifest.read(text)
            self._read[eval_id] = manifest, {job.job: job for job in manifest.jobs}
        return self._read[eval_id][0]
