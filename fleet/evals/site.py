"""The AWS side of one deployment, as the flows use it: its bucket, queues and parameters, with the keys they follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fleet.aws.objects import Objects
from fleet.aws.parameters import Parameters
from fleet.aws.queues import Queues
from fleet.aws.session import Aws
from fleet.evals.layout import Layout


@dataclass(frozen=True)
class Site:
    """One deployment in one fleet region; the bucket may be in another region than the fleet."""

    region: str
    bucket: str
    bucket_region: str
    prefix: str
    parameter_path: str

    @cached_property
    def aws(self) -> Aws:
        """Clients of the fleet's region."""
        return Aws(self.region)

    @cached_property
    def objects(self) -> Objects:
        """The bucket."""
        return Objects(self.aws if self.bucket_region == self.region else Aws(self.bucket_region), self.bucket)

    @cached_property
    def queues(self) -> Queues:
        """Queues of the fleet's region."""
        return Queues(self.aws)

    @cached_property
    def parameters(self) -> Parameters:
        """Parameters of the fleet's region."""
        return Parameters(self.aws)

    @property
    def layout(self) -> Layout:
        """Keys in the bucket."""
        return Layout(self.prefix)

    def secrets_of(self, run: str) -> str:
        """The parameter path under which each instance of a run has its secrets, by instance id."""
        return f"{self.parameter_path}/{run}"
