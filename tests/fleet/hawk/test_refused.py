from __future__ import annotations

import inspect

import inspect_ai
import pytest
from inspect_ai.log import EvalConfig
from inspect_ai.model import GenerateConfig

from blocks.ec2_config import Ec2Config
from fleet.hawk.refused import (
    DECLARED,
    FORWARDED,
    GENERATE,
    JOINED,
    NO_SETTINGS,
    OPTIONS_IDLE,
    OPTIONS_KEPT,
    OPTIONS_REFUSED,
    REFUSED,
    HawkRefused,
    config_problem,
    generate_problem,
    option_problems,
)
from tests.fleet.hawk.installed import ask

SURFACE = """
import ast, inspect, json
import inspect_ai
from hawk.core.types import EvalSetConfig
from hawk.runner import run_eval_set
from inspect_ai.log import EvalConfig
from inspect_ai.model import GenerateConfig
tree = ast.parse(inspect.getsource(run_eval_set.eval_set_from_config))
call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "eval_set")
print(json.dumps({
    "declared": sorted(EvalSetConfig.model_fields),
    "set": sorted(word.arg for word in call.keywords if word.arg),
    "eval_set": sorted(inspect.signature(inspect_ai.eval_set).parameters),
    "eval_config": sorted(EvalConfig.model_fields),
    "generate_config": sorted(GenerateConfig.model_fields),
}))
"""


def test_every_field_of_inspects_eval_config_is_in_one_table() -> None:
    tables = (DECLARED, FORWARDED, JOINED, frozenset(REFUSED))
    assert frozenset().union(*tables) == frozenset(EvalConfig.model_fields)
    assert sum(map(len, tables)) == len(EvalConfig.model_fields)


def test_every_field_of_inspects_generate_config_is_known() -> None:
    assert frozenset(GenerateConfig.model_fields) == GENERATE


def test_what_is_no_field_of_the_config_is_an_argument_of_an_eval_set() -> None:
    assert not NO_SETTINGS & EvalConfig.model_fields.keys()
    assert inspect.signature(inspect_ai.eval_set).parameters.keys() >= NO_SETTINGS


def test_every_option_of_the_fleet_is_in_one_table() -> None:
    tables = (OPTIONS_KEPT, OPTIONS_IDLE, frozenset(OPTIONS_REFUSED))
    assert frozenset().union(*tables) == frozenset(Ec2Config.model_fields)
    assert sum(map(len, tables)) == len(Ec2Config.model_fields)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("fail_on_error", "leave it out, and judge by the log"),
        ("max_samples", "Hawk decides it itself"),
        ("sample_id", "with the task"),
        ("log_dir", "Hawk decides it itself"),
        ("models", "not known"),
    ],
)
def test_a_key_that_is_refused_says_what_to_do(key: str, says: str) -> None:
    assert says in (config_problem(key) or "")


@pytest.mark.parametrize("key", sorted(DECLARED | FORWARDED | JOINED))
def test_a_key_that_hawk_honours_is_no_problem(key: str) -> None:
    assert config_problem(key) is None


def test_no_key_of_hawks_configuration_passes_as_one_of_inspect() -> None:
    assert "no such field" in (generate_problem("runner") or "")
    assert generate_problem("temperature") is None


def test_options_that_promise_something_are_refused_by_name() -> None:
    assert option_problems(frozenset({"spot", "new_fleet", "max_cost", "brand_new"})) == [
        "brand_new: not known to have a meaning on Hawk: leave it out",
        "max_cost: Hawk has no such limit, and would run on: leave it out",
    ]


def test_all_problems_make_one_line() -> None:
    refused = HawkRefused(problems=["a: do b", "c: do d"])
    assert str(refused) == "Hawk can't run this request: a: do b; c: do d"
    assert refused.exit_code == 2


@pytest.mark.hawk
def test_the_installed_hawk_takes_and_refuses_what_the_tables_say() -> None:
    """An upgrade of Hawk, or of the Inspect that it runs, that moves a key breaks this loudly."""
    hawk = {name: frozenset(found) for name, found in ask(SURFACE).items()}
    fields = hawk["eval_config"]
    assert fields & hawk["declared"] == DECLARED
    assert fields & hawk["eval_set"] - hawk["set"] - hawk["declared"] == FORWARDED
    assert fields - DECLARED - FORWARDED - JOINED == REFUSED.keys()
    known_by_another_name = {"eval_set_id", "tasks", "log_images"}
    assert hawk["set"] - hawk["declared"] - REFUSED.keys() - known_by_another_name == NO_SETTINGS
    assert hawk["generate_config"] == GENERATE
    assert hawk["generate_config"] & hawk["declared"] == {"adaptive_connections", "max_retries"}
    assert not hawk["generate_config"] & (hawk["set"] - hawk["declared"])
