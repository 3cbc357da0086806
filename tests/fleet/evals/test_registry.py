"""Whether a run can log in to the registry, by names alone: each combination of secrets, parameters and rule."""

from __future__ import annotations

import itertools

import pytest

from fleet.evals.registry import (
    CREDENTIALS,
    TOKEN,
    USERNAME,
    RegistryAccess,
    RegistryLoginIncomplete,
    RegistryLoginMissing,
    has_login,
)


def access(*, user: str = "", token: str = "", login: str = "required") -> RegistryAccess:
    return RegistryAccess.model_validate({"username_parameter": user, "token_parameter": token, "login": login})


@pytest.mark.parametrize(
    ("secrets", "user", "token"),
    [
        (CREDENTIALS, "", ""),
        ((), "/user", "/token"),
        ((USERNAME,), "", "/token"),
        ((TOKEN,), "/user", ""),
        (CREDENTIALS, "/u", "/t"),
    ],
)
def test_each_part_may_come_from_either_place(secrets: tuple[str, ...], user: str, token: str) -> None:
    assert has_login(access(user=user, token=token), secrets)


@pytest.mark.parametrize("login", ["required", "optional"])
@pytest.mark.parametrize(
    ("secrets", "user", "token", "missing"),
    [
        ((USERNAME,), "", "", TOKEN),
        ((TOKEN,), "", "", USERNAME),
        ((), "/user", "", TOKEN),
        ((), "", "/token", USERNAME),
        ((TOKEN,), "", "/token", USERNAME),
    ],
)
def test_half_a_login_is_refused_also_where_none_is_needed(
    secrets: tuple[str, ...], user: str, token: str, missing: str, login: str
) -> None:
    with pytest.raises(RegistryLoginIncomplete, match=f"{missing} is missing") as refused:
        has_login(access(user=user, token=token, login=login), secrets)
    assert refused.value.exit_code == 2


def test_no_login_is_refused_with_every_way_out() -> None:
    with pytest.raises(RegistryLoginMissing) as refused:
        has_login(access(), ())
    for way in (
        *CREDENTIALS,
        "docker_username_parameter",
        "docker_token_parameter",
        "registry_login to optional",
        "Docker Hub",
    ):
        assert way in str(refused.value)


def test_no_login_is_all_right_where_the_account_says_so() -> None:
    assert not has_login(access(login="optional"), ("OPENAI_API_KEY",))


def test_every_combination_is_decided_one_way() -> None:
    """All of it, none of it, or half of it: nothing else."""
    for secrets, user, token in itertools.product(((), (USERNAME,), (TOKEN,), CREDENTIALS), ("", "/u"), ("", "/t")):
        parts = (USERNAME in secrets or bool(user)) + (TOKEN in secrets or bool(token))
        try:
            found = has_login(access(user=user, token=token, login="optional"), secrets)
        except RegistryLoginIncomplete:
            assert parts == 1
        else:
            assert found == (parts == 2)
