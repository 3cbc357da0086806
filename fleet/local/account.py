"""What the emulated account holds from its first moment: the images, and what the account's template makes.

It is the same template that `fleet setup` deploys to a real account, as a stack of the same name: so that `fleet setup` finds it
there, and an instance's calls are judged by the same policy text.
"""

from __future__ import annotations

from moto.cloudformation.models import cloudformation_backends
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instances import StateReason
from moto.ssm.models import ssm_backends

from fleet import __version__
from fleet.account.names import STACK
from fleet.account.template import template_text
from fleet.aws.images import CONTRACT, CONTRACT_TAG, VERSION_TAG
from fleet.local import preset


def fill_account() -> None:
    """Make all of it, on moto's own backends: no request, so no model of a service is loaded for it."""
    for image in preset.IMAGES:
        _add_image(image)
    cloudformation_backends[preset.ACCOUNT][preset.REGION].create_stack(
        name=STACK, template=template_text(), parameters=dict(preset.STACK_PARAMETERS)
    )
    ssm_backends[preset.ACCOUNT][preset.REGION].put_parameter(
        name=preset.IMAGE_PARAMETER,
        description="The worker image",
        value=preset.IMAGE,
        parameter_type="String",
        allowed_pattern="",
        keyid="",
        overwrite=False,
        tags=[],
        data_type="aws:ec2:image",
        tier=None,
        policies=None,
    )


def _add_image(image: preset.Image) -> None:
    ec2 = ec2_backends[preset.ACCOUNT][preset.REGION]
    ami = Ami(
        ec2,
        image.id,
        name=image.name,
        architecture=image.architecture,
        state=image.state,
        virtualization_type="hvm",
        hypervisor="xen",
        root_device_type="ebs",
        region_name=f"{preset.REGION}a",
        tags={CONTRACT_TAG: str(CONTRACT), VERSION_TAG: __version__},
    )
    if image.reason:  # moto knows no reason, but shows any attribute that AWS's answer has
        vars(ami)["state_reason"] = StateReason(image.reason, image.reason.split(":", 1)[0])
    ec2.amis[image.id] = ami
