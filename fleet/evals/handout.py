"""A run's secrets on their way to its instances: written once for each, and deleted as soon as they are fetched.

The controller's watch says what it sees, from one thread; writes go on in others meanwhile. Whatever happens, what is written
is deleted by somebody: here when the instance has it or has ended, by the run's clean-up otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fleet.aws.failures import AwsRefused
from fleet.evals.secrets import RunSecrets, parameters_of


class KeepsSecrets(Protocol):
    """What is needed of `fleet.aws.parameters.Parameters`."""

    def put_secret(
        self,
        name: str,
        values: Mapping[str, str],
        tags: Mapping[str, str],
        *,
        advanced: bool,
        wanted: Callable[[], bool],
    ) -> bool:
        """Write one parameter; False: it was no longer wanted."""
        ...

    def try_delete(self, names: Sequence[str]) -> Mapping[str, AwsRefused]:
        """Delete parameters; those that are left, each with SSM's refusal. Absent ones are success."""
        ...


class Handout:
    """What the instances of one run are given."""

    def __init__(
        self,
        parameters: KeepsSecrets,
        path: str,
        secrets: RunSecrets,
        tags: Callable[[str], Mapping[str, str]],
        *,
        advanced: bool,
    ) -> None:
        """`path`: of the run's parameters. `tags`: those of an instance's parameters, which say that only it may read them."""
        self.path = path
        self._parameters = parameters
        self._secrets = secrets
        self._tags = tags
        self._advanced = advanced
        self._lock = threading.Lock()  # guards the five below
        self._instances: set[str] = set()
        self._unwanted: set[str] = set()
        self._to_delete: set[str] = set()
        self._deleted: set[str] = set()
        self._closed = False

    def write(self, instance: str) -> bool:
        """Write what an instance is given; False: it has ended meanwhile, or the run has.

        AwsRefused: it couldn't be written. Whenever it isn't all there, nothing of it is left (or is deleted later).
        """
        own = self.parameter(instance)
        with self._lock:
            self._instances.add(instance)
            self._to_delete.difference_update(self._names_of(instance))  # of a write that failed: this one's must stay
        written = False
        try:
            written = all(
                self._parameters.put_secret(
                    name,
                    values,
                    self._tags(instance),
                    advanced=self._advanced,
                    wanted=lambda: self.wants(instance),
                )
                for name, values in self._secrets.documents(own)
            ) and self.wants(instance)  # the last write may have been on its way when the instance ended
        finally:
            if written:
                with self._lock:  # a write that was tried again may come after the fetch, and its deletion
                    self._deleted.difference_update(self._names_of(instance))
            else:
                self._delete_all_of(instance)
        return written

    def parameter(self, instance: str) -> str:
        """The name of an instance's own parameter."""
        return f"{self.path}/{instance}"

    def names(self) -> list[str]:
        """The names of everything that it has written, or has begun to, whatever was deleted since."""
        with self._lock:
            instances = sorted(self._instances)
        return [name for instance in instances for name in self._names_of(instance)]

    def wants(self, instance: str) -> bool:
        """Whether an instance is still to be given its secrets."""
        with self._lock:
            return not self._closed and instance not in self._unwanted

    def fetched(self, instance: str, parameter: str) -> None:
        """An instance says that it has read a parameter. Any but one of its own is none of its business."""
        if parameter in self._names_of(instance):
            with self._lock:
                self._to_delete.add(parameter)

    def working(self, instance: str) -> None:
        """An instance is at its jobs: it has fetched everything, also if nobody heard that."""
        with self._lock:
            self._to_delete.update(set(self._names_of(instance)) - self._deleted)

    def ended(self, instances: Iterable[str]) -> None:
        """These instances have ended: they fetch nothing any more, also if nobody heard what they had fetched."""
        with self._lock:
            for instance in set(instances) - self._unwanted:
                self._unwanted.add(instance)
                self._to_delete.update(set(self._names_of(instance)) - self._deleted)

    def delete_fetched(self) -> None:
        """Delete what isn't needed any more. What can't be deleted now is tried again at the next call."""
        with self._lock:
            names = sorted(self._to_delete)
        if names:
            self._delete(names)

    def close(self) -> None:
        """The run is over: nothing is written any more."""
        with self._lock:
            self._closed = True

    def _names_of(self, instance: str) -> list[str]:
        return parameters_of(self.parameter(instance), self._secrets.setting_names())

    def _delete_all_of(self, instance: str) -> None:
        names = self._names_of(instance)
        with self._lock:
            self._to_delete.update(names)
        self._delete(names)

    def _delete(self, names: Sequence[str]) -> None:
        """Delete these; what is left stays noted, and what is gone isn't asked for again."""
        gone = set(names) - self._parameters.try_delete(names).keys()
        with self._lock:
            self._to_delete.difference_update(gone)
            self._deleted.update(gone)
