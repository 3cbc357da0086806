"""How many instances a place of the emulated EC2 has room for. No end, unless a test says otherwise."""

from __future__ import annotations

from threading import Lock


class Rooms:
    """Room by type, market and subnet, each of which may be left open. Safe between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: dict[tuple[str, str, str], int] = {}

    def set(self, *, instance_type: str = "", market: str = "", subnet: str = "", count: int) -> None:
        """From now on there is room for so many more."""
        with self._lock:
            self._left[instance_type, market, subnet] = count

    def clear(self) -> None:
        """No end of room anywhere."""
        with self._lock:
            self._left.clear()

    def left(self, instance_type: str, market: str, subnet: str) -> int | None:
        """The room there is now; None: no end."""
        with self._lock:
            return min((self._left[key] for key in self._keys(instance_type, market, subnet)), default=None)

    def take(self, instance_type: str, market: str, subnet: str, count: int) -> None:
        """So many were launched."""
        with self._lock:
            for key in self._keys(instance_type, market, subnet):
                self._left[key] -= count

    def _keys(self, *place: str) -> list[tuple[str, str, str]]:
        return [
            key for key in self._left if all(not want or want == have for want, have in zip(key, place, strict=True))
        ]


ROOMS = Rooms()
"""The emulator's: one a process, as its account is."""
