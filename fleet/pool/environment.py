"""What an instance is told by environment variables: an allow-list, never the pool worker's own environment.

Prefect would hand every setting of the pool worker to the instance: its home, its database's address, its credentials for
the API in clear. User data can be read by whoever may describe the instance, so that a secret has no place in it at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from fleet.errors import RequestRefused

SECRET_ENDINGS = (
    "KEY",
    "KEY_ID",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIALS",
    "AUTH_STRING",
    "CONNECTION_URL",
)
"""Ends of names that hold secrets by custom; the last two are Prefect's own."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretInEnvironment(RequestRefused):
    """A plain environment variable looks as if it held a secret."""

    names: tuple[str, ...]

    def message(self) -> str:
        """One line: the names, never the values, and the way to go."""
        return (
            f"job variable env refused: {', '.join(self.names)} looks like a secret, and env is readable in user data "
            "and in Prefect. Name it among the run's secrets instead (`--secret NAME`, or a Worker Secrets block); the "
            "Prefect API key goes by api_key_parameter, a server's auth string by api_auth_parameter"
        )


class EnvironmentRefused(RequestRefused):
    """A plain environment variable can't be set by a shell."""

    name: str

    def message(self) -> str:
        """One line: the name, and what names look like."""
        return f"job variable env refused: {self.name!r} is no name for an environment variable"


class ApiUnreachable(RequestRefused):
    """The instance couldn't reach the Prefect API."""

    api_url: str
    why: str

    def message(self) -> str:
        """One line: the address, why it won't do, and where a good one goes."""
        return (
            f"the Prefect API address {self.api_url or '(none)'} won't do for an instance: {self.why}. Start the pool "
            "worker with a PREFECT_API_URL that instances can reach, or give one in the job variable env"
        )


def check_plain(env: Mapping[str, str | None]) -> None:
    """SecretInEnvironment or EnvironmentRefused: `env` has something that may not go into user data."""
    for name in env:
        if not NAME.fullmatch(name):
            raise EnvironmentRefused(name=name)
    if secret := tuple(sorted(name for name in env if looks_secret(name))):
        raise SecretInEnvironment(names=secret)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, by custom."""
    return name.upper().endswith(SECRET_ENDINGS)


def check_reachable(api_url: str | None, aws_endpoint: str) -> None:
    """ApiUnreachable: an instance behind `aws_endpoint` couldn't reach this Prefect API, or must not know its address."""
    if not api_url:
        raise ApiUnreachable(api_url="", why="none is set")
    parts = urlsplit(api_url)
    if parts.username or parts.password:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise ApiUnreachable(api_url=shown, why="it has a user or password in it, which user data would show")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ApiUnreachable(api_url=api_url, why="it is no http address")
    if is_loopback(parts.hostname) and not is_loopback(urlsplit(aws_endpoint).hostname or ""):
        raise ApiUnreachable(api_url=api_url, why="it is this machine's loopback, and the instance is another machine")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means the machine that uses it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def instance_environment(
    *,
    plain: Mapping[str, str | None],
    api_url: str | None,
    flow_run_id: str | None,
    region: str,
    flow_run_tag: str | None = None,
    code: str | None = None,
    code_sha256: str | None = None,
    log_folder: str | None = None,
    api_key_parameter: str | None = None,
    api_auth_parameter: str | None = None,
) -> dict[str, str]:
    """All that an instance is told, by name; what isn't set is left out. `plain` may name another Prefect API address.

    Which flow run it is for it is told by `flow_run_id`, or by `flow_run_tag`: the key of its own tag that will hold the id.
    """
    told: Iterable[tuple[str, str | None]] = (
        ("PREFECT_API_URL", api_url),
        *plain.items(),
        ("PREFECT__FLOW_RUN_ID", flow_run_id),
        ("FLEET_FLOW_RUN_TAG", flow_run_tag),
        ("AWS_DEFAULT_REGION", region),
        ("FLEET_REGION", region),
        ("FLEET_CODE", code),
        ("FLEET_CODE_SHA256", code_sha256),
        ("FLEET_LOG_FOLDER", log_folder),
        ("FLEET_API_KEY_PARAMETER", api_key_parameter),
        ("FLEET_API_AUTH_PARAMETER", api_auth_parameter),
    )
    return {name: value for name, value in dict(told).items() if value}
