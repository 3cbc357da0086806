"""A task in a file of its own, as `inspect eval-retry` needs it."""

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match


@task
def six_words() -> Task:
    return Task(
        dataset=[Sample(input=f"w{n}", target=f"w{n}", id=f"s{n}") for n in range(6)],
        scorer=match(),
        epochs=Epochs(2, "mean"),
    )
