from __future__ import annotations

import itertools
import json
import logging
import pickle
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

from fleet.aws.failures import AwsRefused, CredentialsBad, Denied, Throttled
from fleet.aws.parameter_rules import SecretsTooLarge
from fleet.aws.parameters import NOT_READY, WRITE_SECONDS, ParameterNotReady, Parameters, SecretUnreadable
from fleet.aws.session import Aws
from fleet.aws.silence import botocore_silent
from tests.fleet.aws.conftest import fail

SECRET = "sk-5ecret-value-nobody-may-see"
VALUES = {"OPENAI_API_KEY": SECRET, "NOTE": 'quotes " and ü'}
TAGS = {"InstanceArn": "arn:aws:ec2:us-east-1:123456789012:instance/i-0123456789abcdef0", "inspect-fleet:run": "r1"}


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def parameters(aws: Aws, clock: Clock) -> Parameters:
    return Parameters(aws, clock=clock, pause=clock.pause)


@pytest.fixture
def name(unique: str) -> str:
    return f"/inspect-fleet/instances/{unique}/i-0123456789abcdef0"


def tags_of(aws: Aws, name: str) -> dict[str, str]:
    found = aws.ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
    return {tag["Key"]: tag["Value"] for tag in found}


def test_what_was_written_is_read_back(parameters: Parameters, name: str) -> None:
    parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == VALUES


def test_it_is_one_secure_string_with_its_tags(parameters: Parameters, name: str) -> None:
    parameters.put_secret(name, VALUES, TAGS)
    stored = parameters.aws.ssm.get_parameter(Name=name)["Parameter"]
    assert stored["Type"] == "SecureString"
    assert tags_of(parameters.aws, name) == TAGS


def test_tags_are_there_from_the_first_moment_and_overwrite_is_not_asked_for(parameters: Parameters, name: str) -> None:
    """SSM refuses tags along with Overwrite; tags that come later leave a moment in which anyone's role may read."""
    asked: list[dict[str, object]] = []
    for operation in ("PutParameter", "AddTagsToResource"):
        for client in (parameters.aws.ssm, parameters.aws.ssm_once):
            client.meta.events.register(
                f"provide-client-params.ssm.{operation}", lambda params, **_: asked.append(params)
            )
    parameters.put_secret(name, VALUES, TAGS)
    [only] = asked
    assert "Tags" in only
    assert "Overwrite" not in only


def test_a_second_write_replaces_value_and_tags(parameters: Parameters, name: str, clock: Clock) -> None:
    parameters.put_secret(name, {"OLD": "old"}, {"InstanceArn": "arn:old", "only-old": "x"})
    parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == VALUES
    assert tags_of(parameters.aws, name) == TAGS
    assert len(clock.waits) == 2, "the second write's turn, and its second try's"


@pytest.mark.parametrize("code", ["ThrottlingException", "TooManyUpdates", "InternalServerError", "ServiceUnavailable"])
def test_a_write_that_time_mends_waits_for_its_next_turns_and_lands(
    parameters: Parameters, name: str, clock: Clock, code: str
) -> None:
    fail(parameters.aws.ssm_once, "PutParameter", code, times=5)
    parameters.put_secret(name, VALUES, TAGS)
    assert len(clock.waits) == 5
    assert parameters.get_secret(name) == VALUES
    assert tags_of(parameters.aws, name) == TAGS


def test_a_write_whose_answer_was_lost_is_no_failure(parameters: Parameters, name: str, clock: Clock) -> None:
    """The next try meets the parameter that the first one made."""
    lost = iter([True])

    def drop(**_: object) -> None:
        if next(lost, False):
            raise ReadTimeoutError(endpoint_url="ssm")

    parameters.aws.ssm_once.meta.events.register("after-call.ssm.PutParameter", drop)
    parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == VALUES
    assert tags_of(parameters.aws, name) == TAGS


def test_a_write_that_something_else_answered_in_ssms_place_is_made_again(parameters: Parameters, name: str) -> None:
    no_headers: Any = {}
    page: Any = AWSResponse("", 200, no_headers, None)
    page._content = b"<html>Log in</html>"
    pages = iter([page])
    parameters.aws.ssm_once.meta.events.register("before-send.ssm.PutParameter", lambda **_: next(pages, None))
    parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == VALUES


def test_every_try_of_a_write_waits_for_a_turn(parameters: Parameters, name: str) -> None:
    """botocore would try again by itself, at its own pace."""
    config: Any = parameters.aws.ssm_once.meta.config
    assert config.retries["total_max_attempts"] == 1


def test_a_write_that_stays_throttled_gives_up_at_its_deadline(parameters: Parameters, name: str, clock: Clock) -> None:
    fail(parameters.aws.ssm_once, "PutParameter", "ThrottlingException", "Rate exceeded")
    with pytest.raises(Throttled, match=name):
        parameters.put_secret(name, VALUES, TAGS)
    assert WRITE_SECONDS <= clock.now < WRITE_SECONDS + 10


def test_an_old_parameter_met_at_the_deadline_is_no_success(parameters: Parameters, name: str, clock: Clock) -> None:
    """What is written and what is said to be written are the same, also when time is up."""
    parameters.put_secret(name, {"OLD": "old"}, {})
    fail(parameters.aws.ssm_once, "PutParameter", "ThrottlingException")
    with pytest.raises(Throttled):
        parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == {"OLD": "old"}


def test_an_old_parameter_that_can_not_be_deleted_yet_is_replaced_later(
    parameters: Parameters, name: str, clock: Clock
) -> None:
    parameters.put_secret(name, {"OLD": "old"}, {})
    fail(parameters.aws.ssm, "DeleteParameters", "ThrottlingException", times=2)
    parameters.put_secret(name, VALUES, TAGS)
    assert parameters.get_secret(name) == VALUES


def test_a_write_that_nobody_wants_any_more_is_not_made(parameters: Parameters, name: str, clock: Clock) -> None:
    assert not parameters.put_secret(name, VALUES, TAGS, wanted=lambda: False)
    wants = iter([True, True, False])  # before its turn, after it, and when it was throttled
    fail(parameters.aws.ssm_once, "PutParameter", "ThrottlingException")
    assert not parameters.put_secret(name, VALUES, TAGS, wanted=lambda: next(wants))
    assert parameters.find(name.rsplit("/", 1)[0]) == []


def test_a_denied_write_is_not_tried_again(parameters: Parameters, name: str, clock: Clock) -> None:
    fail(
        parameters.aws.ssm_once,
        "PutParameter",
        "AccessDeniedException",
        "no identity-based policy allows ssm:PutParameter",
    )
    with pytest.raises(Denied, match="no identity-based policy"):
        parameters.put_secret(name, VALUES, TAGS)
    assert clock.waits == []


class SharedClock:
    """Time that passes only by waiting, for threads: each waits from when it last looked, and all go on when the last has."""

    def __init__(self) -> None:
        self.now = 0.0
        self._seen = threading.local()
        self._lock = threading.Lock()

    def __call__(self) -> float:
        self._seen.at = self.now
        return self.now

    def pause(self, seconds: float) -> None:
        with self._lock:
            self.now = max(self.now, self._seen.at + seconds)


def test_sixty_four_instances_are_written_in_time_with_two_of_three_calls_throttled(aws: Aws, unique: str) -> None:
    clock, calls = SharedClock(), itertools.count()
    parameters = Parameters(aws, clock=clock, pause=clock.pause)
    throttled = {"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}, "ResponseMetadata": {}}

    def two_of_three(**_: object) -> Any:
        return (SimpleNamespace(status_code=400), throttled) if next(calls) % 3 else None

    aws.ssm_once.meta.events.register("before-call.ssm.PutParameter", two_of_three)
    names = [f"/{unique}/i-{n:017x}" for n in range(64)]

    def write(name: str) -> bool:
        return parameters.put_secret(name, VALUES, {"InstanceArn": f"arn:of{name}"})

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(write, names))
    assert 3 * 64 - 2 <= next(calls) <= 3 * 64 + 3, "no more tries than there were refusals"
    assert clock.now <= 3 * 64, "one write a second, the slowest pace there is"
    assert sorted(parameters.find(f"/{unique}")) == names
    assert {tags_of(aws, name)["InstanceArn"] for name in names} == {f"arn:of{name}" for name in names}


@pytest.mark.parametrize("code", sorted(NOT_READY))
def test_absent_or_denied_is_not_ready_yet(parameters: Parameters, name: str, code: str) -> None:
    """Under a policy on the parameter's tag, one that isn't there is denied as well."""
    fail(parameters.aws.ssm, "GetParameter", code, "User i-0 is not authorized")
    with pytest.raises(ParameterNotReady) as caught:
        parameters.get_secret(name)
    for part in (name, code, "is not authorized", "InstanceArn", "role"):
        assert part in str(caught.value)


def test_a_parameter_that_was_never_written_is_not_ready(parameters: Parameters, name: str) -> None:
    with pytest.raises(ParameterNotReady, match="ParameterNotFound"):
        parameters.get_secret(name)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", Throttled),
        ("ExpiredTokenException", CredentialsBad),
        ("InternalServerError", AwsRefused),
    ],
)
def test_any_other_failure_of_a_read_is_itself(
    parameters: Parameters, name: str, code: str, kind: type[AwsRefused]
) -> None:
    fail(parameters.aws.ssm, "GetParameter", code)
    with pytest.raises(AwsRefused) as caught:
        parameters.get_secret(name)
    assert type(caught.value) is kind


@pytest.mark.parametrize("text", [f"not json {SECRET}", f'["{SECRET}"]', f'{{"KEY": ["{SECRET}"]}}', "null"])
def test_a_parameter_of_another_kind_is_named_and_not_quoted(parameters: Parameters, name: str, text: str) -> None:
    parameters.aws.ssm.put_parameter(Name=name, Value=text, Type="SecureString")
    with pytest.raises(SecretUnreadable) as caught:
        parameters.get_secret(name)
    assert name in str(caught.value)
    assert_hidden(caught.value)


def test_many_are_deleted_and_absent_ones_are_success(parameters: Parameters, name: str) -> None:
    names = [f"{name}/{n}" for n in range(23)]
    for one in names[::2]:
        parameters.aws.ssm.put_parameter(Name=one, Value="x", Type="SecureString")
    calls: list[int] = []
    parameters.aws.ssm.meta.events.register(
        "provide-client-params.ssm.DeleteParameters", lambda params, **_: calls.append(len(params["Names"]))
    )
    parameters.delete(names)
    assert parameters.find(name) == []
    assert calls == [10, 10, 3]
    parameters.delete(names)
    parameters.delete([])


def test_all_below_a_path_are_found_and_no_others(parameters: Parameters, unique: str) -> None:
    made = [f"/{unique}/run/i-{n:02}" for n in range(60)] + [f"/{unique}/deep/er/still"]
    for one in [*made, f"/{unique}-other/x", f"/outside/{unique}"]:
        parameters.aws.ssm.put_parameter(Name=one, Value="x", Type="SecureString")
    assert sorted(parameters.find(f"/{unique}")) == sorted(made)


# Sizes.


def test_secrets_that_do_not_fit_are_not_sent(parameters: Parameters, name: str) -> None:
    with pytest.raises(SecretsTooLarge):
        parameters.put_secret(name, {"K": "x" * 5000}, TAGS)
    assert parameters.find(name.rsplit("/", 1)[0]) == []


@pytest.mark.parametrize(("size", "tier"), [(100, "Standard"), (5000, "Advanced")])
def test_the_tier_that_costs_money_is_used_where_it_is_needed_alone(
    parameters: Parameters, name: str, size: int, tier: str
) -> None:
    parameters.put_secret(name, {"K": "x" * size}, TAGS, advanced=True)
    filters: list[Any] = [{"Key": "Name", "Values": [name]}]
    (found,) = parameters.aws.ssm.describe_parameters(ParameterFilters=filters)["Parameters"]
    assert found["Tier"] == tier


def test_braces_that_ssm_would_take_for_another_parameter_arrive_as_they_are(parameters: Parameters, name: str) -> None:
    values = {"TEMPLATE": "{{ssm:/other}} and {{{x}}}"}
    parameters.put_secret(name, values, TAGS)
    assert "{{" not in parameters.aws.ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    assert parameters.get_secret(name) == values


# Nothing leaks.


def assert_hidden(error: BaseException, secret: str = SECRET) -> None:
    """The secret isn't in the error, in what a log prints of it, or in anything it drags along."""
    seen: BaseException | None = error
    while seen is not None:
        assert secret not in repr(seen)
        assert secret not in repr(vars(seen))
        assert secret not in str(getattr(seen, "doc", ""))
        seen = seen.__cause__ or seen.__context__
    assert secret not in "".join(traceback.format_exception(error))
    assert secret.encode() not in pickle.dumps(error)


@pytest.mark.parametrize(
    "code", ["ValidationException", "ParameterPatternMismatchException", "InternalServerError", "New"]
)
def test_an_error_that_quotes_the_value_is_not_passed_on(parameters: Parameters, name: str, code: str) -> None:
    """SSM's validation repeats the value it doesn't like."""
    fail(
        parameters.aws.ssm_once,
        "PutParameter",
        code,
        f"1 validation error detected: Value '{json.dumps(VALUES)}' at 'value'",
    )
    with pytest.raises(AwsRefused, match=code) as caught:
        parameters.put_secret(name, VALUES, TAGS)
    assert name in str(caught.value)
    assert_hidden(caught.value)


def test_an_argument_that_botocore_refuses_is_not_quoted(parameters: Parameters, name: str) -> None:
    tags: dict[str, str] = {"tag": [SECRET]}  # type: ignore[dict-item]
    with pytest.raises(AwsRefused) as caught:
        parameters.put_secret(name, VALUES, tags)
    assert_hidden(caught.value)


FIRST_CALLS = """
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
from fleet.aws.parameters import Parameters
from fleet.aws.session import Aws
name, secret = sys.argv[1:]
parameters = Parameters(Aws("us-east-1"))
if name.endswith("write"):
    parameters.put_secret(name, {"KEY": secret}, {})
else:
    assert parameters.get_secret(name) == {"KEY": secret}
parameters.find("/")
"""


@pytest.mark.parametrize("call", ["write", "read"])
def test_no_debug_log_shows_a_value(parameters: Parameters, name: str, call: str) -> None:
    """botocore logs requests and answers whole at DEBUG. A new process, since its first call imports and makes the client."""
    name = f"{name}/{call}"
    if call == "read":
        parameters.put_secret(name, {"KEY": SECRET}, {})
    program = [sys.executable, "-c", FIRST_CALLS, name, SECRET]
    log = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    assert "DescribeParameters" in log, "other calls are still logged"
    assert SECRET not in log


def test_silence_ends_with_its_block_and_spares_warnings_and_other_threads(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("botocore.of_this_test")
    caplog.set_level(logging.DEBUG, logger="botocore")
    with botocore_silent():
        log.debug("inside")
        log.warning("warned")
        with ThreadPoolExecutor(1) as other:
            other.submit(log.debug, "elsewhere").result()
    log.debug("after")
    heard = [record.message for record in caplog.records if record.name == log.name]
    assert heard == ["warned", "elsewhere", "after"]


def test_one_that_may_not_be_deleted_is_named_and_the_others_go(parameters: Parameters, name: str) -> None:
    for one in (names := [f"{name}/{n}" for n in range(12)]):
        parameters.aws.ssm.put_parameter(Name=one, Value="x", Type="String")
    fail(parameters.aws.ssm, "DeleteParameters", "AccessDeniedException", "not this one", about=f"{name}/3")
    with pytest.raises(Denied) as caught:
        parameters.delete(names)
    assert str(caught.value) == f"ssm DeleteParameters of {name}/3 failed: AccessDeniedException: not this one"
    assert parameters.find(name) == [f"{name}/3"]
