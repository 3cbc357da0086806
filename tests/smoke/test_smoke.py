"""The smoke test's own logic, and the whole of it on the local cloud."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import cast

import pytest

from fleet.evals.site import Site
from tests.cloud import CloudUnderTest
from tests.smoke.__main__ import run_checks
from tests.smoke.bill import Bill, wasted
from tests.smoke.checks import CHECKS, Check, CheckFailed, Smoke


def a_smoke() -> Smoke:
    return Smoke(
        site=cast("Site", None),
        account="default",
        instance_type="t3.small",
        max_hours=0.5,
        hourly=None,
        ends=time.monotonic() + 60,
    )


def fails(_: Smoke) -> str:
    raise CheckFailed("it is broken")


def nothing(_: Smoke) -> str:
    return ""


def test_the_worst_bill_is_what_the_instances_cost_to_the_end_of_their_lives() -> None:
    assert Bill(instances=4, max_hours=0.5, hourly=0.0208).worst == pytest.approx(0.0416)
    unknown = Bill(instances=4, max_hours=0.5, hourly=None)
    assert unknown.worst == pytest.approx(0.2)
    assert "unknown price" in unknown.line()


def test_what_a_late_fault_costs_is_told_in_dollars_where_the_price_is_known() -> None:
    assert wasted(15, 0.714) == "24 instances for 15 minutes, $4.28"
    assert wasted(60, None, instances=1) == "1 instance for 60 minutes"


def test_after_a_failed_check_only_the_clean_up_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        Check("first", fails, without=nothing),
        Check("second", lambda _: "ran all the same", without=nothing),
        Check("last", lambda _: "clean", without=lambda _: "a bill", always=True),
    ]
    assert run_checks(a_smoke(), checks) is False
    said = capsys.readouterr().out
    assert "FAILED  first (0 s): it is broken" in said
    assert "second: not run" in said
    assert "ran all the same" not in said
    assert "ok  last (0 s): clean" in said
    assert "without it: a bill" in said


def test_an_error_that_nobody_foresaw_fails_its_check_and_keeps_nobody_from_cleaning_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def breaks(_: Smoke) -> str:
        raise ConnectionError("Prefect is away")

    checks = [
        Check("first", breaks, without=nothing),
        Check("last", lambda _: "clean", without=nothing, always=True),
    ]
    assert run_checks(a_smoke(), checks) is False
    said = capsys.readouterr().out
    assert "FAILED  first (0 s): ConnectionError: Prefect is away" in said
    assert "ok  last (0 s): clean" in said


def test_the_last_check_is_that_nothing_is_left_and_it_is_never_left_out() -> None:
    assert CHECKS[-1].name == "nothing left"
    assert [check.name for check in CHECKS if check.always] == ["nothing left"]


@pytest.mark.long
@pytest.mark.cloud
@pytest.mark.timeout(600)
@pytest.mark.fault("instance-dies")
def test_the_smoke_test_passes_on_the_local_cloud(cloud: CloudUnderTest) -> None:
    """The same program, pointed at another account: what `make smoke-aws` does is what is run here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "AWS_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.smoke", "--yes"],
        env={**kept, **cloud.local.environment()},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n    ok  ") == len(CHECKS)
    assert "was killed at work; 20 samples, each once" in done.stdout
    assert "the instance was spot" in done.stdout
