"""What a Hawk deployment can't do as a request asks: the tables, and the one error. Facts: Hawk 3.7.2 with Inspect 0.3.285.

Hawk's API takes any further key of an eval set and hands it to `inspect_ai.eval_set`. One that Hawk's runner sets itself ends
the run there with a TypeError, after minutes, so that each key must be known here.
"""

from __future__ import annotations

from fleet.errors import RequestRefused


class HawkRefused(RequestRefused):
    """Hawk can't run the request as it stands. Raised before Hawk is asked anything, with everything that is wrong."""

    problems: list[str]

    def message(self) -> str:
        """One line: all that can't be honoured, each with what to do."""
        return f"Hawk can't run this request: {'; '.join(self.problems)}"


DECLARED = frozenset(
    {
        "acp_server",
        "approval",
        "cost_limit",
        "epochs",
        "limit",
        "log_images",
        "log_model_api",
        "log_realtime",
        "message_limit",
        "sample_shuffle",
        "time_limit",
        "token_limit",
        "working_limit",
    }
)
"""Fields of Inspect's EvalConfig that Hawk's EvalSetConfig has, too."""

FORWARDED = frozenset(
    {
        "max_dataset_memory",
        "notification",
        "review",
        "sandbox_prebuilt",
        "score_display",
        "score_on_error",
        "sentinel",
        "turn_limit",
    }
)
"""Those that Hawk knows nothing of and Inspect gets."""

JOINED = frozenset({"epochs_reducer"})
"""Those that Hawk has elsewhere."""

_HAWKS_OWN = "Hawk decides it itself: leave it out"
_EVERY_ERROR = "Hawk runs every sample and keeps each error, whatever their number: leave it out, and judge by the log"

REFUSED = {
    **dict.fromkeys(
        (
            "log_buffer",
            "log_samples",
            "log_shared",
            "max_samples",
            "max_sandboxes",
            "max_subprocesses",
            "max_tasks",
            "sandbox_cleanup",
        ),
        _HAWKS_OWN,
    ),
    "continue_on_fail": _EVERY_ERROR,
    "fail_on_error": _EVERY_ERROR,
    "retry_on_error": "Hawk retries no sample: leave it out, and run the same request again",
    "sample_id": "give the ids with the task (sample_ids)",
    "token_limit_type": "Hawk's token_limit counts all tokens: leave it out",
}
"""The others, each with what to do."""

NO_SETTINGS = frozenset(
    {
        "bundle_dir",
        "bundle_overwrite",
        "debug_errors",
        "display",
        "log_dir",
        "log_dir_allow_dirty",
        "log_format",
        "log_level",
        "log_level_transcript",
        "retry_cleanup",
        "retry_connections",
        "retry_wait",
        "trace",
    }
)
"""Arguments of `inspect_ai.eval_set` that Hawk's runner sets itself, and that are no fields of EvalConfig."""

GENERATE = frozenset(
    {
        "adaptive_connections",
        "attempt_timeout",
        "batch",
        "best_of",
        "cache",
        "cache_prompt",
        "effort",
        "extra_body",
        "extra_headers",
        "fail_on_refusal",
        "fallback_models",
        "frequency_penalty",
        "internal_tools",
        "logit_bias",
        "logprobs",
        "max_connections",
        "max_retries",
        "max_tokens",
        "max_tool_output",
        "modalities",
        "num_choices",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_logprobs",
        "reasoning_effort",
        "reasoning_history",
        "reasoning_mode",
        "reasoning_summary",
        "reasoning_tokens",
        "response_schema",
        "seed",
        "stop_seqs",
        "stream_idle_timeout",
        "system_message",
        "temperature",
        "timeout",
        "top_k",
        "top_logprobs",
        "top_p",
        "verbosity",
    }
)
"""Fields of Inspect's GenerateConfig, all of which Inspect gets. Any other key would be one of Hawk's configuration."""

OPTIONS_KEPT = frozenset({"auto_confirm", "new_fleet"})
"""Options of the fleet that mean the same on Hawk: there is nothing to confirm, and a run can start over."""

OPTIONS_IDLE = frozenset(
    {
        "boot_seconds",
        "concurrency_per_worker",
        "idle_seconds",
        "instance_type",
        "instance_type_fallbacks",
        "lease_seconds",
        "max_hours",
        "max_workers",
        "region",
        "spot",
        "tags",
        "volume_gb",
        "worker_user",
    }
)
"""Those that describe instances, of which there are none."""

_NO_LIMIT = "Hawk has no such limit, and would run on: leave it out"

OPTIONS_REFUSED = {
    "ami": "Hawk's runner has an image of its own: leave it out, and name in packages what it lacks",
    "deadline_hours": _NO_LIMIT,
    "estimate": "Hawk names no price: leave it out",
    "max_cost": _NO_LIMIT,
    "stall_hours": _NO_LIMIT,
    "worker_setup": "nothing is set up on Hawk's cluster: leave it out, and name in packages what the tasks need",
}
"""Those that promise what Hawk can't keep, each with what to do."""


def config_problem(key: str) -> str | None:
    """Why a key of the eval config can't be honoured, and what to do; None: it can be."""
    if key in DECLARED | FORWARDED | JOINED:
        return None
    if key in REFUSED:
        return f"eval_config {key}: {REFUSED[key]}"
    if key in NO_SETTINGS:
        return f"eval_config {key}: {_HAWKS_OWN}"
    return f"eval_config {key}: not known to be a setting that Hawk hands on: leave it out"


def generate_problem(key: str) -> str | None:
    """The same of a key of the generate config."""
    return (
        None if key in GENERATE else f"generate_config {key}: Inspect's GenerateConfig has no such field: leave it out"
    )


def option_problems(options: frozenset[str]) -> list[str]:
    """What of the fleet's options, those that aren't at their default, can't be kept."""
    return [
        f"{name}: {OPTIONS_REFUSED.get(name, 'not known to have a meaning on Hawk: leave it out')}"
        for name in sorted(options - OPTIONS_KEPT - OPTIONS_IDLE)
    ]
