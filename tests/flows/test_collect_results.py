from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bootstrap.environment import JobEnvironment
from bootstrap.recompute import Recompute, RecomputeFailed
from fleet.aws.failures import Throttled
from fleet.evals.documents import EnvironmentSpec, SettingSpec
from fleet.evals.merge import MergeReport
from fleet.evals.secrets import RunSecrets
from fleet.evals.settings import FOLDER
from fleet.evals.site import Site
from flows import collect_results
from flows.collect_results import collected, delivered, having, merge_eval

SECRETS = RunSecrets({"KEY": "sk-1"}, {"linux": "L=1\n"})
UNMEASURED = MergeReport(
    path=Path("a.eval"),
    status="error",
    error="KeyError: 'L'",
    planned=1,
    samples=1,
    sample_errors=0,
    cancelled=0,
    duplicates=0,
    absent=(),
    unusable=(),
    results=None,
    stats={},
)
"""Of a log with every sample and no metrics."""


@pytest.fixture
def environment(tmp_path: Path) -> JobEnvironment:
    source = tmp_path / "source"
    (source / FOLDER / "linux").mkdir(parents=True)
    setting = SettingSpec(name="linux", files="0", git="0", commit="0", package=False, plugin=True)
    return JobEnvironment(
        spec=EnvironmentSpec(python="3.11", lock="", source="0", settings=[setting]),
        python=tmp_path / "venv" / "bin" / "python",
        source=source,
    )


def files(environment: JobEnvironment) -> dict[str, str]:
    folder = environment.working_folder / FOLDER
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


class Merging:
    """Stands in for `merge`: notes what a process of the job environment would find, and fails."""

    def __init__(self, environment: JobEnvironment) -> None:
        self.environment = environment
        self.files: dict[str, str] = {}
        self.variables: Mapping[str, str] = {}
        self.shown = ""

    def __call__(self, *_: Any, recompute: Recompute, **__: Any) -> None:
        self.files = files(self.environment)
        self.variables = recompute.env or {}
        self.shown = repr(recompute)
        raise RecomputeFailed(why="as the test wants it", lacked=recompute.lacked)


@pytest.fixture
def merging(environment: JobEnvironment, monkeypatch: pytest.MonkeyPatch) -> Merging:
    made = Merging(environment)
    manifest = SimpleNamespace(
        jobs=[],
        environment=environment.spec,
        log_name="a.eval",
        task=SimpleNamespace(name="t"),
        model=SimpleNamespace(name="m"),
    )
    reads = SimpleNamespace(read=lambda key: SimpleNamespace(**vars(manifest), eval_id=key))
    monkeypatch.setattr(collect_results, "EvalManifest", reads)
    monkeypatch.setattr(collect_results, "finished_jobs", lambda *_: set())
    monkeypatch.setattr(collect_results, "failed_jobs", lambda *_: {})
    monkeypatch.setattr(collect_results, "build", lambda *_, **__: environment)
    monkeypatch.setattr(collect_results, "merge", made)
    monkeypatch.setattr(collect_results, "store_log", collect_results.store_log.fn)
    return made


def a_site() -> Site:
    names = SimpleNamespace(
        manifest=str, plan=str, result=str, merged=lambda *_: "merged", results=lambda eval_id: f"results of {eval_id}"
    )
    objects = SimpleNamespace(
        get=lambda key: key, download=lambda key, path: path.write_text(key), put=lambda *_: None, uri=str
    )
    return cast("Site", SimpleNamespace(objects=objects, layout=names))


def merge_an_eval() -> str:
    """What is said of the metrics that can't be computed."""
    with pytest.raises(RecomputeFailed) as failed:
        merge_eval.fn(a_site(), "eval", None)
    return str(failed.value)


def test_a_plugin_finds_its_settings_values_and_the_keys_also_where_the_metrics_are_computed(
    merging: Merging, environment: JobEnvironment
) -> None:
    with having(SECRETS):
        assert merge_an_eval().endswith(": as the test wants it")
    assert merging.files == {"linux.env": "L=1\n"}
    assert merging.variables == {**os.environ, "KEY": "sk-1"}
    assert "sk-1" not in merging.shown
    assert files(environment) == {}


def test_a_run_that_collects_reads_no_manifest_again(merging: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = collect_results
    manifest = module.EvalManifest.read("eval")
    monkeypatch.setattr(collect_results, "EvalManifest", None)
    with having(SECRETS, manifests=[manifest]):
        assert merge_an_eval().endswith(": as the test wants it")


@pytest.mark.fault("collect-by-hand")
def test_who_collects_by_hand_has_but_their_own_environment(merging: Merging) -> None:
    with having(SECRETS):
        pass
    said = merge_an_eval()
    assert "lacks the values of the settings (linux.env, which lie beside the checkouts" in said
    assert "the run's secrets" in said
    assert "Start the same request again" in said
    assert merging.files == {}
    assert merging.variables == dict(os.environ)


@pytest.mark.fault("collect-by-hand")
def test_a_run_without_secrets_lacks_nothing_when_it_collects(merging: Merging) -> None:
    with having(RunSecrets()):
        assert merge_an_eval().endswith(": as the test wants it")


@pytest.mark.parametrize(("by_hand", "said"), [(True, "KeyError: 'L'; The reason may be"), (False, "KeyError: 'L'")])
def test_a_log_that_has_what_a_plugin_raised_for_want_of_its_values_says_what_helps(
    by_hand: bool, said: str, merging: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge itself goes well then: the log's error is the plugin's."""
    monkeypatch.setattr(collect_results, "merge", lambda *_, **__: UNMEASURED)
    monkeypatch.setattr(collect_results, "get_run_logger", lambda: logging.getLogger("test"))
    with nullcontext() if by_hand else having(SECRETS):
        why = merge_eval.fn(a_site(), "eval", None).why
    assert why.startswith(said)
    assert ("linux.env" in why) is by_hand


@pytest.mark.fault("eval-unmerged")
def test_one_eval_that_cannot_be_merged_is_named_and_the_others_are_delivered(
    merging: Merging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its results stay in the bucket, where the same request, or this flow again, finds them."""

    def merge(_: Any, plan_log: Path, __: Any, path: Path, **___: Any) -> MergeReport:
        if plan_log.read_text() == "bad":
            raise RecomputeFailed(why="as the test wants it", lacked="")
        path.write_bytes(b"a log")
        return dataclasses.replace(UNMEASURED, path=path, error="", status="success")

    monkeypatch.setattr(collect_results, "merge", merge)
    monkeypatch.setattr(collect_results, "tally_of", lambda _: SimpleNamespace(samples=3))
    monkeypatch.setattr(collect_results, "get_run_logger", lambda: logging.getLogger("collect"))
    monkeypatch.setattr(collect_results, "merge_eval", SimpleNamespace(with_options=lambda **_: merge_eval.fn))
    site = a_site()
    logs = tmp_path / "logs"
    with having(SECRETS):
        bad, good = (collected(site, eval_id, str(logs)) for eval_id in ("bad", "good"))
    assert (bad.status, bad.log, bad.stored, bad.missing) == ("error", "", "results of bad", 3)
    assert bad.why.startswith("its results are kept, and could not be merged: ")
    assert "as the test wants it" in bad.why
    assert (good.status, good.why, Path(good.log).read_bytes()) == ("success", "", b"a log")
    assert len(list(logs.iterdir())) == 1


@pytest.mark.fault("eval-unmerged")
def test_a_log_that_cannot_be_delivered_stays_in_the_bucket_and_says_so(tmp_path: Path) -> None:
    merged = tmp_path / "a.eval"
    merged.write_bytes(b"a log")
    (tmp_path / "taken").write_text("a file where the folder should be")
    log, why = delivered(merged, str(tmp_path / "taken"), "s3://b/merged")
    assert log == "s3://b/merged"
    assert why.startswith(f"the log could not be put into {tmp_path / 'taken'} and stays in the bucket: ")


@pytest.mark.fault("no-answer")
def test_a_log_that_cannot_be_stored_yet_is_not_merged_for_it_again_and_sets_nothing_aside(
    merging: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside is gone for the next merge, which would say less of it."""
    unusable: Any = SimpleNamespace(job="000000-0")
    monkeypatch.setattr(
        collect_results, "merge", lambda *_, **__: dataclasses.replace(UNMEASURED, unusable=(unusable,))
    )
    monkeypatch.setattr(collect_results, "get_run_logger", lambda: logging.getLogger("collect"))
    put_aside: list[str] = []
    monkeypatch.setattr(collect_results, "set_aside", lambda _site, _eval, job: put_aside.append(job))
    busy = Throttled(service="s3", operation="PutObject", code="SlowDown", target="merged", why="")

    def refuses(*_: object) -> None:
        raise busy

    monkeypatch.setattr(collect_results, "store_log", refuses)
    with having(SECRETS), pytest.raises(Throttled):
        merge_eval.fn(a_site(), "eval", None)
    assert put_aside == []
    monkeypatch.setattr(collect_results, "store_log", lambda *_: None)
    with having(SECRETS):
        merge_eval.fn(a_site(), "eval", None)
    assert put_aside == ["000000-0"]
