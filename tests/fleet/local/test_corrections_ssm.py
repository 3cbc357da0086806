"""One contract test for each rule of SSM parameters that moto doesn't keep; the docstring says AWS's rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fleet.aws.parameter_rules import name_problem
from fleet.aws.parameters import Parameters
from fleet.aws.session import Aws
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


def test_a_standard_parameter_becomes_an_advanced_one_and_never_again_a_standard_one(ssm: Any, unique: str) -> None:
    """Deleted and written anew it may be standard. Without a tier it keeps the one it has."""

    def put(size: int, **more: Any) -> str:
        name = f"/{unique}/tiers"
        return str(ssm.put_parameter(Name=name, Value="x" * size, Type="SecureString", **more)["Tier"])

    assert put(10) == "Standard"
    assert put(5000, Overwrite=True, Tier="Advanced") == "Advanced"
    assert put(6000, Overwrite=True) == "Advanced"
    assert put(10, Overwrite=True, Tier="Intelligent-Tiering") == "Advanced"
    assert code_of(put, size=10, Overwrite=True, Tier="Standard") == "ValidationException"
    assert code_of(put, size=10, Tier="Standard") == "ParameterAlreadyExists", "nothing is changed without Overwrite"
    ssm.delete_parameters(Names=[f"/{unique}/tiers"])
    assert put(10, Tier="Standard") == "Standard"


def test_secrets_are_written_over_larger_ones_and_come_back_whatever_is_in_them(
    host: Host, monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """What `fleet.aws.parameters` sends keeps all these rules."""
    here = {"AWS_ENDPOINT_URL": host.aws, "AWS_ACCESS_KEY_ID": "person", "AWS_SECRET_ACCESS_KEY": "person"}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    parameters = Parameters(Aws(preset.REGION))
    name = f"/{unique}/i-0123456789abcdef0.env.linux"
    for values in ({"K": "x" * 8000}, {"K": "{{ssm:/b}} é\n"}, {}):
        parameters.put_secret(name, values, {"InstanceArn": "arn"}, advanced=True)
        assert parameters.get_secret(name) == values
    parameters.delete([name])
    assert parameters.find(f"/{unique}") == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/{0}/a.b-c_D", None),
        ("{0}.plain", None),
        ("/{0}/a b", "ValidationException"),
        ("/{0}/$", "ValidationException"),
        ("{0}/a", "ValidationException"),
        ("/{0}//a", "ValidationException"),
        ("/{0}/", "ValidationException"),
        ("/aws-{0}", "ValidationException"),
        ("/{0}" + "/a" * 14, None),
        ("/{0}" + "/a" * 15, "HierarchyLevelLimitExceededException"),
        ("/{0}/" + "x" * (1011 - 44 - 14), None),
        ("/{0}/" + "x" * (1011 - 44 - 13), "ValidationException"),
    ],
)
def test_a_name_is_of_the_kind_that_ssm_takes(ssm: Any, unique: str, name: str, code: str | None) -> None:
    """Letters, digits, `.-_`; a path begins with a slash, has 15 levels at most; its ARN 1,011 characters."""
    parameters = {"Name": name.format(unique), "Value": "x", "Type": "String"}
    if code is None:
        ssm.put_parameter(**parameters)
    else:
        assert code_of(ssm.put_parameter, **parameters) == code
        assert name_problem(parameters["Name"], preset.REGION), "what AWS refuses, we refuse before"


@pytest.mark.parametrize(("value", "taken"), [("{{x}}", False), ("a {{ssm:/b}} c", False), ("{{", True), ("{}", True)])
def test_a_value_nests_no_other_parameter(ssm: Any, unique: str, value: str, taken: bool) -> None:
    """A value can't contain a name in double braces."""
    parameters = {"Name": f"/{unique}/nested", "Value": value, "Type": "SecureString"}
    if taken:
        ssm.put_parameter(**parameters)
    else:
        assert code_of(ssm.put_parameter, **parameters) == "ValidationException"


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
