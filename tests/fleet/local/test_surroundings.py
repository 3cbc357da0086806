"""The environment that instances are given, as data."""

from __future__ import annotations

from pathlib import Path

from fleet.local.surroundings import surroundings


def test_only_what_an_instance_needs_gets_through(tmp_path: Path) -> None:
    """Keys, paths and profiles stay; proxies, certificates, Docker's address and package sources pass."""
    person = {
        "PATH": "/bin",
        "AWS_SECRET_ACCESS_KEY": "s",
        "PYTHONPATH": "/p",
        "PREFECT_API_KEY": "s",
        "ANTHROPIC_API_KEY": "s",
        "HTTPS_PROXY": "http://proxy",
        "NO_PROXY": "internal",
        "SSL_CERT_FILE": "/ca.pem",
        "DOCKER_HOST": "unix:///d.sock",
        "UV_INDEX_STRATEGY": "first-index",
    }
    found = surroundings(person, tmp_path)
    assert found == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy",
        "NO_PROXY": "internal,127.0.0.1,localhost",
        "no_proxy": "internal,127.0.0.1,localhost",
        "SSL_CERT_FILE": "/ca.pem",
        "DOCKER_HOST": "unix:///d.sock",
        "UV_INDEX_STRATEGY": "first-index",
        "FLEET_CACHE_DIR": str(tmp_path / ".cache" / "inspect-fleet"),
        "UV_CACHE_DIR": str(tmp_path / ".cache" / "uv"),
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / ".local" / "share" / "uv" / "python"),
        "FLEET_PCI_DEVICES": "/dev/null",
    }


def test_the_persons_own_cache_folders_are_shared(tmp_path: Path) -> None:
    """Where a variable names one, that one; also uv's settings file."""
    settings = tmp_path / "config" / "uv" / "uv.toml"
    settings.parent.mkdir(parents=True)
    settings.touch()
    person = {
        "XDG_CACHE_HOME": "/caches",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "UV_CACHE_DIR": "/uv",
        "FLEET_CACHE_DIR": "/fleet",
    }
    found = surroundings(person, tmp_path)
    assert (found["UV_CACHE_DIR"], found["FLEET_CACHE_DIR"]) == ("/uv", "/fleet")
    assert found["UV_CONFIG_FILE"] == str(settings)
    assert surroundings({"XDG_CACHE_HOME": "/caches"}, tmp_path)["FLEET_CACHE_DIR"] == "/caches/inspect-fleet"
