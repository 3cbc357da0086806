"""A task whose metrics are defined where only its own file, or only the task itself, looks."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, match, metric, scorer
from inspect_ai.solver import TaskState


@metric
def count_of_right() -> Metric:
    def compute(scores: list[SampleScore]) -> float:
        return float(sum(score.score.as_float() for score in scores))

    return compute


@task
def in_the_file() -> Task:
    samples = [Sample(input=f"w{n}", target=f"w{n}" if n else "x", id=n) for n in range(4)]
    return Task(dataset=samples, scorer=match(), metrics=[count_of_right()])


@task
def in_the_task() -> Task:
    @metric(name="double_count")
    def double_count() -> Metric:
        def compute(scores: list[SampleScore]) -> float:
            return 2 * float(sum(score.score.as_float() for score in scores))

        return compute

    @scorer(metrics=[double_count()])
    def always() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score:
            return Score(value=1)

        return score

    return Task(dataset=[Sample(input="w", target="w", id=n) for n in range(3)], scorer=always())
