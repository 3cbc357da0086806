from __future__ import annotations

from typing import Any

import pytest

from fleet.evals.rates import RatesRefused
from fleet.evals.request import EvalRequest
from fleet.hawk.mapping import LARGEST, EvalSet, ExpectedLog, eval_set
from fleet.hawk.origins import AGENTS, PROVIDERS
from fleet.hawk.pushed import NotPushed, PushedSource
from fleet.hawk.refused import HawkRefused
from tests.fleet.hawk.installed import ask

SHA = "0123456789abcdef0123456789abcdef01234567"
URL = f"git+https://git.example.org/team/evals.git@{SHA}"
SOURCE = PushedSource(url=URL, name="my-evals", provides=frozenset({"my_evals"}), untracked=())
EVALS = "inspect-evals==0.28.0"
GPQA = {"package": "inspect-evals", "name": "inspect_evals", "items": [{"name": "gpqa"}]}
GPT = {"package": "openai", "name": "openai", "items": [{"name": "gpt-5"}]}
REQUEST: dict[str, Any] = {"tasks": ["inspect_evals/gpqa"], "models": ["openai/gpt-5"], "packages": [EVALS]}
CONFIG: dict[str, Any] = {"tasks": [GPQA], "models": [GPT], "retry_attempts": 0, "packages": [EVALS]}

VALIDATE = """
import json, sys
from hawk.core.types import EvalSetConfig
for config in json.load(sys.stdin):
    read = EvalSetConfig.model_validate(config)
    read.config_dict()
print(json.dumps(sorted(read.model_extra or {})))
"""


def made(
    source: PushedSource | NotPushed | None = None, options: dict[str, Any] | None = None, nonce: str = "", **more: Any
) -> EvalSet:
    request = EvalRequest.model_validate({**REQUEST, **more})
    return eval_set(request, source=source, options=options or {}, nonce=nonce)


def refused(
    source: PushedSource | NotPushed | None = None, options: dict[str, Any] | None = None, **more: Any
) -> list[str]:
    with pytest.raises(HawkRefused) as error:
        made(source, options, **more)
    return error.value.problems


def model(**fields: Any) -> dict[str, Any]:
    return {"models": [{"name": "openai/gpt-5", **fields}]}


CONFIGS: dict[str, tuple[dict[str, Any], PushedSource | None, dict[str, Any]]] = {
    "plain": ({}, None, {}),
    "task arguments": (
        {"tasks": [{"name": "inspect_evals/gpqa", "args": {"cot": True}}]},
        None,
        {"tasks": [{**GPQA, "items": [{"name": "gpqa", "args": {"cot": True}}]}]},
    ),
    "samples by their ids, which are no patterns": (
        {"tasks": [{"name": "inspect_evals/gpqa", "sample_ids": ["a", 2, "x[1]*"]}]},
        None,
        {"tasks": [{**GPQA, "items": [{"name": "gpqa", "sample_ids": ["a", 2, "x[[]1][*]"]}]}]},
    ),
    "a task of the source": (
        {"tasks": ["my_evals/one"], "packages": []},
        SOURCE,
        {"tasks": [{"package": URL, "name": "my_evals", "items": [{"name": "one"}]}], "packages": [URL]},
    ),
    "a source beside the package of the task": ({}, SOURCE, {"packages": [EVALS, URL]}),
    "a package with another name than its tasks": (
        {"packages": [f"team-evals @ {URL}"]},
        None,
        {"tasks": [{**GPQA, "package": "team-evals"}], "packages": [f"team-evals @ {URL}"]},
    ),
    "a package that names nothing": (
        {"packages": ["inspect-ai==0.3.285", URL]},
        None,
        {"tasks": [{**GPQA, "package": URL}], "packages": ["inspect-ai==0.3.285", URL]},
    ),
    "model arguments and address": (
        model(args={"service_tier": "flex"}, base_url="https://api.example.org"),
        None,
        {
            "models": [
                {
                    **GPT,
                    "items": [
                        {"name": "gpt-5", "args": {"service_tier": "flex", "base_url": "https://api.example.org"}}
                    ],
                }
            ]
        },
    ),
    "models of several providers": (
        {"models": ["google/vertex/gemini-3", "openai-api/groq/llama", "openrouter/anthropic/claude", "mockllm/model"]},
        None,
        {
            "models": [
                {"package": "google-genai", "name": "google/vertex", "items": [{"name": "gemini-3"}]},
                {"package": "openai", "name": "openai-api/groq", "items": [{"name": "llama"}]},
                {"package": "inspect-ai", "items": [{"name": "openrouter/anthropic/claude"}]},
                {"package": "inspect-ai", "items": [{"name": "mockllm/model"}]},
            ],
            "packages": [EVALS, "openai"],
        },
    ),
    "a model of a package": (
        {"models": ["inspect_evals/scripted"]},
        None,
        {"models": [{"package": "inspect-evals", "name": "inspect_evals", "items": [{"name": "scripted"}]}]},
    ),
    "roles": (
        model(roles={"grader": "anthropic/claude-5"}),
        None,
        {"model_roles": {"grader": {"package": "anthropic", "name": "anthropic", "items": [{"name": "claude-5"}]}}},
    ),
    "a solver of Inspect's": (
        {"solver": {"name": "chain_of_thought", "args": {"template": "t"}}},
        None,
        {"solvers": [{"package": "inspect-ai", "items": [{"name": "chain_of_thought", "args": {"template": "t"}}]}]},
    ),
    "an agent of Inspect's": (
        {"solver": "react"},
        None,
        {"agents": [{"package": "inspect-ai", "items": [{"name": "react"}]}]},
    ),
    "a solver of the source": (
        {"solver": "my_evals/plan"},
        SOURCE,
        {"solvers": [{"package": URL, "name": "my_evals", "items": [{"name": "plan"}]}], "packages": [EVALS, URL]},
    ),
    "settings of both configs": (
        {
            "eval_config": {"limit": [2, 5], "epochs": 3, "turn_limit": 9, "log_images": False, "message_limit": None},
            "generate_config": {"temperature": 0, "max_tokens": 99, "max_retries": 3, "seed": None},
        },
        None,
        {
            "limit": [2, 5],
            "epochs": 3,
            "turn_limit": 9,
            "log_images": False,
            "temperature": 0,
            "max_tokens": 99,
            "max_retries": 3,
        },
    ),
    "a reducer": (
        {"eval_config": {"epochs": 3, "epochs_reducer": ["mean", "at_least_2"]}},
        None,
        {"epochs": {"epochs": 3, "reducer": ["mean", "at_least_2"]}},
    ),
    "a seed": ({"eval_config": {"sample_shuffle": 7, "limit": 2}}, None, {"sample_shuffle": 7, "limit": 2}),
    "an approval policy": (
        {
            "eval_config": {
                "approval": {"approvers": [{"name": "auto", "tools": "*", "params": {"decision": "reject"}}]}
            }
        },
        None,
        {"approval": {"approvers": [{"name": "auto", "tools": ["*"], "args": {"decision": "reject"}}]}},
    ),
    "labels": ({"tags": ["x"], "metadata": {"a": 1}}, None, {"tags": ["x"], "metadata": {"a": 1}}),
    "secrets by name": (
        {"secrets": ["HF_TOKEN", "HF_TOKEN"]},
        None,
        {"runner": {"secrets": [{"type": "env", "name": "HF_TOKEN"}]}},
    ),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_request_becomes_hawks_configuration(case: str) -> None:
    more, source, config = CONFIGS[case]
    assert made(source, **more).config == {**CONFIG, **config}


PRICES = {"openai/gpt-5": {"input": 1.25, "output": 10, "input_cache_write": 0, "input_cache_read": 0.125}}


def priced(rates: dict[str, Any] | RatesRefused | None) -> EvalSet:
    request = EvalRequest.model_validate({**REQUEST, "tags": ["x"]})
    return eval_set(request, source=None, options={}, rates=rates)


def test_prices_go_along_and_make_another_eval_set() -> None:
    """A cost limit stops samples by them."""
    assert priced(PRICES).config == {**CONFIG, "tags": ["x"], "model_cost_config": PRICES}
    assert priced(PRICES).id != priced(None).id


@pytest.mark.hawk
def test_the_installed_hawk_takes_every_configuration() -> None:
    """By its own model, which its API reads requests with."""
    configs = [made(source, **more).config for more, source, _ in CONFIGS.values()]
    shuffled = made(eval_config={"sample_shuffle": True}).config
    extra = made(generate_config={"temperature": 0}, eval_config={"turn_limit": 3}).config
    assert ask(VALIDATE, [*configs, priced(PRICES).config, shuffled, extra]) == ["temperature", "turn_limit"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tasks": ["evals.py@gpqa"]}, "the task evals.py@gpqa is in a file"),
        ({"tasks": ["gpqa"]}, "the task gpqa has no package"),
        ({"tasks": ["inspect_evals/"]}, "the task inspect_evals/ has no package"),
        ({"packages": []}, "nothing that the request installs has the task inspect_evals/gpqa"),
        ({"packages": ["inspect-ai==0.3.285"]}, "nothing that the request installs has the task"),
        ({"packages": ["inspect-ai-evals==1"]}, "Hawk refuses names with inspect-ai in that place"),
        ({"packages": ["./evals"]}, "the requirement ./evals is on this machine"),
        ({"packages": [EVALS, "git+https://u:hunter2@h/x"]}, "requirement 2 of packages has credentials"),
        ({"tasks": ["inspect_evals/gpqa", "inspect_evals/gpqa"]}, "is there twice with the same arguments"),
        (
            {"models": ["openai/gpt-5", {"name": "openai/gpt-5", "args": {"a": 1}}]},
            "the model openai/gpt-5 is there twice",
        ),
        ({"models": ["none"]}, "the model none is none"),
        ({"models": ["none/none"]}, "the model none/none is none"),
        ({"models": ["gpt-5"]}, "the model gpt-5 can't be Inspect's name of one"),
        (model(roles={"grader": "none/none"}), "the model none/none is none"),
        (model(args={"api_key": "hunter2"}), "has an api_key among its arguments"),
        (model(args={"base_url": "https://x"}), "give it as the model's base_url"),
        (model(args={"memoize": False}), "the model argument memoize"),
        (
            {"models": ["openai/a", {"name": "openai/b", "roles": {"grader": "openai/c"}}]},
            "the models have different roles",
        ),
        ({"solver": "mine.py@plan"}, "the solver mine.py@plan is in a file"),
        ({"solver": "/plan"}, "the solver /plan has no package"),
        ({"eval_config": {"fail_on_error": True}}, "eval_config fail_on_error"),
        ({"eval_config": {"tasks": []}}, "eval_config tasks: not known"),
        ({"eval_config": {"epochs_reducer": "mean"}}, "epochs_reducer needs epochs"),
        ({"generate_config": {"models": []}}, "generate_config models: Inspect's GenerateConfig has no such field"),
        (
            {"tasks": ["inspect_evals/a", "inspect_evals/b"], "eval_config": {"sample_shuffle": True}},
            "give it a number",
        ),
        (
            {"tasks": [{"name": "inspect_evals/a", "sample_ids": [1]}], "eval_config": {"limit": 1}},
            "with which eval_config limit can't be combined",
        ),
        ({"python": "3.12"}, "python 3.12: Hawk's runner has its own"),
        ({"settings": ["/srv/setting"]}, "settings: no checkout travels to Hawk"),
        ({"samples_per_job": 3}, "samples_per_job: a task is not cut"),
        ({"metadata": {"created_by": "me"}}, "metadata created_by: Hawk writes over it"),
        ({"metadata": {"mood": "\N{GRINNING FACE}"}}, "can't hand on (U+1F600)"),
        ({"metadata": {"half": "\ud83d"}}, "can't hand on (U+D83D)"),
        (
            {"tasks": [{"name": "inspect_evals/gpqa", "sample_ids": list(range(LARGEST // 5))}]},
            "a configuration of",
        ),
    ],
)
def test_what_hawk_cant_honour_is_refused(more: dict[str, Any], says: str) -> None:
    problems = refused(**more)
    assert [says in problem for problem in problems] == [True], problems
    assert "hunter2" not in str(problems)


def test_everything_is_refused_at_once() -> None:
    problems = refused(
        NotPushed(("the source /srv/evals has no remote: push it",)),
        {"max_cost": 5.0, "spot": True},
        tasks=["evals.py@one", "gpqa"],
        python="3.12",
        eval_config={"max_samples": 3, "fail_on_error": 0.1},
        packages=["./evals"],
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "the task evals.py@one is in a file, and Hawk runs what packages register",
        "the task gpqa has no package, and Hawk runs what packages register",
        "eval_config max_samples",
        "eval_config fail_on_error",
        "the requirement ./evals is on this machine, which Hawk doesn't see",
        "python 3.12",
        "max_cost",
        "the source /srv/evals has no remote",
    ]


def test_a_source_that_doesnt_register_the_task_says_how() -> None:
    [problem] = refused(SOURCE, tasks=["other/one"], packages=[])
    assert "[project.entry-points.inspect_ai], other = …" in problem


def test_each_task_with_each_model_is_expected_in_the_requests_order() -> None:
    tasks = ["inspect_evals/a", {"name": "inspect_evals/b", "args": {"x": 1}}]
    assert made(tasks=tasks, models=["openai/gpt-5", "openrouter/x/y"]).expected == (
        ExpectedLog("inspect_evals/a", {}, "openai/gpt-5"),
        ExpectedLog("inspect_evals/a", {}, "openrouter/x/y"),
        ExpectedLog("inspect_evals/b", {"x": 1}, "openai/gpt-5"),
        ExpectedLog("inspect_evals/b", {"x": 1}, "openrouter/x/y"),
    )


def test_an_unseeded_shuffle_gets_the_seed_that_the_fleet_gives_it() -> None:
    first, again = (made(eval_config={"sample_shuffle": True}).config["sample_shuffle"] for _ in range(2))
    assert first == again
    assert first > 1


def test_a_repeated_request_is_the_same_eval_set_and_a_new_fleet_another() -> None:
    assert made().id == made(tags=["later"]).id
    assert made().id != made(nonce="1").id
    assert made().id.startswith("gpqa-")


@pytest.mark.parametrize(
    ("more", "options", "source", "says"),
    [
        ({}, {"spot": True, "max_workers": 3, "auto_confirm": True}, None, "no instances of ours: max_workers, spot"),
        ({"packages": ["inspect-evals"]}, {}, None, "not pinned"),
        ({"secrets": ["OPENAI_API_KEY"]}, {}, None, "OPENAI_API_KEY takes the place"),
        ({"solver": "inspect_evals/plan"}, {}, None, "looks for inspect_evals/plan among solvers"),
        ({}, {}, PushedSource(URL, "x", frozenset(), ("notes.txt",)), "stay behind: notes.txt"),
    ],
)
def test_what_a_person_should_know_is_a_warning(
    more: dict[str, Any], options: dict[str, Any], source: PushedSource | None, says: str
) -> None:
    warnings = made(source, options, **more).warnings
    assert [says in warning for warning in warnings] == [True], warnings


def test_a_request_that_is_all_plain_warns_of_nothing() -> None:
    assert made(SOURCE, {"new_fleet": True, "auto_confirm": True}).warnings == ()


def test_inspects_own_agents_and_providers_are_those_of_the_tables() -> None:
    import inspect_ai.agent
    import inspect_ai.solver
    from inspect_ai._util.registry import registry_find, registry_info
    from inspect_ai.model._providers import providers

    def names(kind: str) -> set[str]:
        return {registry_info(it).name for it in registry_find(lambda info: info.type == kind)}

    assert inspect_ai.agent
    assert inspect_ai.solver
    assert providers
    agents, solvers = names("agent"), names("solver")
    assert {f"inspect_ai/{name}" for name in AGENTS} == agents - solvers
    assert {f"inspect_ai/{name}" for name in PROVIDERS} <= names("modelapi")
