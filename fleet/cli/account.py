"""The account that a command works on: its options, and the block that Prefect keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from blocks.account import FleetAccount

account_option = click.option("--account", default="default", show_default=True, help="Fleet Account block.")
region_option = click.option("--region", help="AWS region; by default the account's.")
regions_option = click.option(
    "--region",
    "regions",
    multiple=True,
    help="AWS region to look in (repeatable); by default the account's own, and where its runs have had fleets.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


class NoServer(RequestRefused):
    """No Prefect server is configured, and a new one of Prefect's own would know nothing."""

    def message(self) -> str:
        """One line, with the ways to one."""
        return (
            "no Prefect server is configured, so there is nobody to ask: set PREFECT_API_URL (`prefect cloud login` does), go "
            'through the control plane (`fleet connect -- fleet …`), or to a local cloud that is up (`eval "$(fleet local env)"`)'
        )


def the_account(name: str) -> FleetAccount:
    """The block. AccountUnknown. Also what `asking_prefect` raises."""
    from fleet.importing import undisturbed

    with undisturbed():
        from blocks.account import fleet_account
    with asking_prefect():
        return fleet_account(name)


@contextmanager
def asking_prefect() -> Iterator[None]:
    """Around whatever asks Prefect's API. NoServer: none is configured. ServerUnreachable: nobody answers there."""
    import httpx

    from fleet.account.change import ServerUnreachable

    url = prefect_api()
    if not url:
        raise NoServer()
    try:
        yield
    except httpx.HTTPError as error:
        raise ServerUnreachable(url=url, why=str(error) or type(error).__name__) from error


def prefect_api() -> str | None:
    """Address of the Prefect API that the settings name; None: none, and one that Prefect would start unasked doesn't count."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url
