from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from fleet.aws.parameter_rules import TIER_BYTES
from fleet.errors import RequestRefused
from fleet.evals.secrets import ParameterPlace, RunSecrets, SecretsRefused, chosen

PLACE = ParameterPlace(path="/inspect-fleet/instances/run", region="us-east-1", advanced=False)


def refused(*args: Any, **named: Any) -> str:
    with pytest.raises(SecretsRefused) as refusal:
        chosen(*args, **named)
    assert isinstance(refusal.value, RequestRefused)
    return str(refusal.value)


def test_a_blocks_values_come_first_and_all_of_them_are_kept() -> None:
    assert chosen(["A"], {"A": "env"}, kept={"A": "block", "B": "more"}).variables() == {"A": "block", "B": "more"}


def test_every_secret_without_a_value_is_named_and_no_value_is_shown() -> None:
    message = refused(["A", "B", "C"], {"B": "there", "C": ""})
    assert message.startswith("no value for A, C: export it")
    assert "there" not in message


def test_only_what_is_asked_for_is_taken_from_the_environment() -> None:
    assert chosen(["A"], {"A": "1", "OTHER_KEY": "2"}).variables() == {"A": "1"}


def test_all_that_is_wrong_is_told_in_one_line() -> None:
    environment = {"PATH": "/bin", "NUL": "sk-\0", "BIG": "x" * 5000}
    message = refused(
        ["PATH", "MY KEY", "MISSING", "BIG"],
        environment,
        settings={"my setting": "A=1", "big": "y" * 5000},
        place=PLACE,
        problems=["known before"],
    )
    assert message.startswith("known before; ")
    for part in (
        "'PATH' can't be a secret's name",
        "'MY KEY' can't be a secret's name",
        "no value for MISSING:",
        f"the secrets take 5,024 bytes, an SSM parameter holds {TIER_BYTES['Standard']:,}",
        "the values of the setting big take 5,010 bytes",
        "i-0123456789abcdef0.env.my setting: ' ' is none of",
    ):
        assert part in message
    assert message.count("MY KEY") == 1, "a name that can't be is not missed as well"
    assert "\n" not in message
    assert "xxx" not in message
    assert "yyy" not in message


def test_a_value_that_no_process_takes_is_named() -> None:
    message = refused(["A", "B"], {"A": "sk-\0secret", "B": "\udce9"}, place=PLACE)
    assert message == (
        "the value of A can't be used: it contains a NUL byte, which no environment variable can; "
        "the value of B can't be used: it isn't UTF-8 text"
    )


def test_lines_and_quotes_are_fine() -> None:
    values = {"KEY": "-----BEGIN-----\nabc\r\n\t'\"$(x)`\n-----END-----\n"}
    assert chosen(["KEY"], values, place=PLACE).variables() == values


def test_a_path_that_ssm_does_not_take_is_told_once() -> None:
    place = ParameterPlace(path="/aws/run", region="us-east-1", advanced=False)
    message = refused(["A"], {"A": "1"}, settings={"one": "", "two": ""}, place=place)
    assert message.count("SSM takes no parameter named") == 1


def test_a_run_without_secrets_has_nothing_to_check() -> None:
    nothing = chosen([], {}, place=ParameterPlace(path="not a path", region="us-east-1", advanced=False))
    assert not nothing
    assert RunSecrets(settings={"one": ""}), "an empty file is brought along as well"


@pytest.mark.parametrize("advanced", [False, True])
def test_the_advanced_tier_is_for_those_who_allow_it(advanced: bool) -> None:
    place = ParameterPlace(path="/run", region="us-east-1", advanced=advanced)
    values = {"K": "x" * 6000}
    if advanced:
        assert chosen(["K"], values, place=place).variables() == values
    else:
        assert "allows 8,192" in refused(["K"], values, place=place)


def test_an_instances_own_parameter_comes_after_those_of_its_settings() -> None:
    """So an instance that can read its own finds the others written."""
    secrets = RunSecrets({"A": "1"}, {"two": "T=2", "one": "O=1"})
    assert secrets.setting_names() == ["one", "two"]
    assert secrets.documents("/run/i-1") == [
        ("/run/i-1.env.one", {"one": "O=1"}),
        ("/run/i-1.env.two", {"two": "T=2"}),
        ("/run/i-1", {"A": "1"}),
    ]


def test_they_show_neither_in_text_nor_in_a_pickle(caplog: pytest.LogCaptureFixture) -> None:
    secrets = RunSecrets({"A": "sk-secret"}, {"one": "sk-secret"})
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("t").debug("%r %s", secrets, {"secrets": secrets})
    assert "sk-secret" not in caplog.text
    assert b"sk-secret" not in pickle.dumps(secrets)
