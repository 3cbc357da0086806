"""A request that doesn't go on where the last one ended says why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.aws.objects import ObjectAbsent
from fleet.evals.documents import EvalManifest
from fleet.evals.last import NAMES, note_as_last, why_new
from fleet.evals.layout import Layout
from fleet.evals.plan import identify, make_manifest
from fleet.evals.request import EvalRequest, ModelSpec
from fleet.evals.site import Site
from tests.fleet.evals.test_plan import CHANGES, ENVIRONMENT, REQUEST, planned

AT = "2026-01-01T00:00:00+00:00"


class FakeBucket:
    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        self.held[key] = data

    def get(self, key: str) -> bytes:
        if key not in self.held:
            raise ObjectAbsent(uri=key)
        return self.held[key]


@pytest.fixture
def site() -> Site:
    return cast("Site", SimpleNamespace(objects=FakeBucket(), layout=Layout("p")))


def an_eval(nonce: str = "", request: EvalRequest = REQUEST, **plan: Any) -> EvalManifest:
    return make_manifest(planned(["a", "b"], **plan), request, ENVIRONMENT, slots=2, nonce=nonce)


@pytest.mark.parametrize("part", CHANGES)
@pytest.mark.fault("input-changed")
def test_a_new_eval_says_which_input_changed_since_the_last(site: Site, part: str) -> None:
    plan, request, environment = CHANGES[part]
    before = an_eval()
    note_as_last(site, before, AT)
    now = make_manifest(
        planned(["a", "b"], **plan),
        REQUEST.model_copy(update=request),
        ENVIRONMENT.model_copy(update=environment),
        slots=2,
    )
    assert why_new(site, now) == f"{now.eval_id} is a new eval: since {before.eval_id} of {AT} changed: {NAMES[part]}"


def test_every_part_of_an_identity_has_a_name_for_people() -> None:
    assert set(NAMES) == set(identify(planned(["a"]), REQUEST, ENVIRONMENT, rates=b"{}"))


@pytest.mark.fault("input-changed")
def test_starting_over_is_no_change(site: Site) -> None:
    note_as_last(site, an_eval(), AT)
    fresh = an_eval(nonce="run-2")
    assert why_new(site, fresh).startswith(f"{fresh.eval_id} starts over")


def test_the_first_eval_of_a_task_and_a_model_is_compared_with_none(site: Site) -> None:
    note_as_last(site, an_eval(), AT)
    assert why_new(site, an_eval(model=ModelSpec(name="other/m"))) == ""


def test_a_note_of_another_release_is_passed_over(site: Site) -> None:
    note_as_last(site, an_eval(), AT)
    bucket = cast("FakeBucket", site.objects)
    bucket.held = dict.fromkeys(bucket.held, b'{"version": 99}')
    assert why_new(site, an_eval(nonce="2")) == ""
