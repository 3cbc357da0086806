"""EC2: the rules of a launch, the states of an instance, and the port (`MotoMachines`) through which the hypervisor moves them.

One lock covers all of EC2, IAM, STS and SSM: moto changes its dictionaries while other threads walk them. The server holds it
for each call; `MotoMachines` takes it too.
"""

# ruff: noqa: SLF001  (moto's internals are what is corrected here)

from __future__ import annotations

import base64
import contextlib
import copy
import json
import re
from collections.abc import Callable
from datetime import UTC
from threading import RLock
from typing import Any, Literal, cast

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2 import utils as ec2_utils
from moto.ec2.exceptions import EC2ClientError, MalformedAMIIdError, UnvailableAMIIdError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from fleet.local.corrections import replace
from fleet.local.machines import Credentials, End, Machine, Watcher
from fleet.local.preset import ACCOUNT

LOCK = RLock()

USER_DATA_BYTES = 16_384
CLIENT_TOKEN_CHARACTERS = 64
CONSOLE_BYTES = 65_536
AMI_ID = re.compile(r"ami-[0-9a-f]{8}(?:[0-9a-f]{9})?")
NOT_THE_REQUEST = frozenset({"ClientToken", "DryRun"})
"""Parameters in which two calls of one client token may differ."""

REASONS: dict[End, tuple[str, str]] = {
    "user": ("Client.UserInitiatedShutdown", "User initiated shutdown"),
    "itself": ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown"),
    "spot": ("Server.SpotInstanceTermination", "Spot instance termination"),
    "host": ("Server.InternalError", "Internal error on host"),
}
ENDING = {"shutting-down": 32, "stopping": 64}
LIVE = frozenset({"pending", "running"})


def correct_ec2(watcher: Watcher, console: Callable[[str], bytes]) -> MotoMachines:
    """Put the corrections in place, once. `console` gives an instance's output so far."""
    _correct_launch(watcher)
    _correct_images()
    _correct_filters()
    finish = _correct_end(watcher)

    def get_console_output(self: Any) -> ActionResult:
        """moto answers a sample; AWS the newest 64 KB that the instance wrote, also for an hour after its end."""
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        newest = console(instance.id)[-CONSOLE_BYTES:]
        output = Base64EncodedString.from_encoded_bytes(base64.b64encode(newest))
        return ActionResult({"InstanceId": instance.id, "Timestamp": utcnow(), "Output": output})

    replace(General, get_console_output=get_console_output)
    return MotoMachines(finish)


def _correct_launch(watcher: Watcher) -> None:
    launches: dict[tuple[str, str], tuple[str, Any]] = {}
    # moto writes "pending" over whatever state a launch answers with, also when a token is used again much later.
    del EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER["RunInstances.Reservation.Instances.Instance.State"]

    def run_instances(self: Any) -> ActionResult:
        """What AWS does and moto doesn't:

        - User data above 16 KB before encoding is refused: InvalidParameterValue.
        - As many instances as there is room for, at most MaxCount and at least MinCount (moto: MinCount).
        - A client token that was used gives back what it launched and launches nothing; with other parameters it is
          IdempotentParameterMismatch; above 64 characters InvalidParameterValue.
        - An image that isn't available (pending, failed, deregistered) is InvalidAMIID.Unavailable; one for another
          processor than the type's InvalidParameterValue, as is a type that doesn't exist.
        - Each instance has the profile (moto: the first), and is pending before it runs.
        """
        self.error_on_dryrun()
        lowest, most = _counts(self)
        _check_user_data(self)
        token, parameters = _token(self), json.dumps(_plain(self.params), sort_keys=True)
        key = (self.region, token)
        if token and key in launches:
            before, reservation = launches[key]
            if before != parameters:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            return ActionResult(reservation)
        _check_image(self)
        self.params = {**self.params, "MinCount": max(lowest, most)}
        reservation = original(self).result
        for instance in reservation.instances:
            instance._state = InstanceState("pending", 0)
        _share_profile(self.ec2_backend, reservation.instances)
        if token:
            launches[key] = (parameters, reservation)
        for instance in reservation.instances:
            watcher.launched(instance.id)
        return ActionResult(reservation)

    original = replace(InstanceResponse, run_instances=run_instances)["run_instances"]


def _counts(response: Any) -> tuple[int, int]:
    lowest, most = (int(response._get_param(name, 1)) for name in ("MinCount", "MaxCount"))
    if lowest > most:
        raise EC2ClientError("InvalidParameterCombination", f"minCount ({lowest}) is greater than maxCount ({most})")
    return lowest, most


def _check_user_data(response: Any) -> None:
    data = ec2_utils.parse_user_data(response._get_param("UserData"))
    if data is not None and len(base64.b64decode(str(data))) > USER_DATA_BYTES:
        raise EC2ClientError("InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES} bytes")


def _token(response: Any) -> str:
    token = str(response._get_param("ClientToken", ""))
    if len(token) > CLIENT_TOKEN_CHARACTERS:
        raise EC2ClientError(
            "InvalidParameterValue", f"ClientToken must have at most {CLIENT_TOKEN_CHARACTERS} characters"
        )
    return token


def _plain(parameters: Any) -> Any:
    """Parsed parameters as JSON can hold them, without those that aren't part of the request."""
    if isinstance(parameters, dict):
        return {key: _plain(value) for key, value in parameters.items() if key not in NOT_THE_REQUEST}
    if isinstance(parameters, list | tuple):
        return [_plain(value) for value in parameters]
    return parameters if isinstance(parameters, str | int | float | bool | None) else str(parameters)


def _check_image(response: Any) -> None:
    image = response._get_param("ImageId")
    kind = response._get_param("InstanceType", "m1.small")
    if kind not in INSTANCE_TYPES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
    if not image:
        return
    found = response.ec2_backend.describe_images(ami_ids=[image])
    if not found or found[0].state != "available":
        raise UnvailableAMIIdError(image)
    architectures = INSTANCE_TYPES[kind].get("ProcessorInfo", {}).get("SupportedArchitectures")
    if architectures and found[0].architecture not in architectures:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            f"architecture '{found[0].architecture}' of the specified AMI. Specify an instance type and an AMI that have "
            "matching architectures, and try again.",
        )


def _share_profile(backend: Any, instances: list[Instance]) -> None:
    first, *others = instances
    profile = cast("dict[str, str] | None", first.iam_instance_profile)
    if profile:
        for instance in others:
            backend.associate_iam_instance_profile(instance_id=instance.id, iam_instance_profile_arn=profile["Arn"])


def _correct_images() -> None:
    def describe_images(self: Any, ami_ids: list[str] | None = None, *others: Any, **filters: Any) -> Any:
        """An id that isn't `ami-` and 8 or 17 hexadecimal digits is InvalidAMIID.Malformed (moto: any `ami-…` passes)."""
        malformed = [ami for ami in ami_ids or [] if not AMI_ID.fullmatch(ami)]
        if malformed:
            raise MalformedAMIIdError(malformed)
        return original(self, ami_ids, *others, **filters)

    original = replace(AmiBackend, describe_images=describe_images)["describe_images"]


def _correct_filters() -> None:
    """DescribeInstances filters by client token and by market; an unknown filter is refused (moto: 500 for both)."""
    ec2_utils.filter_dict_attribute_mapping.update(
        {"client-token": "client_token", "instance-lifecycle": "lifecycle", "reservation-id": "reservation_id"}
    )

    def passes_filter_dict(instance: Any, filters: dict[str, Any]) -> bool:
        try:
            return bool(original(instance, filters))
        except NotImplementedError as error:
            names = ", ".join(sorted(filters))
            raise EC2ClientError("InvalidParameterValue", f"The filter is invalid (one of: {names})") from error

    original = replace(ec2_utils, passes_filter_dict=passes_filter_dict)["passes_filter_dict"]


def _correct_end(watcher: Watcher) -> Callable[[Instance], None]:
    def terminate(self: Instance) -> InstanceState:
        """An instance is shutting-down until the last of it is gone, then terminated (moto: terminated at once)."""
        return begin(self, "shutting-down")

    def stop(self: Instance) -> InstanceState:
        """Likewise stopping, then stopped."""
        return begin(self, "stopping")

    def begin(instance: Instance, state: Literal["shutting-down", "stopping"]) -> InstanceState:
        before = copy.copy(instance._state)
        if _begin_end(instance, state, "user"):
            watcher.must_end(instance.id)
        return before

    def finish(instance: Instance) -> None:
        reason, transition = instance.state_reason, instance._reason
        (original["stop"] if instance.state == "stopping" else original["terminate"])(instance)
        instance.state_reason, instance._reason = reason, transition

    original = replace(Instance, terminate=terminate, stop=stop)
    return finish


def _begin_end(instance: Instance, state: Literal["shutting-down", "stopping"], by: End) -> bool:
    """Turn a live (or stopped) instance to `state`, with its reason. False: it was on its way already."""
    from_states = LIVE | {"stopped", "stopping"} if state == "shutting-down" else LIVE
    if instance.state not in from_states:
        return False
    code, message = REASONS[by]
    instance._state = InstanceState(state, ENDING[state])
    instance.state_reason = StateReason(f"{code}: {message}", code)
    when = utcnow().strftime("%Y-%m-%d %H:%M:%S UTC")
    instance._reason = f"User initiated ({when})" if by == "user" else code
    return True


class MotoMachines:
    """`Machines` on moto's backends, in whichever region an instance is."""

    def __init__(self, finish: Callable[[Instance], None]) -> None:
        self._finish = finish

    def get(self, instance: str) -> Machine:
        """The instance now. KeyError: there is none of that id."""
        with LOCK:
            return _machine(self._find(instance))

    def booted(self, instance: str) -> Machine | None:
        """See `Machines.booted`."""
        with LOCK:
            found = self._find(instance)
            if found.state != "pending":
                return None
            found._state = InstanceState("running", 16)
            return _machine(found)

    def ending(self, instance: str, by: End) -> bool:
        """See `Machines.ending`."""
        with LOCK:
            found = self._find(instance)
            stops = by == "itself" and found.instance_initiated_shutdown_behavior == "stop"
            return _begin_end(found, "stopping" if stops else "shutting-down", by)

    def ended(self, instance: str) -> None:
        """See `Machines.ended`."""
        with LOCK:
            found = self._find(instance)
            if found.state in ENDING:
                self._finish(found)

    def credentials(self, instance: str, seconds: int) -> Credentials | None:
        """See `Machines.credentials`."""
        with LOCK:
            found = self._find(instance)
            profile = cast("dict[str, str] | None", found.iam_instance_profile)
            if not profile:
                return None
            role = iam_backends[ACCOUNT]["aws"].get_instance_profile(profile["Arn"].rsplit("/", 1)[1]).roles[0]
            session = sts_backends[ACCOUNT]["aws"].assume_role(
                region_name=found.region_name,
                role_session_name=instance,
                role_arn=role.arn,
                policy="",
                duration=seconds,
                external_id="",
            )
            return Credentials(
                role=role.name,
                access_key=session.access_key_id,
                secret_key=session.secret_access_key,
                token=session.session_token,
                updated=utcnow().replace(tzinfo=UTC),
                expires=session.expiration.replace(tzinfo=UTC),
            )

    @staticmethod
    def _find(instance: str) -> Instance:
        for backend in list(ec2_backends[ACCOUNT].values()):
            with contextlib.suppress(EC2ClientError):
                return backend.get_instance(instance)
        raise KeyError(instance)


def _machine(found: Instance) -> Machine:
    profile = cast("dict[str, str] | None", found.iam_instance_profile)
    reservations = found.ec2_backend.reservations.values()
    network = found.nics[0] if found.nics else None
    return Machine(
        id=found.id,
        region=found.region_name,
        zone=found.placement.zone or f"{found.region_name}a",
        state=found.state,
        image=found.image_id,
        type=found.instance_type,
        architecture=found.architecture or "x86_64",
        market="spot" if found.lifecycle == "spot" else "on-demand",
        user_data=base64.b64decode(str(found.user_data)) if found.user_data else b"",
        profile=profile["Arn"] if profile else None,
        private_ip=found.private_ip or "127.0.0.1",
        hostname=found.private_dns_name,
        mac=network.mac_address if network else "02:00:00:00:00:01",
        launched=found.launch_time.replace(tzinfo=UTC),
        launch_index=found.ami_launch_index,
        reservation=next((one.id for one in reservations if any(each is found for each in one.instances)), ""),
        security_groups=tuple(group.name for group in found.security_groups),
        tags={tag["key"]: tag["value"] for tag in found.get_tags()},
        tags_in_metadata=found.metadata_options.instance_metadata_tags == "enabled",
        metadata_enabled=found.metadata_options.http_endpoint == "enabled",
    )
