"""One contract test for each rule of SSM parameters that moto doesn't keep; the docstring says AWS's rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.local import preset
from tests.fleet.local.conftest import Host


def arn(instance: str) -> str:
    return f"arn:aws:ec2:{preset.REGION}:{preset.ACCOUNT}:instance/{instance}"


def code_of(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("tier", "size", "accepted"),
    [
        ("Standard", 4096, True),
        ("Standard", 4097, False),
        ("Advanced", 8192, True),
        ("Advanced", 8193, False),
        ("Intelligent-Tiering", 4097, True),
    ],
)
def test_a_value_has_its_tiers_size(ssm: Any, unique: str, tier: str, size: int, accepted: bool) -> None:
    """4 KB in the standard tier, 8 KB in the advanced one; above: ValidationException."""
    parameters = {"Name": f"/{unique}/size", "Value": "x" * size, "Type": "SecureString", "Tier": tier}
    if accepted:
        ssm.put_parameter(**parameters)
    else:
        assert code_of(ssm.put_parameter, **parameters) == "ValidationException"


def test_the_standard_tier_is_the_default(ssm: Any, unique: str) -> None:
    """PutParameter without a tier writes to the standard one, in bytes of UTF-8."""
    value = "é" * 2049
    assert code_of(ssm.put_parameter, Name=f"/{unique}/a", Value=value, Type="String") == "ValidationException"


@pytest.mark.parametrize("call", ["get_parameters", "delete_parameters"])
def test_a_call_takes_ten_names(ssm: Any, call: str) -> None:
    """GetParameters and DeleteParameters: at most 10 names, else ValidationException; absent names are no error."""
    names = [f"/absent/{n}" for n in range(11)]
    assert code_of(getattr(ssm, call), Names=names) == "ValidationException"
    assert len(getattr(ssm, call)(Names=names[:10])["InvalidParameters"]) == 10


def test_an_instance_reads_the_parameter_that_carries_its_arn(
    host: Host, ssm: Any, launch: Callable[..., str], unique: str
) -> None:
    """The role's policy: ssm:GetParameter where the parameter's tag InstanceArn is the caller's own instance."""
    mine, other = launch(), launch()
    name = f"/inspect-fleet/instances/{unique}/secret"
    tags = [{"Key": "InstanceArn", "Value": arn(mine)}]
    ssm.put_parameter(Name=name, Value="s", Type="SecureString", Tags=tags)
    for requested in (name, f"arn:aws:ssm:{preset.REGION}:{preset.ACCOUNT}:parameter{name}"):
        found = host.as_instance("ssm", mine).get_parameter(Name=requested, WithDecryption=True)
        assert found["Parameter"]["Value"] == "s"
    assert code_of(host.as_instance("ssm", other).get_parameter, Name=name) == "AccessDeniedException"


def test_the_tag_may_come_later_than_the_parameter(
    host: Host, ssm: Any, launch: Callable[..., str], unique: str
) -> None:
    """Without its tag a parameter can't be read by the instance; with it, at the next try."""
    instance, name = launch(), f"/inspect-fleet/instances/{unique}/secret"
    mine = host.as_instance("ssm", instance)
    assert code_of(mine.get_parameter, Name=name) == "AccessDeniedException"  # a missing one has no tag either
    ssm.put_parameter(Name=name, Value="s", Type="SecureString")
    assert code_of(mine.get_parameter, Name=name) == "AccessDeniedException"
    tags = [{"Key": "InstanceArn", "Value": arn(instance)}]
    ssm.add_tags_to_resource(ResourceType="Parameter", ResourceId=name, Tags=tags)
    assert mine.get_parameter(Name=name)["Parameter"]["Name"] == name


def test_an_instance_lists_no_parameters(host: Host, ssm: Any, launch: Callable[..., str], unique: str) -> None:
    """GetParameters, GetParametersByPath and GetParameterHistory are denied to instances, its own parameter included."""
    instance, name = launch(), f"/inspect-fleet/instances/{unique}/secret"
    tags = [{"Key": "InstanceArn", "Value": arn(instance)}]
    ssm.put_parameter(Name=name, Value="s", Type="SecureString", Tags=tags)
    mine = host.as_instance("ssm", instance)
    for code in (
        code_of(mine.get_parameters, Names=[name]),
        code_of(mine.get_parameters_by_path, Path=f"/inspect-fleet/instances/{unique}"),
        code_of(mine.get_parameter_history, Name=name),
    ):
        assert code == "AccessDeniedException"


def test_a_person_is_not_bound_by_the_instances_rule(ssm: Any, unique: str) -> None:
    """Credentials that are no instance's: a missing parameter is ParameterNotFound."""
    assert code_of(ssm.get_parameter, Name=f"/{unique}") == "ParameterNotFound"
