"""The environment variables of a local cloud: what its own processes see, and what a command needs that works with it.

Nothing of the person's Prefect profile or AWS configuration gets through: every variable of theirs is dropped, and the files
that both libraries would look for in the home folder are looked for in the cloud's own folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from fleet.local import preset
from fleet.local.ending import mark
from fleet.services.settings import server_on_sqlite

PREFECT = "PREFECT"
FOREIGN = (PREFECT, "AWS_")
"""Prefixes of variables that would lead a process to another Prefect server or another AWS account."""

ADMINISTRATOR = "local-cloud"
"""Access key and secret of the one who owns the emulated account; the emulator takes any that it didn't hand to an instance."""

LOOPBACK = "127.0.0.1,localhost"


def own(environ: Mapping[str, str], *, folder: Path, part: str, cache: Path) -> dict[str, str]:
    """`environ` for the part `part` of the cloud in `folder`: the person's, without what is foreign, with the cloud's mark."""
    kept = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    if sys.dont_write_bytecode:
        # Without byte code each of our processes takes twice as long to import Prefect: so it is kept, but in the cache.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        kept.setdefault("PYTHONPYCACHEPREFIX", str(cache / "bytecode"))
    return {
        **kept,
        **around_proxies(environ),
        **mark(folder, part),
        "FLEET_CACHE_DIR": str(cache),
        "DO_NOT_TRACK": "1",
    }


def around_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep loopback traffic from a proxy that is set in `environ`."""
    known = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    value = f"{known},{LOOPBACK}" if known else LOOPBACK
    return {"NO_PROXY": value, "no_proxy": value}


def aws(folder: Path, endpoint: str) -> dict[str, str]:
    """What boto3 needs to find the emulator at `endpoint`, and nothing else."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ADMINISTRATOR,
        "AWS_SECRET_ACCESS_KEY": ADMINISTRATOR,
        "AWS_DEFAULT_REGION": preset.REGION,
        "AWS_REGION": preset.REGION,
        "AWS_CONFIG_FILE": str(folder / "aws" / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "aws" / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def prefect(folder: Path, api: str) -> dict[str, str]:
    """What a Prefect client needs to find the server at `api`, and nothing else."""
    home = folder / "prefect"
    return {
        "PREFECT_API_URL": api,
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        # A server that starts unasked would hide that ours is gone.
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


def prefect_server(folder: Path, api: str, *, static: Path, prepared: bool) -> dict[str, str]:
    """The settings of a quiet server for one person, offline. `prepared`: its database has all tables and block types."""
    first = "false" if prepared else "true"
    return {
        **prefect(folder, api),
        **server_on_sqlite(database(folder)),
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": first,
        "PREFECT_API_BLOCKS_REGISTER_ON_START": first,
        "PREFECT_SERVER_UI_API_URL": api,
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(static),
    }


def pool_workers(folder: Path, api: str, endpoint: str) -> dict[str, str]:
    """The settings of pool workers that a person waits for: they look for work, and at instances, once a second.

    Twice a second took an eighth of a core for as long as the cloud was up: a look for work costs the server some 30 ms, and two
    pools are looked at.
    """
    return {
        **prefect(folder, api),
        **aws(folder, endpoint),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_WORKER_HEARTBEAT_SECONDS": "5",
        "FLEET_POOL_POLL_SECONDS": "1",
        "FLEET_POOL_IDLE_SECONDS": "5",
        "FLEET_POOL_SWEEP_SECONDS": "10",
    }


def database(folder: Path) -> Path:
    """The Prefect server's SQLite file."""
    return folder / "prefect" / "prefect.db"
