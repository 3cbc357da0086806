"""Secrets are named, checked first, and never shown."""

from __future__ import annotations

import pytest

from fleet.evals.secrets import SecretNotSet, chosen


def test_a_blocks_value_beats_the_environments() -> None:
    assert chosen(["A"], {"A": "env"}, kept={"A": "block", "B": "more"}) == {"A": "block", "B": "more"}


def test_all_missing_secrets_are_named_at_once() -> None:
    with pytest.raises(SecretNotSet) as refusal:
        chosen(["A", "B", "C"], {"B": "there", "C": ""})
    assert (
        str(refusal.value) == "no value for A, C: export it where the run starts, or put it into a worker-secrets block"
    )
    assert refusal.value.exit_code == 2


def test_only_what_is_named_leaves_the_environment() -> None:
    assert chosen(["A"], {"A": "1", "OTHER_KEY": "2"}) == {"A": "1"}
