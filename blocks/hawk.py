"""Where a team's Hawk is: the address of its API, and the token of whoever runs evals there."""

from __future__ import annotations

import os
from typing import Literal

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from blocks.loading import BlockUnusable, loaded
from fleet.errors import RequestRefused
from fleet.hawk.api import HawkApi
from fleet.hawk.connect import connect
from fleet.hawk.tokens import Tokens

Place = Literal["fleet", "hawk"]
"""Where a flow runs evals: on a fleet of its own, or on a Hawk deployment."""
ADDRESS_NAME = "HAWK_API_URL"
"""Environment variable that Hawk's own command reads the address from, too."""
DEFAULT = "default"
"""Name of the block that a run takes unless it says otherwise."""


class HawkUnknown(RequestRefused):
    """Nobody says where Hawk is."""

    block: str
    why: str

    def message(self) -> str:
        """One line, with the ways to say it."""
        ways = f"make the block hawk-deployment/{self.block} in the UI"
        if self.block == DEFAULT:
            ways += f", or set {ADDRESS_NAME}"
        return f"the Hawk deployment {self.block!r} can't be used: {self.why}; {ways}"


class HawkDeployment(Block):
    """A Hawk deployment that evals are sent to."""

    _block_type_name = "Hawk Deployment"
    _block_type_slug = "hawk-deployment"
    _description = "Where a Hawk deployment is, to which evals are sent instead of a fleet, and who asks there."

    address: str = Field(min_length=1, description="Address of Hawk's API, such as https://api.hawk.example.org.")
    token: SecretStr | None = Field(
        default=None,
        description=(
            "Access token. Tokens of a login last for hours: better left empty. Then HAWK_ACCESS_TOKEN counts where the run is "
            "controlled, or else what `hawk auth access-token` says there."
        ),
    )
    viewer: str = Field(
        default="", description="Address of Hawk's log viewer, for links; empty: what Hawk itself says."
    )

    def api(self) -> HawkApi:
        """The deployment, not asked anything yet. HawkAddressRefused."""
        token = self.token.get_secret_value() if self.token else ""
        return connect(self.address, Tokens(self.address, token))


def hawk_deployment(name: str) -> HawkDeployment:
    """The deployment of this name: its block, or for the default one HAWK_API_URL where there is no block. HawkUnknown.

    A name that a person gave never leads to another deployment than theirs.
    """
    try:
        return loaded(HawkDeployment, name)
    except BlockUnusable as error:
        address = os.environ.get(ADDRESS_NAME, "")
        if name != DEFAULT or not address or not error.absent:
            raise HawkUnknown(block=name, why=str(error)) from None
    return HawkDeployment(address=address)
