"""What the smoke test's own runs have in the account, found by the tag of the run and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.aws.instances import Instances
from fleet.aws.session import Aws
from fleet.evals.preparation import RUN_TAG, queue_name
from fleet.evals.site import Site

QUEUES = ("work", "events", "dead")


@dataclass(frozen=True)
class Leftovers:
    """What is there of some runs that should be gone."""

    instances: tuple[str, ...]
    volumes: tuple[str, ...]
    queues: tuple[str, ...]
    parameters: tuple[str, ...]

    def names(self) -> list[str]:
        """All of it."""
        return [*self.instances, *self.volumes, *self.queues, *self.parameters]


def left_of(site: Site, runs: Iterable[str]) -> Leftovers:
    """What AWS still has of these runs."""
    ours = list(runs)
    return Leftovers(
        instances=tuple(instance for run in ours for instance in living(site.aws, run)),
        volumes=tuple(volume for run in ours for volume in volumes(site.aws, run)),
        queues=tuple(name for run in ours for name in queues(site.aws, run)),
        parameters=tuple(name for run in ours for name in site.parameters.find(site.secrets_of(run))),
    )


def living(aws: Aws, run: str) -> list[str]:
    """The run's instances that aren't on their way out."""
    return [instance.id for instance in Instances(aws).find({RUN_TAG: run}) if not instance.leaving]


def volumes(aws: Aws, run: str) -> list[str]:
    """The run's volumes that no instance takes along when it goes."""
    found = aws.ec2.describe_volumes(
        Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run]}, {"Name": "status", "Values": ["available", "error"]}]
    )
    return [volume["VolumeId"] for volume in found["Volumes"]]


def queues(aws: Aws, run: str) -> list[str]:
    """The run's queues."""
    names = {queue_name(run, use) for use in QUEUES}
    found = aws.sqs.list_queues(QueueNamePrefix=f"inspect-fleet-{run}").get("QueueUrls", [])
    return [url for url in found if url.rsplit("/", 1)[1] in names]


def end(aws: Aws, instances: Sequence[str]) -> None:
    """Terminate what a smoke test must not leave running."""
    if instances:
        Instances(aws).terminate(instances)
