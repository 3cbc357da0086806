"""What a person asks for: the one document that the UI, a schedule, `prefect deployment run` and the CLI all fill in."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, JsonValue

from fleet.wire import Wire


class TaskSpec(Wire):
    """One Inspect task."""

    name: str = Field(min_length=1, description="Registry name (`inspect_evals/gpqa`) or `file.py@task` in the source.")
    args: dict[str, JsonValue] = Field(default={}, description="Task arguments (Inspect's -T).")
    sample_ids: list[str | int] = Field(default=[], description="Only these samples, by exact id; empty: all.")


class ModelSpec(Wire):
    """One model to evaluate, as Inspect names it."""

    name: str = Field(min_length=1, description="Inspect model name, provider first (`openai/gpt-5`).")
    args: dict[str, JsonValue] = Field(default={}, description="Model arguments (Inspect's -M).")
    base_url: str | None = Field(default=None, description="Another address of the provider's API.")
    roles: dict[str, str] = Field(default={}, description="Models by role, such as a grader (Inspect's --model-role).")


class SolverSpec(Wire):
    """A solver that takes the place of the task's own."""

    name: str = Field(min_length=1, description="Registry name or `file.py@solver`.")
    args: dict[str, JsonValue] = Field(default={}, description="Solver arguments (Inspect's -S).")


def _named(value: Any) -> Any:
    """A bare name stands for a spec with that name: what one types in a shell."""
    return {"name": value} if isinstance(value, str) else value


class EvalRequest(Wire):
    """An eval to run: every task with every model, one merged Inspect log each."""

    VERSION: ClassVar[int | None] = 1

    # The order is the form's in the Prefect UI: what every request says comes first.
    tasks: list[Annotated[TaskSpec, BeforeValidator(_named)]] = Field(min_length=1, description="Inspect tasks to run.")
    models: list[Annotated[ModelSpec, BeforeValidator(_named)]] = Field(min_length=1, description="Models to evaluate.")
    source: str | None = Field(
        default=None, description="A git checkout (or a folder in one) that is installed into the job environment."
    )
    packages: list[str] = Field(
        default=[], description="Requirements of the job environment (`inspect-evals==0.28.0`)."
    )
    secrets: list[str] = Field(
        default=[],
        description="Names of environment variables that workers need, such as OPENAI_API_KEY; never values.",
    )
    eval_config: dict[str, JsonValue] = Field(
        default={}, description="Inspect's EvalConfig fields by name: epochs, limit, fail_on_error, message_limit, …"
    )
    generate_config: dict[str, JsonValue] = Field(
        default={}, description="Inspect's GenerateConfig fields by name: temperature, max_tokens, seed, …"
    )
    model_cost_config: str | None = Field(
        default=None,
        description="Inspect's table of model prices, a YAML or JSON file where the run starts; empty: nothing is priced.",
    )
    log_dir: str | None = Field(
        default=None,
        description="Where the merged log is delivered: a folder or an s3:// address; empty: only the bucket.",
    )
    solver: Annotated[SolverSpec | None, BeforeValidator(_named)] = Field(
        default=None,
        title="Solver",  # a union of models has no title of its own, and the form would say "Field"
        description="Solver in place of each task's own.",
    )
    python: str | None = Field(
        default=None,
        pattern=r"^3\.\d+(\.\d+)?$",
        description="Python version of the job environment; empty: the planner's.",
    )
    settings: list[str] = Field(
        default=[], description="Git checkouts that tasks read while they run, each at .settings/<its folder's name>."
    )
    samples_per_job: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="(sample, epoch) pairs in a job; auto: by how many there are and what they need."
    )
    tags: list[str] = Field(default=[], description="Tags of the eval, as in Inspect.")
    metadata: dict[str, JsonValue] = Field(default={}, description="Metadata of the eval, as in Inspect.")
    version: Literal[1] = Field(default=1, description="Version of this document; leave it as it is.")
