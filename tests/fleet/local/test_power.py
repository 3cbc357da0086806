"""What `shutdown` and its kin mean, as in shutdown(8)."""

from __future__ import annotations

from datetime import datetime

import pytest

from fleet.local.power import PowerRequest, read_power

NOW = datetime(2026, 1, 1, 23, 30)


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("shutdown -h now", PowerRequest("off", 0)),
        ("shutdown now", PowerRequest("off", 0)),
        ("shutdown", PowerRequest("off", 1)),
        ("shutdown -h +1440", PowerRequest("off", 1440)),
        ("shutdown -P 5", PowerRequest("off", 5)),
        ("shutdown --poweroff +5 it ends in five minutes", PowerRequest("off", 5)),
        ("shutdown 23:45", PowerRequest("off", 15)),
        ("shutdown 00:10", PowerRequest("off", 40)),
        ("shutdown -r now", PowerRequest("reboot", 0)),
        ("shutdown --reboot +2", PowerRequest("reboot", 2)),
        ("shutdown -c", PowerRequest("cancel")),
        ("shutdown -k now", None),
        ("shutdown tomorrow", None),
        ("shutdown 25:00", None),
        ("poweroff", PowerRequest("off")),
        ("halt -p", PowerRequest("off")),
        ("reboot", PowerRequest("reboot")),
    ],
)
def test_a_power_command_means_what_its_manual_says(line: str, meaning: PowerRequest | None) -> None:
    """Time in minutes from now; a message after it is ignored; what isn't understood does nothing."""
    command, *arguments = line.split()
    assert read_power(command, arguments, NOW) == meaning
