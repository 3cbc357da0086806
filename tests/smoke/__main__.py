"""`make smoke-aws`: the product on a real account, in minutes and for cents.

It uses the credentials, region and Prefect server that the shell is set up for, and says before it starts what it may cost at
most. Every instance ends itself after half an hour, whatever becomes of this program.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import cast

from blocks.account import FleetAccount
from fleet.aws.prices import hourly_price
from tests.smoke.bill import Bill
from tests.smoke.checks import CHECKS, Check, CheckFailed, Smoke

INSTANCES = 4
"""One for the spot run, two for the other, and one in place of the killed one."""
USUAL_TYPE = "c7i.4xlarge"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks. 0: all is well; 1: one failed; 2: it wasn't begun."""
    asked = options(arguments)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    home = cast("FleetAccount", FleetAccount.load(asked.account))
    site = home.site(asked.region or home.region)
    bill = Bill(
        instances=INSTANCES,
        max_hours=asked.max_hours,
        hourly=hourly_price(site.aws, asked.instance_type, spot=False),
    )
    say(f"smoke test in {site.region} with {asked.instance_type}: {bill.line()}, within {asked.max_minutes:g} minutes")
    if bill.worst > asked.max_dollars:
        say(f"refused: that is more than ${asked.max_dollars:.2f}; take a smaller --instance-type or --max-hours")
        return 2
    if not asked.yes and not agreed():
        return 2
    smoke = Smoke(
        site=site,
        account=asked.account,
        instance_type=asked.instance_type,
        max_hours=asked.max_hours,
        hourly=hourly_price(site.aws, USUAL_TYPE, spot=False),
        ends=time.monotonic() + 60 * asked.max_minutes,
    )
    return 0 if run_checks(smoke, CHECKS) else 1


def run_checks(smoke: Smoke, checks: Sequence[Check]) -> bool:
    """Whether all of them passed. After one that failed, only those that always run are run."""
    passed = True
    for check in checks:
        if not passed and not check.always:
            say(f"  –  {check.name}: not run, since an earlier check failed")
            continue
        began = time.monotonic()
        try:
            seen, mark = check.run(smoke), "ok"
        except CheckFailed as failed:
            seen, mark, passed = str(failed), "FAILED", False
        except Exception as error:  # noqa: BLE001  a bug, or a service that is away: what was begun is looked after all the same
            seen, mark, passed = f"{type(error).__name__}: {error}", "FAILED", False
        say(f"{mark:>6}  {check.name} ({time.monotonic() - began:.0f} s): {seen}")
        say(f"        without it: {check.without(smoke)}")
    return passed


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.smoke", description=__doc__)
    parser.add_argument("--account", default="default", help="name of the Fleet Account block")
    parser.add_argument("--region", help="region of the fleet, by default the account's")
    parser.add_argument("--instance-type", default="t3.small", help="the smallest with enough memory for Inspect")
    parser.add_argument("--max-hours", type=float, default=0.5, help="lifetime of each instance")
    parser.add_argument("--max-minutes", type=float, default=25.0, help="time of the whole test")
    parser.add_argument("--max-dollars", type=float, default=1.0)
    parser.add_argument("--yes", action="store_true", help="don't ask")
    return parser.parse_args(arguments)


def agreed() -> bool:
    """Whether the person at the terminal wants it."""
    if not sys.stdin.isatty():
        say("refused: nobody is there to agree; pass --yes")
        return False
    return input("go on? [y/N] ").strip().lower() in ("y", "yes")


def say(line: str) -> None:
    """To the person who watches."""
    print(line, flush=True)  # noqa: T201 - a program for the terminal


if __name__ == "__main__":
    sys.exit(main())
