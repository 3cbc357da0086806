"""Documents are strict: version first, then fields, and an equal one comes back."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.evals.documents import (
    EvalManifest,
    JobFailure,
    JobMessage,
    JobResult,
    SampleRecord,
    WorkerEvent,
    WorkerOrder,
)
from fleet.evals.durations import DurationHistory
from fleet.evals.last import LastEval
from fleet.evals.lock import LockDocument
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.wire import DocumentRefused, Wire


class Letter(Wire):
    """A document of these tests, in its second version."""

    VERSION: ClassVar[int | None] = 2

    version: Literal[2] = 2
    text: str
    weight: float = 0.0


@given(text=st.text(), weight=st.floats(allow_nan=False))
def test_what_is_written_reads_back_equal(text: str, weight: float) -> None:
    letter = Letter(text=text, weight=weight)
    assert Letter.read(letter.write()) == letter


def test_a_nan_survives() -> None:
    """NaN is a score like any other."""
    assert math.isnan(Letter.read(Letter(text="", weight=math.nan).write()).weight)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("not json", "not JSON"),
        ("[1]", "a JSON list, not an object"),
        ('{"text": "a"}', "version is None"),
        ('{"version": 1, "text": "a"}', "version is 1, this release reads 2: upgrade what wrote it"),
        ('{"version": 3, "wholly": "new"}', "version is 3, this release reads 2: upgrade this side"),
        ('{"version": true, "text": "a"}', "version is True"),
        ('{"version": 2.0, "text": "a"}', "version is 2.0"),
        ('{"version": 2, "text": "a", "txet": "b"}', "txet: extra inputs"),
        ('{"version": 2}', "text: field required"),
    ],
)
def test_a_wrong_document_is_refused_with_its_reason(document: str, why: str) -> None:
    with pytest.raises(DocumentRefused, match=why):
        Letter.read(document)


def test_a_refusal_shows_no_value() -> None:
    """Values may be secret."""
    with pytest.raises(DocumentRefused) as refusal:
        Letter.read('{"version": 2, "text": 1, "weight": "sk-very-secret"}')
    assert "sk-very-secret" not in str(refusal.value)


GOLDEN = {
    EvalRequest: {
        1: {
            "version", "tasks", "models", "solver", "eval_config", "generate_config", "packages", "python", "source",
            "settings", "secrets", "model_cost_config", "samples_per_job", "tags", "metadata", "log_dir",
        }
    },
    EvalManifest: {
        1: {
            "version", "eval_id", "task", "model", "solver", "eval_config", "generate_config", "tags", "metadata",
            "environment", "needs_docker", "sample_ids", "epochs", "jobs", "log_name", "identity",
        }
    },
    JobMessage: {
        1: {"version", "eval_id", "job", "failures"},
        2: {"version", "eval_id", "job", "failures", "deaths", "holder", "leave_until"},
    },
    JobResult: {
        1: {
            "version", "eval_id", "job", "samples", "started_at", "completed_at", "model_usage", "role_usage", "instance",
            "seconds",
        }
    },
    JobFailure: {
        1: {"version", "eval_id", "job", "attempt", "final", "kind", "why", "instance", "at"},
        2: {"version", "eval_id", "job", "attempt", "final", "kind", "why", "instance", "at", "worker", "log"},
    },
    LastEval: {1: {"version", "eval_id", "identity", "at"}},
    DurationHistory: {1: {"version", "seconds", "slots"}},
    LockDocument: {
        1: {"version", "run", "owner", "since", "expires"},
        2: {"version", "run", "owner", "since", "expires", "process", "earlier"},
    },
    WorkerOrder: {
        1: {
            "version", "run", "region", "bucket", "prefix", "eval_ids", "environment", "work_queue", "events_queue",
            "secrets_parameter", "setting_values", "needs_docker", "registry", "concurrency", "fleet_size", "lease_seconds",
            "idle_seconds", "worker_user", "worker_setup", "rates", "log_level",
        },
        2: {
            "version", "run", "region", "bucket", "prefix", "eval_ids", "environment", "work_queue", "events_queue",
            "secrets_parameter", "setting_values", "needs_docker", "registry", "concurrency", "fleet_size", "first_slots",
            "lease_seconds", "idle_seconds", "worker_user", "worker_setup", "rates", "log_level",
        },
    },
    WorkerEvent: {1: {"version", "kind", "worker", "instance", "at", "eval_id", "job", "detail"}},
    RunReport: {1: {"version", "run", "outcome", "why", "evals", "instances", "seconds", "cost", "left"}},
}  # fmt: skip


@pytest.mark.parametrize("document", GOLDEN, ids=lambda document: document.__name__)
def test_the_fields_are_those_of_the_version(document: type[Wire]) -> None:
    """A released row is never edited: a changed document is the next version, with a row of its own."""
    versions = GOLDEN[document]
    assert max(versions) == document.VERSION
    assert set(document.model_fields) == versions[max(versions)]


@pytest.mark.parametrize("document", GOLDEN, ids=lambda document: document.__name__)
def test_an_older_document_reads_as_one_of_this_version(document: type[Wire]) -> None:
    """What lies in a bucket from an earlier release stays readable: what it lacks has a default."""
    assert GOLDEN[document].keys() - {document.VERSION} == document.READS_TOO
    for version in document.READS_TOO:
        fields = GOLDEN[document][version]
        needed = {name for name, field in document.model_fields.items() if field.is_required()}
        assert needed <= fields <= set(document.model_fields)


def test_a_failure_that_an_earlier_release_recorded_is_read() -> None:
    old = '{"version":1,"eval_id":"e","job":"j","attempt":1,"final":true,"kind":"K","why":"w","instance":"i-1","at":"now"}'
    read = JobFailure.read(old)
    assert (read.version, read.kind, read.worker, read.log) == (2, "K", "", "")
    with pytest.raises(DocumentRefused, match="version is 3"):
        JobFailure.read(old.replace('"version":1', '"version":3'))


JOBS = '[{"job":"000000-5ab3c0de","samples":[{"id":1,"epoch":1,"digest":"aa"},{"id":"1","epoch":2,"digest":"bb"}],"whole":false}]'
"""As the first release wrote them."""


def a_manifest(jobs: str) -> str:
    """The text of a manifest with these jobs."""
    return (
        '{"version":1,"eval_id":"e","task":{"name":"t","args":{},"sample_ids":[]},"model":{"name":"m/a","args":{},"base_url":null,"roles":{}},'
        '"solver":null,"eval_config":{},"generate_config":{},"tags":[],"metadata":{},"environment":{"python":"3.11","lock":"",'
        '"source":null,"installable":false,"settings":[]},"needs_docker":false,"sample_ids":[1,"1"],"epochs":2,"jobs":'
        + jobs
        + ',"log_name":"l.eval","identity":{}}'
    )


def test_a_manifests_jobs_are_read_and_written_as_released() -> None:
    manifest = EvalManifest.read(a_manifest(JOBS))
    (job,) = manifest.jobs
    assert [(ref.id, ref.epoch, ref.digest) for ref in job.samples] == [(1, 1, "aa"), ("1", 2, "bb")]
    assert manifest.write() == a_manifest(JOBS)


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        ('"whole":false', '"whole":false,"whloe":true', "jobs.0.whloe: unexpected"),
        ('"digest":"aa"', '"digest":"aa","seed":1', "jobs.0.samples.0.seed: unexpected"),
        (',"digest":"aa"', "", "jobs.0.samples.0.digest: field required"),
        ('"epoch":1', '"epoch":0', "jobs.0.samples.0.epoch: input should be greater"),
    ],
)
def test_a_manifest_with_a_wrong_job_is_refused(right: str, wrong: str, why: str) -> None:
    """As strict as a document's own fields, though a job is no model."""
    with pytest.raises(DocumentRefused, match=why):
        EvalManifest.read(a_manifest(JOBS.replace(right, wrong)))


@given(
    st.lists(
        st.builds(
            SampleRecord,
            id=st.one_of(st.integers(), st.text(min_size=1)),
            epoch=st.integers(1, 9),
            scores=st.none() | st.dictionaries(st.text(), st.dictionaries(st.text(), st.integers() | st.text())),
        ),
        max_size=4,
    )
)
def test_a_result_keeps_ids_as_they_are(samples: list[SampleRecord]) -> None:
    """1 and "1" are different samples."""
    result = JobResult(eval_id="e", job="j", samples=samples, started_at="", completed_at="")
    again = JobResult.read(result.write())
    assert [(type(one.id), one.id) for one in again.samples] == [(type(one.id), one.id) for one in samples]
