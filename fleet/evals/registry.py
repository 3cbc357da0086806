"""How instances log in to the registry of container images, and whether a run has what they need for it. Pure.

User and token come from the run's secrets, else each from a parameter that the account names. Registries limit what one
address may pull without a login, and a fleet pulls from one address: so a run that needs Docker needs a login, unless the
account says that it may do without.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from fleet.errors import RequestRefused
from fleet.wire import Wire

USERNAME = "DOCKERHUB_USERNAME"
TOKEN = "DOCKERHUB_TOKEN"  # noqa: S105 - the variable's name
CREDENTIALS = (USERNAME, TOKEN)
"""Names of the two secrets. No job sees them: the login is made once, before any."""

Login = Literal["required", "optional"]


class RegistryAccess(Wire):
    """Where instances log in and by what, in names only."""

    registry: str = ""
    """Host, with its port where it has one; empty: Docker Hub."""
    username_parameter: str = ""
    token_parameter: str = ""
    """SSM parameters that serve a run without secrets of its own; empty: none."""
    login: Login = Field(default="required")
    """optional: without any credentials, images are pulled without a login."""

    @property
    def name(self) -> str:
        """The registry, for a person."""
        return self.registry or "Docker Hub"


class RegistryLoginMissing(RequestRefused):
    """The run needs Docker, and nothing says how to log in to the registry."""

    registry: str

    def message(self) -> str:
        """One line: what is missing, and the three ways out."""
        return (
            f"the run needs Docker and has no login for {self.registry}: give {USERNAME} and {TOKEN} with the run's secrets, or "
            "name their SSM parameters in the Fleet Account block (docker_username_parameter, docker_token_parameter); to pull "
            "without a login, set its registry_login to optional"
        )


class RegistryLoginIncomplete(RequestRefused):
    """One of the two parts of a login is there, and the other one isn't."""

    registry: str
    missing: str
    parameter_field: str

    def message(self) -> str:
        """One line: which part, and the two places where it can be given."""
        return (
            f"the login for {self.registry} is half configured, {self.missing} is missing: give it with the run's secrets, or "
            f"name its SSM parameter in the Fleet Account block ({self.parameter_field})"
        )


def has_login(access: RegistryAccess, secrets: Collection[str]) -> bool:
    """Whether there is a login, by the names of the run's secrets; False: none is needed either.

    RegistryLoginMissing: there is none and it is required. RegistryLoginIncomplete: there is half of one, which is never right.
    """
    user = USERNAME in secrets or bool(access.username_parameter)
    token = TOKEN in secrets or bool(access.token_parameter)
    if user and token:
        return True
    if user or token:
        missing, field = (TOKEN, "docker_token_parameter") if user else (USERNAME, "docker_username_parameter")
        raise RegistryLoginIncomplete(registry=access.name, missing=missing, parameter_field=field)
    if access.login == "required":
        raise RegistryLoginMissing(registry=access.name)
    return False
