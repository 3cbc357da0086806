"""What a person can do about a refused launch: one sentence for each class of EC2's error codes. Decides only.

A class is chosen by the code alone. EC2's own words only fill the sentence in: which action was refused, say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.aws.commands import fleet_command
from fleet.aws.failures import BAD_CREDENTIALS, DENIED, NO_CREDENTIALS, NOT_VALIDATED, RENEWAL

UNVERIFIED = frozenset({"OptInRequired", "PendingVerification", "Blocked", "AccountDisabled"})
"""The account, or its use of this region, isn't ready."""
NO_SPOT_ROLE = frozenset({"AuthFailure.ServiceLinkedRoleCreationNotPermitted"})
"""The account has never had a spot instance, and this identity may not make the role that they need."""
OVER_QUOTA = frozenset(
    {"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "SpotInstanceCountLimitExceeded", "VcpuLimitExceeded"}
)
"""An account's limit of instances or vCPUs. Limits count by family and market, so that another candidate may be within its own."""
VOLUME_QUOTA = frozenset({"MaxIOPSLimitExceeded", "VolumeLimitExceeded", "SnapshotLimitExceeded"})
"""An account's limit of storage."""
WITHOUT_A_KEY = frozenset(
    {
        "InvalidKmsKey.InvalidState",
        "InvalidKMSKey.InvalidState",
        "Client.InvalidKMSKey.InvalidState",
        "Client.InternalError",
        "KMSKeyNotAccessibleFault",
        "InvalidKmsKeyId.Malformed",
        "DisabledKMSKeyFault",
    }
)
"""The key of an encrypted volume can't be used. As the StateReason of an instance that ended while it was started, too."""
TEMPLATES = frozenset(
    {
        "InvalidLaunchTemplateId.Malformed",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.AlreadyExistsException",
        "InvalidLaunchTemplateName.MalformedException",
        "InvalidLaunchTemplateName.NotFoundException",
    }
)
"""About the launch template of a spot fleet, which is made for one group of launches and removed with it."""
TAGS = frozenset({"TagLimitExceeded", "InvalidTagKey.Malformed", "TagPolicyViolation"})
"""Tags that EC2, or the organization's tag policy, doesn't take."""
LEFT_OVER = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})
"""A token of ours that EC2 has seen with other parameters."""

BAD_PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed", "InvalidAMIName.NotFound"),
        "Name another image by the job variable image, or build one: {build}",
    ),
    **dict.fromkeys(
        (
            "InvalidGroup.NotFound",
            "InvalidGroupId.Malformed",
            "InvalidSecurityGroupID.NotFound",
            "InvalidSecurityGroupId.Malformed",
            "SecurityGroupLimitExceeded",
            "SecurityGroupsPerInterfaceLimitExceeded",
        ),
        "Correct the job variable security_groups: ids of groups in the subnets' VPC, or none, to have one made",
    ),
    **dict.fromkeys(
        (
            "InvalidSubnet",
            "InvalidSubnetID.NotFound",
            "InvalidSubnetId.Malformed",
            "VPCIdNotSpecified",
            "VPCResourceNotSpecified",
        ),
        "Correct the job variable subnets: ids of subnets in this region, or none, for the default VPC's",
    ),
    **dict.fromkeys(
        ("InvalidKeyPair.NotFound", "InvalidKeyPair.Format"),
        "Instances of a pool have no key pair: something between this pool worker and EC2 adds one",
    ),
    **dict.fromkeys(
        (
            "InvalidIamInstanceProfileArn.Malformed",
            "InvalidIamInstanceProfileName",
            "InvalidIamInstanceProfileName.Malformed",
            "NoSuchEntity",
        ),
        "Correct the job variable instance_profile; fleet setup makes the profile inspect-fleet-worker (a new one is known to EC2 "
        "after some seconds)",
    ),
    **dict.fromkeys(
        ("InvalidBlockDeviceMapping", "InvalidSnapshot.NotFound", "InvalidVolume.ZoneMismatch"),
        "Correct the job variable volume_gb, which can't be smaller than the image, or build a new image: {build}",
    ),
    **dict.fromkeys(
        (
            "InvalidParameterValue",
            "InvalidParameterCombination",
            "InvalidParameter",
            "MissingParameter",
            "InvalidInput",
            "InvalidInstanceType",
            "InvalidAction",
            "UnknownParameter",
            "UnsupportedOperation",
        ),
        "Correct the job variable that EC2 names: instance_types, image, subnets, security_groups, instance_profile, volume_gb",
    ),
}
"""Codes of a wrong parameter, and where it is set. `{build}`: the command that builds an image."""

UNKNOWN = "It isn't tried again, since a retry nobody can explain is a bill nobody can explain"

STANDARD = (
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
)
G_AND_VT = ("Running On-Demand G and VT instances", "All G and VT Spot Instance Requests")
NO_SPOT = ""
"""The guide lists no spot quota for these."""
QUOTAS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), STANDARD),
    "dl": ("Running On-Demand DL instances", "All DL Spot Instance Requests"),
    "f": ("Running On-Demand F instances", "All F Spot Instance Requests"),
    **dict.fromkeys(("g", "gr", "vt"), G_AND_VT),
    "hpc": ("Running On-Demand HPC instances", NO_SPOT),
    "inf": ("Running On-Demand Inf instances", "All Inf Spot Instance Requests"),
    "p": ("Running On-Demand P instances", NO_SPOT),  # by generation: `P_SPOT`
    "trn": ("Running On-Demand Trn instances", "All Trn Spot Instance Requests"),
    "u": ("Running On-Demand High Memory instances", NO_SPOT),
    "x": ("Running On-Demand X instances", "All X Spot Instance Requests"),
}
"""By the letters that a type begins with: the names of its on-demand and its spot quota, in vCPUs. All that EC2's user guide lists
under "On-Demand Instance quotas" (ec2-on-demand-instances.html) and "Spot Instance quotas" (using-spot-limits.html).
"""
P_SPOT: Mapping[str, str] = {
    **dict.fromkeys("234", "All P4, P3 and P2 Spot Instance Requests"),
    "5": "All P5 Spot Instance Requests",
}
"""The spot quotas of P types, by generation. The guide lists none for later ones."""
_ACTION = re.compile(r"perform: ([a-z0-9-]+:[A-Za-z]+)")


def advice(code: str, why: str, region: str, instance_type: str, market: str) -> str:
    """What helps against a refusal of this code, as a sentence without its full stop where it ends in a command or address."""
    if code in NO_SPOT_ROLE:
        return (
            "The account's first spot instance needs a role of EC2's own; an administrator makes it once: "
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com (or launch on-demand: market)"
        )
    if code in OVER_QUOTA:
        name = quota_name(instance_type, market)
        quota = f"quota '{name}'" if name else f"quota of vCPUs for {market} instances of {instance_type}'s family"
        return (
            f"The account's {quota} is used up: ask for more at "
            f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas, or ask for fewer workers."
        )
    if code in VOLUME_QUOTA:
        return (
            "The account's quota of gp3 volumes is used up: ask for more at "
            f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ebs/quotas, or lower volume_gb"
        )
    if code in UNVERIFIED:
        return (
            f"The account can't launch in {region} yet: AWS verifies a new account, or its first use of a region, within hours "
            "and writes to its e-mail address; a region that is off by default is switched on under Account, AWS Regions"
        )
    if code in WITHOUT_A_KEY:
        return (
            "The volume is encrypted with a key that can't be used: the KMS key that EBS uses by default in this region must be "
            "enabled, and this identity allowed kms:CreateGrant, kms:Decrypt and kms:GenerateDataKeyWithoutPlaintext on it"
        )
    if code in NOT_VALIDATED:
        return (
            f"EC2 in {region} can't validate these credentials, or the image, subnet or security group is another account's. Renew "
            f"the pool worker's AWS credentials {RENEWAL}"
        )
    if code in DENIED:
        action = found[1] if (found := _ACTION.search(why)) else "ec2:RunInstances"
        return (
            f"This AWS identity lacks {action}, or a policy of the organization forbids it: the policy inspect-fleet-launcher has "
            "all that a pool worker needs (docs/iam.md)"
        )
    if code in BAD_CREDENTIALS or code in NO_CREDENTIALS:
        return f"Renew the pool worker's AWS credentials {RENEWAL}"
    if code in TAGS:
        return "Correct the job variable tags: EC2 takes 50 tags on an instance, and the organization may have rules of its own"
    if code in TEMPLATES:
        return (
            "The launch template of this spot fleet (its name begins with inspect-fleet-) was changed or removed by others, "
            "or isn't known to all of EC2 yet: run it again; what is left of it, fleet reap removes"
        )
    if code in LEFT_OVER:
        return "A launch of before has left its mark: run it again"
    return BAD_PARAMETERS.get(code, UNKNOWN).format(build=fleet_command(region, "image", "build"))


def quota_name(instance_type: str, market: str) -> str:
    """The name of the quota that instances of this type count against, as Service Quotas has it. Empty: it isn't known."""
    begins = re.match(r"([a-z]+)(\d?)", instance_type)
    letters, generation = begins.groups() if begins else ("", "")
    on_demand, spot = QUOTAS.get(letters, ("", ""))
    if market == "on-demand":
        return on_demand
    return P_SPOT.get(generation, NO_SPOT) if letters == "p" else spot
