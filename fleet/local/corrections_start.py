"""What moto is told before it is imported, and an import that doesn't load what nobody asks for.

moto reads its switches at import. It also loads, then, the instance type offerings of every region and botocore's list
of endpoints four times: some 0.5 s and 90 MB that the local cloud, in one region, has no use for.
"""

from __future__ import annotations

import functools
import gc
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet.local.corrections import check_release, replace
from fleet.local.preset import REGION

SWITCHES = {
    # AWS refuses an image or a type it doesn't know; moto launches it unless told otherwise.
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    # The account has its own images; moto's 1,300 public ones cost 20 MB and are in no real account's way.
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    # Above this size an object goes to a file: at moto's 5 MB, a thousand results of 1 MB would take 1.1 GB of memory.
    "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": "65536",
}


def import_moto() -> None:
    """Import the services that the local cloud serves most, under SWITCHES. Call once, before anything imports moto.

    EmulatorUnknown: another release of it is installed.
    """
    os.environ.update(SWITCHES)
    check_release()
    _raise_file_limit()
    _import_lean()
    gc.freeze()  # what was imported stays: a full collection need not walk it again


def _raise_file_limit() -> None:
    # Each larger object of S3 holds a file open.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Offerings(dict[str, Any]):
    """Offerings by region, of which those of other regions than ours are read when they are asked for."""

    def __init__(self, location: str, known: dict[str, Any]) -> None:
        super().__init__(known)
        self._location = location

    def __missing__(self, region: str) -> list[dict[str, Any]]:
        from moto.utilities.utils import load_resource

        try:
            found: list[dict[str, Any]] = load_resource(
                f"ec2/resources/instance_type_offerings/{self._location}/{region}.json"
            )
        except FileNotFoundError:
            found = []
        offerings = [{**offering, "LocationType": self._location} for offering in found]
        self[region] = offerings
        return offerings

    def get(self, region: str, default: Any = None) -> Any:
        return self[region] or default


def _import_lean() -> None:
    import moto.utilities.utils as utilities
    from botocore.loaders import JSONFileLoader

    def of_our_region(resource: str) -> Any:
        others = "/instance_type_offerings/" in resource and not Path(resource).name.startswith(REGION)
        return [] if others else own_resource["load_resource"](resource)

    @functools.cache
    def endpoints(path: str) -> Any:
        return own_file["load_file"](JSONFileLoader(), path)

    def load_file(self: JSONFileLoader, path: str) -> Any:
        return endpoints(path) if Path(path).name == "endpoints" else own_file["load_file"](self, path)

    own_resource = replace(utilities, load_resource=of_our_region)
    own_file = replace(JSONFileLoader, load_file=load_file)  # for good: each session reads that list
    try:
        import moto.ec2.responses
        import moto.iam.responses
        import moto.moto_server.werkzeug_app
        import moto.s3.responses
        import moto.sqs.responses
        import moto.ssm.responses
        import moto.sts.responses  # noqa: F401
        from moto.ec2.models import instance_types
    finally:
        replace(utilities, **own_resource)
    replace(instance_types, **own_resource)
    offerings = instance_types.INSTANCE_TYPE_OFFERINGS
    for location in list(offerings):
        offerings[location] = _Offerings(location, {REGION: offerings[location].get(REGION, [])})
