"""What the controller's benchmark is given is what a runner would leave."""

from __future__ import annotations

import json
from pathlib import Path

from fleet.evals.documents import Job, SampleRef
from fleet.evals.job_log import open_job_log
from tests.archives import zip_of
from tests.bench.edge import Template, sample_name


def test_each_result_is_whole_and_its_own_jobs(tmp_path: Path) -> None:
    members = {
        "start": "{}",
        "header": '{"version": 2, "status": "success"}',
        "sample": json.dumps({"id": "s0", "scores": None, "epoch": 1}),
        "summary": json.dumps({"id": "s0", "epoch": 1}),
    }
    (tmp_path / "members").write_bytes(zip_of(members))
    template = Template("e", tmp_path / "members")
    for job in ("000000-00000000", "099999-deadbeef"):
        path = tmp_path / f"{job}.eval"
        path.write_bytes(template.result(job))
        ref = SampleRef(id=sample_name(job), epoch=1, digest="")
        with open_job_log(path, "e", {job: Job(job=job, samples=[ref])}) as log:
            assert log.result.job == job
            assert json.loads(log.file.read(f"samples/{ref.id}_epoch_1.json"))["id"] == ref.id
