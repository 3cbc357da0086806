"""Is the worker image one that can boot now? Asked before anything is created; also on its own."""

from __future__ import annotations

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from blocks.account import FleetAccount, fleet_account
from blocks.ec2_config import Ec2Config
from fleet.aws.images import WorkerImage, check_image
from flows.passing import again


@flow(name="check-ami", flow_run_name="check AMI in {config.region}")
def check_ami(config: Ec2Config = Ec2Config(), account: str = "default") -> WorkerImage:
    """The image that a fleet with this configuration boots from.

    AmiRejected names the parameter, AMI, region and reason, and the command that builds one; VolumeTooSmall and
    InstanceTypeUnknown what to set instead.
    """
    deployment = fleet_account(account)
    image = look(deployment, deployment.settled(config))
    log = get_run_logger()
    log.info("%s", image.line())
    if image.doubt:
        log.warning("%s", image.doubt)
    return image


@task(name="look-at-image", task_run_name="look-at-image", cache_policy=NO_CACHE, **again())
def look(deployment: FleetAccount, config: Ec2Config) -> WorkerImage:
    """What AWS says of the image, judged."""
    return check_image(
        deployment.site(config.region).aws,
        requested=config.ami,
        default_parameter=deployment.image_parameter,
        instance_types=[config.instance_type, *config.instance_type_fallbacks],
        volume_gb=config.volume_gb,
    )
