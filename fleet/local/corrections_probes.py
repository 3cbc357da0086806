"""What a preflight asks, as AWS answers it: dry runs, and calls that are refused for what they ask, once it is known who may.

moto has no dry run for some of EC2's operations, and takes calls that AWS refuses: then a harmless question would make something.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, InvalidSubnetIdError
from moto.ec2.responses.instances import InstanceResponse
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends
from moto.iam.responses import IamResponse
from moto.s3.exceptions import S3ClientError
from moto.s3.responses import S3Response
from moto.ssm.exceptions import SSMException
from moto.ssm.models import SimpleSystemManagerBackend

from fleet.local.corrections import replace
from fleet.local.preset import ACCOUNT


def correct_probes() -> None:
    """Put the corrections in place, once, behind those of EC2 and SSM."""
    _correct_dry_runs()
    _correct_patterns()
    _correct_digests()
    _add_simulation()


def _correct_dry_runs() -> None:
    def describe_instance_types(self: Any) -> Any:
        """moto answers a dry run with the types."""
        self.error_on_dryrun()
        return types(self)

    def describe_instance_type_offerings(self: Any) -> Any:
        """moto answers a dry run with the offerings."""
        self.error_on_dryrun()
        return offerings(self)

    def run_instances(self: Any) -> Any:
        """EC2 looks at the parameters of a dry run too: an unknown image, subnet, group or profile is refused as in earnest.

        DryRun "checks whether you have the required permissions for the action"; that it validates is seen, not documented.
        """
        if self._get_param("DryRun", False):
            _look_at(self)
        return run(self)

    own = replace(
        InstanceResponse,
        describe_instance_types=describe_instance_types,
        describe_instance_type_offerings=describe_instance_type_offerings,
        run_instances=run_instances,
    )
    types, offerings = own["describe_instance_types"], own["describe_instance_type_offerings"]
    run = own["run_instances"]


def _look_at(response: Any) -> None:
    ec2 = response.ec2_backend
    image = response._get_param("ImageId")  # noqa: SLF001
    if image:
        found = ec2.describe_images(ami_ids=[image])
        if not found or found[0].state != "available":
            raise EC2ClientError("InvalidAMIID.Unavailable", f"The image ID '{image}' is no longer available")
    subnet = response._get_param("SubnetId")  # noqa: SLF001
    if subnet and not ec2.describe_subnets(filters={"subnet-id": [subnet]}):
        raise InvalidSubnetIdError(subnet)
    groups = response._get_param("SecurityGroupIds", [])  # noqa: SLF001
    if groups:
        ec2.describe_security_groups(group_ids=groups)  # refuses an unknown one
    profile = response._get_param("IamInstanceProfile", {})  # noqa: SLF001
    if profile:
        _look_at_profile(profile.get("Name") or str(profile.get("Arn", "")).rpartition("/")[2])


def _look_at_profile(name: str) -> None:
    try:
        iam_backends[ACCOUNT]["aws"].get_instance_profile(name)
    except NotFoundException as error:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        ) from error


def _correct_patterns() -> None:
    def put_parameter(
        self: Any,
        name: str,
        description: str,
        value: str,
        parameter_type: str,
        allowed_pattern: str | None,
        *others: Any,
        **named: Any,
    ) -> Any:
        """A value that doesn't fit its AllowedPattern is a ParameterPatternMismatchException (moto takes it)."""
        if allowed_pattern and not re.search(allowed_pattern, value):
            raise SSMException(
                "ParameterPatternMismatchException",
                f"Parameter value, cannot be validated against allowedPattern: {allowed_pattern}",
            )
        return put(self, name, description, value, parameter_type, allowed_pattern, *others, **named)

    put = replace(SimpleSystemManagerBackend, put_parameter=put_parameter)["put_parameter"]


def _correct_digests() -> None:
    def put_object(self: Any) -> Any:
        """A Content-MD5 that isn't the content's is BadDigest, and nothing is stored (moto doesn't look)."""
        said = self.headers.get("Content-MD5")
        body = self.body.encode() if isinstance(self.body, str) else self.body or b""
        if said and said != base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode():
            raise S3ClientError("BadDigest", "The Content-MD5 you specified did not match what we received.")
        return put(self)

    put = replace(S3Response, put_object=put_object)["put_object"]


def _add_simulation() -> None:
    def simulate_principal_policy(self: Any) -> ActionResult:
        """moto lacks it. A person of the local cloud may do anything here, as the calls themselves show."""
        actions = self._get_param("ActionNames", [])
        results = [{"EvalActionName": action, "EvalDecision": "allowed"} for action in actions]
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})

    IamResponse.simulate_principal_policy = simulate_principal_policy  # type: ignore[attr-defined]
