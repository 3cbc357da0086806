"""What the ec2 pool is told about a fleet's instances: exactly what the run's options and the account say."""

from __future__ import annotations

from blocks.account import FleetAccount
from blocks.ec2_config import Ec2Config
from fleet.evals.documents import WorkerOrder
from fleet.evals.preparation import EVAL_TAG, OWNER_TAG, RUN_TAG
from fleet.pool.variables import EC2JobConfiguration
from flows.launch_fleet import job_variables
from tests.worker_order import ORDER

ACCOUNT = FleetAccount(bucket="bucket", subnets=["subnet-1"], security_groups=["sg-1"])
CODE = "0" * 64


def variables(config: Ec2Config, order: WorkerOrder = ORDER) -> EC2JobConfiguration:
    return EC2JobConfiguration(
        **job_variables(order, "ami-0123456789abcdef0", config, ACCOUNT, owner="r.one@example.org", code=CODE)
    )


def test_every_option_of_an_instance_reaches_the_pool() -> None:
    config = Ec2Config(
        instance_type="m7i.large",
        instance_type_fallbacks=["m6i.large"],
        region=ACCOUNT.region,
        spot=True,
        volume_gb=250,
        max_hours=3,
        boot_seconds=60,
    )
    found = variables(config, ORDER.model_copy(update={"region": ACCOUNT.region}))
    assert found.instance_types == ["m7i.large", "m6i.large"]
    assert (found.market, found.volume_gb, found.max_hours, found.boot_seconds) == ("spot", 250, 3, 60)
    assert (found.subnets, found.security_groups) == (["subnet-1"], ["sg-1"])
    assert (found.region, found.image) == (ACCOUNT.region, "ami-0123456789abcdef0")


def test_an_instance_is_tagged_with_run_evals_and_owner_beside_the_persons_own() -> None:
    tags = variables(Ec2Config(tags={"team": "evals"})).tags
    assert tags == {
        "team": "evals",
        RUN_TAG: ORDER.run,
        EVAL_TAG: " ".join(ORDER.eval_ids),
        OWNER_TAG: "r.one@example.org",
    }
