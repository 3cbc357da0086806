"""`fleet_examples/elements_shell`: an agent counts elements with bash in a sandbox; 29 samples.

The Docker sandbox uses the local image `fleet-examples-shell`: any small image with a shell, awk and bash will do
(`docker pull debian:stable-slim && docker tag debian:stable-slim fleet-examples-shell`).
"""

import base64
from pathlib import Path
from typing import Literal

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import accuracy, grouped, match, stderr
from inspect_ai.tool import bash

from fleet_examples.questions import COUNTS
from fleet_examples.table import TABLE

PROMPT = """The file elements.csv in your working directory is the periodic table. Its first line names the columns.

{question} Find out with bash, and submit the number alone."""


@task
def elements_shell(sandbox: Literal["docker", "local"] = "docker") -> Task:
    """Count the elements of each period, block and group.

    Args:
        sandbox: `docker`: a container a sample; `local`: a scratch folder, for machines without Docker.
    """
    # As data, not as a path: the sample then reads the same wherever this package is installed.
    file = "data:text/csv;base64," + base64.b64encode(TABLE.read_bytes()).decode()
    samples = [
        Sample(
            id=f"{count.kind}-{value}",
            input=PROMPT.format(question=count.put(value)),
            target=count.answer(value),
            files={"elements.csv": file},
            metadata={"kind": count.kind},
        )
        for count in COUNTS
        for value in count.values()
    ]
    return Task(
        dataset=MemoryDataset(samples, name="elements_shell"),
        solver=react(tools=[bash(timeout=30)]),
        scorer=match("end", numeric=True),
        metrics=[accuracy(), stderr(), grouped(accuracy(), "kind", all=False)],
        sandbox=("docker", (Path(__file__).parent / "compose.yaml").as_posix()) if sandbox == "docker" else "local",
        message_limit=12,
    )
