"""The environment that an instance's processes start with: that of a fresh machine, and what this machine's network needs.

Nothing of the user's AWS configuration, Python path or Prefect profile gets in. Caches are shared, so that an instance need not
fetch again what this machine has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fleet.cache import cache_folder
from fleet.local.environment import around_proxies

NETWORK = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
        *("DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "LANG", "LC_ALL", "TZ"),
    }
)
INSTALLERS = ("UV_", "PIP_")
"""Prefixes: where packages come from on this machine."""


def surroundings(user: Mapping[str, str], home: Path) -> dict[str, str]:
    """What every instance gets from the environment `user`, whose home folder is `home`."""
    cache = Path(user.get("XDG_CACHE_HOME") or home / ".cache")
    data = Path(user.get("XDG_DATA_HOME") or home / ".local" / "share")
    kept = {name: value for name, value in user.items() if name in NETWORK or (name.startswith(INSTALLERS) and value)}
    found = {
        "LANG": "C.UTF-8",
        "PATH": user.get("PATH", os.defpath),
        **around_proxies(user),
        "FLEET_CACHE_DIR": str(cache_folder(user, home)),
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_PYTHON_INSTALL_DIR": str(data / "uv" / "python"),
        "FLEET_PCI_DEVICES": user.get("FLEET_PCI_DEVICES", os.devnull),  # a machine's GPU is none of its instances'
        **kept,
    }
    settings = Path(user.get("XDG_CONFIG_HOME") or home / ".config") / "uv" / "uv.toml"
    if "UV_CONFIG_FILE" not in found and settings.is_file():
        found["UV_CONFIG_FILE"] = str(settings)
    return found
