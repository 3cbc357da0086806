from __future__ import annotations

import logging
import pickle

import pytest

from bootstrap.secrets import (
    JITTER,
    LATER,
    LOG_EVERY,
    PATIENCE,
    RETRIES,
    RETRY_DELAYS,
    Secrets,
    SecretsFetch,
    SecretsNeverCame,
    SettingFetch,
)
from fleet.aws.failures import AwsRefused, Throttled, Unreachable
from fleet.aws.parameters import ParameterNotReady, SecretUnreadable

NAME = "/inspect-fleet/instances/run/i-0123456789abcdef0"
VALUES = {"OPENAI_API_KEY": "sk-very-secret", "DEBUG": "1"}


class FakeParameters:
    """A parameter that is written at some moment of a clock that moves with each try."""

    def __init__(
        self,
        *,
        written_at: float,
        step: float = 10.0,
        refusal: AwsRefused | None = None,
        refused_until: float = float("inf"),
    ) -> None:
        self.now = 0.0
        self.step = step
        self.written_at = written_at
        self.refusal = refusal
        self.refused_until = refused_until

    def clock(self) -> float:
        return self.now

    def get_secret(self, name: str) -> dict[str, str]:
        at, self.now = self.now, self.now + self.step
        if self.refusal and at < self.refused_until:
            raise self.refusal
        if at < self.written_at:
            raise ParameterNotReady(parameter=name, code="ParameterNotFound", why=f"not there at {at:.0f}")
        return dict(VALUES)


def tried(parameters: FakeParameters, into: Secrets) -> list[str]:
    """Try as Prefect does, until it ends; the lines that were logged."""
    said: list[str] = []
    fetch = SecretsFetch(parameters, NAME, clock=parameters.clock, say=said.append)
    for _ in range(RETRIES + 1):
        try:
            fetch(into)
        except LATER:
            continue
        return said
    raise AssertionError("the retries were used up before the time was")


@pytest.mark.fault("secret-late")
def test_the_fetch_waits_for_the_write_and_logs_the_last_error_once_a_minute() -> None:
    secrets = Secrets()
    said = tried(FakeParameters(written_at=150), secrets)
    assert secrets.environment() == VALUES
    assert [line.partition("; last: ")[0] for line in said] == [
        f"waiting for {NAME} for 60 s",
        f"waiting for {NAME} for 120 s",
    ]
    assert "not there at 60" in said[0]
    assert LOG_EVERY == 60


@pytest.mark.fault("secret-late")
def test_after_fifteen_minutes_the_error_names_the_parameter_and_the_likely_causes() -> None:
    with pytest.raises(SecretsNeverCame) as caught:
        tried(FakeParameters(written_at=10_000), Secrets())
    text = str(caught.value)
    assert NAME in text
    assert "within 900 seconds" in text
    assert "never tagged it with this instance's ARN" in text
    assert "role may not read parameters tagged with its own ARN" in text
    assert "ParameterNotFound: not there at 900" in text


@pytest.mark.fault("secret-late")
def test_the_retries_last_longer_than_the_patience_even_at_the_shortest_delays() -> None:
    delays = [RETRY_DELAYS[min(n, len(RETRY_DELAYS) - 1)] for n in range(RETRIES)]
    assert sum(delays) * (1 - JITTER) > PATIENCE
    assert len(RETRY_DELAYS) <= 50, "Prefect takes no more"


@pytest.mark.parametrize("kind", [Throttled, Unreachable])
def test_an_ssm_that_is_busy_or_away_is_asked_again(kind: type[AwsRefused]) -> None:
    refusal = kind(service="ssm", operation="GetParameter", code="SomeCode", target=NAME, why="not now")
    secrets = Secrets()
    said = tried(FakeParameters(written_at=0, refusal=refusal, refused_until=90), secrets)
    assert secrets.environment() == VALUES
    assert "not now" in said[0]
    with pytest.raises(SecretsNeverCame, match=r"last: SomeCode: not now.*can't reach SSM"):
        tried(FakeParameters(written_at=0, refusal=refusal), Secrets())


@pytest.mark.fault("secret-late")
def test_any_other_error_is_for_good_and_comes_through() -> None:
    refusal = AwsRefused(service="ssm", operation="GetParameter", code="InvalidKeyId", target=NAME, why="no such key")
    with pytest.raises(AwsRefused, match="InvalidKeyId"):
        tried(FakeParameters(written_at=0, refusal=refusal), Secrets())


def test_secrets_show_neither_in_text_nor_in_a_pickle(caplog: pytest.LogCaptureFixture) -> None:
    secrets = Secrets(VALUES)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("t").debug("%r %s", secrets, {"secrets": secrets})
    assert "sk-very-secret" not in caplog.text
    assert b"sk-very-secret" not in pickle.dumps(secrets)
    assert secrets.names() == ["DEBUG", "OPENAI_API_KEY"]


def test_a_value_that_an_error_quotes_is_hidden_but_short_ones_spoil_no_text() -> None:
    text = Secrets(VALUES).hide("401: the key sk-very-secret is wrong (1 of 1)")
    assert text == "401: the key <OPENAI_API_KEY> is wrong (1 of 1)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("ery-secret is wrong", "<OPENAI_API_KEY> is wrong", id="its end"),
        pytest.param("wrong: sk-very-sec", "wrong: <OPENAI_API_KEY>", id="its beginning"),
        pytest.param(
            "ery-secret and sk-very-secret, sk-very-s", "<OPENAI_API_KEY> and <OPENAI_API_KEY>, <OPENAI_API_KEY>"
        ),
        pytest.param("secret is what a key is, and this one is no sk-very", None, id="no more than words"),
        pytest.param("very-secre is amid it: ery-secre, sk-very-s.", None, id="in no way cut here"),
    ],
)
def test_what_a_cut_left_of_a_value_is_hidden_at_either_end(text: str, shown: str | None) -> None:
    assert Secrets(VALUES).hide(text) == (shown or text)


def test_lines_of_a_value_are_hidden_also_where_they_were_joined() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nc2hvcnQ=\n-----END KEY-----\n"
    secrets = Secrets({"KEY": key})
    assert secrets.hide(f"refused: {key}.") == "refused: <KEY>."
    assert secrets.hide("refused: MIIEvQIBADANBgkqhkiG | c2hvcnQ= | 1") == "refused: <KEY> | c2hvcnQ= | 1"
    assert secrets.hide("IBADANBgkqhkiG\nc2hvcnQ=\n-----END KEY-----\nand more") == "<KEY>and more"


def test_forgotten_secrets_are_gone() -> None:
    secrets = Secrets(VALUES)
    secrets.forget()
    assert secrets.environment() == {}


SETTING = 'DB_PASSWORD=sk-of-the-setting\n  export TOKEN = "tok-quoted"\n# sk-comment\nSHORT=1\n'


class OneParameter:
    def __init__(self, values: dict[str, str]) -> None:
        self.asked: list[str] = []
        self._values = values

    def get_secret(self, name: str) -> dict[str, str]:
        self.asked.append(name)
        return self._values


def test_a_settings_values_are_fetched_from_beside_the_instances_own_and_hidden_but_given_to_no_runner() -> None:
    secrets = Secrets(VALUES)
    parameters = OneParameter({"linux": SETTING})
    assert SettingFetch(parameters, NAME, "linux")(secrets) == SETTING
    assert parameters.asked == [f"{NAME}.env.linux"]
    assert secrets.environment() == VALUES
    said = secrets.hide("refused: sk-of-the-setting, tok-quoted and sk-very-secret, 1 of 1")
    assert said == "refused: <linux: DB_PASSWORD>, <linux: TOKEN> and <OPENAI_API_KEY>, 1 of 1"
    secrets.forget()
    assert secrets.hide("sk-of-the-setting") == "sk-of-the-setting"


@pytest.mark.parametrize("values", [{}, {"mac": "A=1"}, {"linux": "A=1", "mac": "A=1"}])
def test_another_settings_values_are_not_taken(values: dict[str, str]) -> None:
    with pytest.raises(SecretUnreadable, match=r"\.env\.linux"):
        SettingFetch(OneParameter(values), NAME, "linux")(Secrets())
