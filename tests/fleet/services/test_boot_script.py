"""The control plane's user data: small, clean, the same in the account's template, and a loop that nothing ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from fleet.account.template import meaning, template_text
from fleet.services.control_plane import ORDER_PARAMETER, boot_script, user_data

BIN = Path(sys.executable).parent


def test_it_stays_below_four_kilobytes() -> None:
    assert len(user_data("ap-southeast-99", "/" + "p" * 200).encode()) < 4096


def test_the_linters_find_nothing() -> None:
    script = user_data("us-east-1")
    for check in ([str(BIN / "shellcheck"), "-"], [str(BIN / "shfmt"), "-d", "-i", "4"]):
        done = subprocess.run(check, input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def test_the_accounts_template_boots_the_very_same() -> None:
    resources: dict[str, Any] = meaning(template_text())["Resources"]
    data = resources["ControlPlaneTemplate"]["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]["!Join"]
    separator, (shebang, region, order, script) = data
    assert separator == "\n"
    assert region == {"!Sub": "export AWS_DEFAULT_REGION=${AWS::Region}"}
    told = region["!Sub"].replace("${AWS::Region}", "eu-west-1")
    assert separator.join([shebang, told, order, script]) == user_data("eu-west-1", ORDER_PARAMETER)


def test_it_tries_again_until_it_is_ended_and_never_powers_off(tmp_path: Path) -> None:
    """Neither a missing order nor a program that fails ends it."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, body in {
        # The first two times there is no order; then the program ends with 3, until it has been started twice.
        "fleet-python": """
            echo "$1" >>"$HOME/calls"
            if [ "$1" = - ]; then
                cat >/dev/null
                [ "$(grep -c -- ^-$ "$HOME/calls")" -gt 2 ] || exit 1
                echo "$HOME"
            else
                [ "$(grep -c -- ^-m "$HOME/calls")" -gt 2 ] && kill $PPID
                exit 3
            fi
        """,
        "shutdown": 'touch "$HOME/powered-off"',
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}")
        (commands / name).chmod(0o755)
    script = tmp_path / "user-data"
    script.write_text(user_data("us-east-1"))
    environment = {"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(tmp_path), "FLEET_RESTART_SECONDS": "0"}
    done = subprocess.run(["bash", script], env=environment, text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode < 0, "only a signal ends it"
    assert (tmp_path / "calls").read_text().split().count("-m") == 3
    assert "the control plane ended with exit code 3; it starts again" in done.stdout
    assert not (tmp_path / "powered-off").exists()
    assert boot_script() in user_data("us-east-1")
