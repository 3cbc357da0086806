"""The options of `fleet run` as a request and a fleet's configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleet.cli.arguments import ArgumentRefused, pairs
from fleet.cli.run import RequestInvalid, config_from, request_from, without_effect
from fleet.cli.run import run as command
from fleet.evals.settings import SettingRefused


def options(**changes: Any) -> dict[str, Any]:
    """What click hands over for `fleet run a/b --model m/n`, with changes."""
    plain = dict.fromkeys(
        ("task_args", "model_args", "model_roles", "eval_args", "generate_args", "packages", "settings", "secrets"), ()
    )
    return {
        **plain,
        "tasks": ("a/b",),
        "models": ("m/n",),
        "solver": None,
        "python": None,
        "source": None,
        "model_cost_config": None,
        "samples_per_job": None,
        "tags": (),
        "metadata": (),
        "log_dir": "logs",
        "hawk": "default",
        **changes,
    }


def test_values_are_read_as_inspect_reads_them() -> None:
    assert pairs("-T", ["n=3", "x=0.5", "flag=true", "names=[a, b]", "text=a=b", "empty="]) == {
        "n": 3,
        "x": 0.5,
        "flag": True,
        "names": ["a", "b"],
        "text": "a=b",
        "empty": "",
    }


@pytest.mark.parametrize("text", ["novalue", "=3", "x={"])
def test_what_is_no_pair_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ArgumentRefused, match="--eval-arg"):
        pairs("--eval-arg", [text])


def test_options_make_a_request(tmp_path: Path) -> None:
    request = request_from(
        options(
            tasks=("a/b", "c.py@d"),
            task_args=("level=2",),
            model_args=("latency=0.5",),
            model_roles=("grader=m/grader",),
            eval_args=("epochs=2",),
            source=str(tmp_path),
            log_dir="s3://bucket/logs",
        )
    )
    assert [task.name for task in request.tasks] == ["a/b", "c.py@d"]
    assert request.tasks[1].args == {"level": 2}
    assert request.models[0].roles == {"grader": "m/grader"}
    assert request.eval_config == {"epochs": 2}
    assert request.source == str(tmp_path)
    assert request.log_dir == "s3://bucket/logs"


def test_settings_are_named_by_their_whole_path_sorted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = request_from(options(settings=("two/", "a/../one")))
    assert request.settings == [str(tmp_path / "one"), str(tmp_path / "two")]
    with pytest.raises(SettingRefused, match=r"b/one refused: .*/one is called one as well"):
        request_from(options(settings=("one", "b/one")))


def test_a_folder_for_logs_is_the_commands_not_the_flows() -> None:
    """The flow may run elsewhere in the tree, or on another machine."""
    log_dir = request_from(options()).log_dir
    assert log_dir is not None
    assert Path(log_dir).is_absolute()


def test_a_request_that_can_not_be_is_refused_in_one_line() -> None:
    with pytest.raises(RequestInvalid, match=r"python: .*pattern"):
        request_from(options(python="three"))


def test_a_local_fleet_is_small_and_free_unless_told_otherwise() -> None:
    config = config_from((), local_cloud=True)
    assert (config.max_workers, config.concurrency_per_worker, config.auto_confirm) == (2, 2, True)
    assert config_from(("max_workers=3",), local_cloud=True).max_workers == 3
    assert config_from((), local_cloud=False).max_workers == 24


def test_an_unknown_fleet_option_is_refused_by_name() -> None:
    with pytest.raises(ArgumentRefused, match=r"spto: extra inputs") as refusal:
        config_from(("spto=true",), local_cloud=False)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("backend", "useless"),
    [
        ("local", ["--ec2-arg", "--local-cloud", "--worker-secrets", "--hawk"]),
        ("hawk", ["--local-cloud"]),
        ("fleet", ["--hawk"]),
    ],
)
def test_options_that_a_place_has_no_use_for_are_told_apart(backend: str, useless: list[str]) -> None:
    """They are named in a warning: a command is often tried elsewhere first, with all its options."""
    plain = options(ec2_args=(), worker_secrets=None)
    assert without_effect(backend, plain, local_cloud=False) == []
    given = {**plain, "ec2_args": ("spot=true",), "worker_secrets": "keys", "hawk": "staging"}
    assert without_effect(backend, given, local_cloud=True) == useless


@pytest.mark.parametrize("arguments", [[], ["a/b"], ["a/b", "--model", "m/n", "--backend", "moon"]])
def test_usage_errors_end_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("silent", "ends_at_once"), [("farewell.silent.set()", True), ("pass", False)])
def test_an_interrupted_run_whose_prefect_server_is_away_does_not_wait_for_it(silent: str, ends_at_once: bool) -> None:
    """Prefect's own threads would go on for more than a minute when the process ends."""
    child = (
        "import atexit; from fleet.backends import farewell; from fleet.cli.run import leaving_at_once\n"
        f"atexit.register(print, 'at exit'); {silent}\n"
        "with leaving_at_once(): raise KeyboardInterrupt"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=False)
    assert ("at exit" not in done.stdout) is ends_at_once
    if ends_at_once:
        assert (done.returncode, done.stderr) == (130, "interrupted\n")
