"""`fleet_examples/elements`: symbols and numbers of the chemical elements; 236 samples, no tools, no sandbox."""

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Metric, SampleScore, accuracy, grouped, match, metric, stderr, value_to_float
from inspect_ai.solver import generate

from fleet_examples.questions import QUESTIONS
from fleet_examples.table import table


@task
def elements(kinds: str | list[str] = "symbol,number") -> Task:
    """One question of each kind about each of the 118 elements.

    Args:
        kinds: Of `symbol`, `number`, `name` and `block`: a list, or comma-separated.
    """
    wanted = kinds.split(",") if isinstance(kinds, str) else kinds
    unknown = [kind for kind in wanted if kind not in QUESTIONS]
    if unknown:
        raise ValueError(f"no question of the kind {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    samples = [
        Sample(
            id=f"{kind}-{element.symbol}",
            input=QUESTIONS[kind].put(element),
            target=QUESTIONS[kind].asked(element),
            metadata={"kind": kind, "period": element.period},
        )
        for kind in wanted
        for element in table()
    ]
    return Task(
        dataset=MemoryDataset(samples, name="elements"),
        solver=generate(),
        scorer=match("exact", ignore_case=False),  # Co is cobalt, CO is not
        metrics=[accuracy(), stderr(), grouped(accuracy(), "kind", all=False), weakest_kind()],
    )


@metric
def weakest_kind() -> Metric:
    """The accuracy of the kind of question that went worst."""
    to_float = value_to_float()

    def weakest(scores: list[SampleScore]) -> float:
        kinds: dict[str, list[float]] = {}
        for score in scores:
            kinds.setdefault((score.sample_metadata or {})["kind"], []).append(to_float(score.score.value))
        return min((sum(values) / len(values) for values in kinds.values()), default=0.0)

    return weakest
