"""Private addresses of instances: each has a loopback address of its own, so that what one serves, the others reach.

The whole of 127.0.0.0/8 is this machine. Ports need not differ: a server of an instance binds its own private address.
"""

from __future__ import annotations

import hashlib
from typing import Any

from moto.ec2.models.instances import Instance

from fleet.local.corrections import replace


def correct_network() -> None:
    """Put the correction in place, once."""

    def prep_nics(self: Instance, *arguments: Any, **named: Any) -> None:
        """moto gives an address of the subnet, which nothing on this machine has."""
        original(self, *arguments, **named)
        network = self.nics[0]
        network.private_ip_address = loopback_address(self.id)
        for address in network.private_ip_addresses:
            if address.get("Primary"):
                address["PrivateIpAddress"] = network.private_ip_address

    original = replace(Instance, prep_nics=prep_nics)["prep_nics"]


def loopback_address(instance: str) -> str:
    """The private address of an instance: by its id, which is random, so that several clouds on one machine don't meet."""
    high, middle, low = hashlib.sha256(instance.encode()).digest()[:3]
    # 127.0.x.y is where a person's own programs listen; .0 and .255 look like a network's.
    return f"127.{high % 255 + 1}.{middle}.{low % 254 + 1}"
