"""Tasks for the merge's tests, each with one trait that a merge could lose."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from inspect_ai import Epochs, SampleSource, Task
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    accuracy,
    grouped,
    match,
    mean,
    metric,
    scorer,
    std,
    stderr,
)
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver
from inspect_ai.util import EarlyStop, EarlyStopping


def words(count: int) -> list[Sample]:
    """Every third answer is wrong."""
    return [
        Sample(input=f"w{n}", target=f"w{n}" if n % 3 else "x", id=f"s{n}", metadata={"n": n, "kind": "ab"[n % 2]})
        for n in range(count)
    ]


@metric
def spread() -> Metric:
    def compute(scores: list[SampleScore]) -> float:
        return statistics.pstdev(score.score.as_float() for score in scores)

    return compute


@metric
def first_seen() -> Metric:
    """Depends on the order in which scores are given."""

    def compute(scores: list[SampleScore]) -> float:
        return sum(number * score.score.as_float() for number, score in enumerate(scores, start=1))

    return compute


@metric
def broken() -> Metric:
    def compute(scores: list[SampleScore]) -> float:
        raise ArithmeticError("this metric never works")

    return compute


@scorer(metrics={"length": [mean(), stderr()], "odd": [mean(), spread()]})
def measures() -> Scorer:
    """Dicts; now and then a part is NaN, or the whole score is."""

    async def score(state: TaskState, target: Target) -> Score:
        n = state.metadata["n"]
        if n == 5:
            return Score.unscored() if hasattr(Score, "unscored") else Score(value=math.nan)
        value: dict[str, str | int | float | bool | None] = {
            "length": len(state.output.completion),
            "odd": math.nan if n == 2 else n,
        }
        return Score(value=value, explanation="é\n" * n, metadata={"said": state.output.completion, "nan": math.nan})

    return score


@scorer(metrics=[grouped(mean(), "kind"), first_seen()])
def numbers() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=float(len(state.output.completion)) / 3, answer="a" * 2000)

    return score


@scorer(metrics=[accuracy(), std()])
def raising() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        if state.metadata["n"] == 3 and state.epoch == 2:
            raise ValueError("no score for this one")
        return Score(value="C" if state.epoch == 1 else "I")

    return score


@scorer(metrics=[broken()])
def unmeasurable() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=1)

    return score


@solver
def raises_at(*numbers: int) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.metadata["n"] in numbers:
            raise RuntimeError(f"sample {state.metadata['n']} doesn't work")
        return await generate(state)

    return solve


@solver
def renames_kind() -> Solver:
    """Changes the metadata by which a metric groups: a plain run's metrics don't see that."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.metadata["kind"] = f"epoch {state.epoch}"
        return await generate(state)

    return solve


@solver
def asks_a_critic() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await get_model(role="critic").generate(state.input_text)
        return await generate(state)

    return solve


FAILURES: dict[str, int] = {}


@solver
def works_at_second_try() -> Solver:
    """Asks the model, then fails: what it used counts for the eval and for no sample."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        FAILURES[state.uuid] = FAILURES.get(state.uuid, 0) + 1
        if FAILURES[state.uuid] == 1 and state.metadata["n"] % 2:
            raise RuntimeError("not yet")
        return state

    return solve


class Growing(SampleSource):
    """Two samples, and another for each of them."""

    def initial_samples(self) -> list[Sample]:
        return words(2)

    async def sample_complete(self, sample) -> list[Sample] | None:  # type: ignore[no-untyped-def]
        return None if str(sample.id).startswith("more") else [Sample(input="w", target="w", id=f"more-{sample.id}")]


class EnoughAfter(EarlyStopping):
    """Runs so many samples and stops the others."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0

    async def start_task(self, task, samples, epochs) -> str:  # type: ignore[no-untyped-def]
        return "enough-after"

    async def schedule_sample(self, id, epoch) -> EarlyStop | None:  # type: ignore[no-untyped-def]  # noqa: A002
        self.seen += 1
        return EarlyStop(id=id, epoch=epoch, reason="enough") if self.seen > self.most else None

    async def complete_sample(self, id, epoch, scores) -> None:  # type: ignore[no-untyped-def]  # noqa: A002
        pass

    async def complete_task(self) -> dict[str, int]:  # type: ignore[override]
        return {"seen": self.seen}


def plain_words() -> Task:
    return Task(dataset=words(7), solver=generate(), scorer=match(), epochs=Epochs(3, ["mean", "mode", "at_least_2"]))


def dict_scores() -> Task:
    return Task(dataset=words(8), solver=generate(), scorer=measures(), epochs=2)


def two_scorers() -> Task:
    return Task(dataset=words(6), solver=generate(), scorer=[numbers(), match()], epochs=Epochs(2, "max"))


def own_metrics() -> Task:
    return Task(dataset=words(5), solver=generate(), scorer=match(), metrics=[spread(), accuracy()])


def failing_samples() -> Task:
    return Task(dataset=words(6), solver=raises_at(1, 4), scorer=match(), epochs=2, fail_on_error=False)


def failing_scorer() -> Task:
    return Task(dataset=words(5), solver=generate(), scorer=[match(), raising()], epochs=2, fail_on_error=False)


def scored_on_error() -> Task:
    return Task(dataset=words(5), solver=raises_at(1), scorer=match(), fail_on_error=False, score_on_error=True)


def all_failing() -> Task:
    return Task(dataset=words(3), solver=raises_at(0, 1, 2), scorer=match(), fail_on_error=False)


def retried() -> Task:
    return Task(dataset=words(6), solver=works_at_second_try(), scorer=match())


def with_roles() -> Task:
    return Task(dataset=words(4), solver=[asks_a_critic(), generate()], scorer=match(), epochs=2)


def unscored() -> Task:
    return Task(dataset=words(4), solver=generate())


def own_ids() -> Task:
    return Task(dataset=[Sample(input=f"w{n}", target=f"w{n}") for n in range(12)], solver=generate(), scorer=match())


def odd_ids() -> Task:
    ids: list[str | int] = ["a[1]", "a1", "a*", "01", "1", "a/b", "ä ö", "a_epoch_2", "x.y", "20", "3"]
    return Task(
        dataset=[Sample(input=str(one), target="1", id=one) for one in ids], solver=generate(), scorer=match(), epochs=2
    )


def renamed() -> Task:
    return Task(dataset=words(6), solver=[renames_kind(), generate()], scorer=numbers(), epochs=2)


def broken_metric() -> Task:
    return Task(dataset=words(3), solver=generate(), scorer=unmeasurable())


def growing() -> Task:
    return Task(dataset=Growing(), solver=generate(), scorer=match())


def stopping() -> Task:
    return Task(dataset=words(5), solver=generate(), scorer=match(), early_stopping=EnoughAfter(3))


SPLITTABLE: list[Callable[[], Task]] = [
    plain_words,
    dict_scores,
    two_scorers,
    own_metrics,
    failing_samples,
    failing_scorer,
    scored_on_error,
    all_failing,
    retried,
    with_roles,
    unscored,
    own_ids,
    odd_ids,
    renamed,
    broken_metric,
]
