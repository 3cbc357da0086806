"""What Inspect finds here by name: the entry point of this package."""

from fleet_examples.elements import elements
from fleet_examples.elements_shell import elements_shell
from fleet_examples.scripted.provider import scripted

__all__ = ["elements", "elements_shell", "scripted"]
