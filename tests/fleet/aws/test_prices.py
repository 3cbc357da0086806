from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.aws.prices import Price, hourly_price, hourly_prices, on_demand_price
from fleet.aws.session import Aws
from tests.fleet.aws.conftest import fail, reply

TYPE = "c7i.4xlarge"


def product(*prices: str, unit: str = "Hrs") -> str:
    """A product as the Pricing API gives it, cut to what matters."""
    dimensions = {f"rate{n}": {"unit": unit, "pricePerUnit": {"USD": usd}} for n, usd in enumerate(prices)}
    return json.dumps(
        {"product": {}, "terms": {"OnDemand": {"offer": {"priceDimensions": dimensions}}, "Reserved": {}}}
    )


def on_demand(aws: Aws, *products: str) -> None:
    reply(aws.pricing, "GetProducts", {"PriceList": list(products)})


def spot(aws: Aws, *entries: tuple[str, int, str]) -> None:
    """A spot price history of (zone, hour, price)."""
    history = [
        {"AvailabilityZone": zone, "Timestamp": datetime(2030, 1, 1, hour, tzinfo=UTC), "SpotPrice": usd}
        for zone, hour, usd in entries
    ]
    reply(aws.ec2, "DescribeSpotPriceHistory", {"SpotPriceHistory": history})


def test_the_on_demand_price_is_the_list_price(aws: Aws) -> None:
    on_demand(aws, product("0.7140000000"))
    assert hourly_price(aws, TYPE, spot=False) == pytest.approx(0.714)


def test_the_list_price_is_asked_for_this_type_and_region() -> None:
    asked: list[dict[str, Any]] = []
    aws = Aws("eu-north-1")
    aws.pricing.meta.events.register(
        "provide-client-params.pricing.GetProducts", lambda params, **_: asked.append(params)
    )
    on_demand(aws, product("1.0"))
    assert hourly_price(aws, TYPE, spot=False) == 1.0
    [params] = asked
    wanted = {item["Field"]: item["Value"] for item in params["Filters"]}
    assert wanted["instanceType"] == TYPE
    assert wanted["regionCode"] == "eu-north-1"
    assert wanted["operatingSystem"] == "Linux"


def test_the_spot_price_is_the_latest_of_the_dearest_zone(aws: Aws) -> None:
    spot(aws, ("a", 3, "0.30"), ("a", 1, "0.90"), ("b", 2, "0.35"), ("c", 1, "0.20"))
    assert hourly_price(aws, TYPE, spot=True) == pytest.approx(0.35)


def test_the_emulators_spot_history_is_understood(aws: Aws) -> None:
    assert (hourly_price(aws, TYPE, spot=True, patience=60) or 0) > 0


def test_all_that_a_launch_may_give_is_priced_in_the_order_in_which_it_is_tried(aws: Aws) -> None:
    on_demand(aws, product("0.7"))
    spot(aws, ("a", 1, "0.3"))
    assert hourly_prices(aws, ["a", "b", "a"], spot=False) == (
        Price("a", "on-demand", 0.7),
        Price("b", "on-demand", 0.7),
    )
    assert hourly_prices(aws, ["a", "b"], spot=True) == (
        Price("a", "spot", 0.3),
        Price("b", "spot", 0.3),
        Price("a", "on-demand", 0.7),
        Price("b", "on-demand", 0.7),
    )


def threads_end() -> None:
    """Wait for threads that nobody waits for otherwise: what they still ask and log is not the next test's."""
    for thread in threading.enumerate():
        if thread.name == "price":
            thread.join(30)


def test_prices_that_do_not_come_are_waited_for_together(aws: Aws) -> None:
    at_last = Event()

    def hang(**_: Any) -> None:
        at_last.wait(60)

    aws.pricing.meta.events.register("before-call.pricing.GetProducts", hang)
    began = time.monotonic()
    try:
        found = hourly_prices(aws, [f"type-{number}" for number in range(40)], spot=False, patience=0.5)
    finally:
        at_last.set()
        threads_end()
    assert time.monotonic() - began < 40 * 0.5
    assert [price.hourly for price in found] == [None] * 40


def no_pricing_api(_: Aws) -> None:
    """The emulator has none: it answers with its own error page."""


def denied(aws: Aws) -> None:
    fail(aws.pricing, "GetProducts", "AccessDeniedException", "not authorized to perform: pricing:GetProducts")


def nothing(aws: Aws) -> None:
    on_demand(aws)


def only_free(aws: Aws) -> None:
    on_demand(aws, product("0.0000000000"))


def other_unit(aws: Aws) -> None:
    on_demand(aws, product("12.0", unit="Quantity"))


def only_reserved(aws: Aws) -> None:
    on_demand(aws, json.dumps({"terms": {"Reserved": {}}}))


def not_json(aws: Aws) -> None:
    on_demand(aws, "<html>")


def another_shape(aws: Aws) -> None:
    on_demand(aws, json.dumps({"terms": ["?"]}))


def yuan(aws: Aws) -> None:
    on_demand(aws, product("1.0").replace("USD", "CNY"))


@pytest.mark.parametrize(
    "fault",
    [no_pricing_api, denied, nothing, only_free, other_unit, only_reserved, not_json, another_shape, yuan],
    ids=lambda fault: fault.__name__,
)
def test_a_list_price_that_cannot_be_had_is_unknown(aws: Aws, fault: Callable[[Aws], None]) -> None:
    fault(aws)
    assert hourly_price(aws, TYPE, spot=False) is None


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidParameterValue", "RequestExpired"])
def test_a_spot_price_that_cannot_be_had_is_unknown(aws: Aws, code: str) -> None:
    fail(aws.ec2, "DescribeSpotPriceHistory", code)
    assert hourly_price(aws, TYPE, spot=True) is None


def test_no_spot_history_is_an_unknown_price(aws: Aws) -> None:
    spot(aws)
    assert hourly_price(aws, TYPE, spot=True) is None


@pytest.mark.parametrize("is_spot", [True, False])
def test_no_credentials_are_an_unknown_price(aws: Aws, monkeypatch: pytest.MonkeyPatch, is_spot: bool) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert hourly_price(Aws("us-east-1"), TYPE, spot=is_spot) is None


def test_a_service_that_never_answers_is_not_waited_for(aws: Aws) -> None:
    """Whatever holds the call up, name resolution too, which botocore's timeouts don't cover."""
    at_last = Event()

    def hang(**_: Any) -> None:
        at_last.wait(60)

    aws.pricing.meta.events.register("before-call.pricing.GetProducts", hang)
    try:
        assert hourly_price(aws, TYPE, spot=False, patience=0.05) is None
    finally:
        at_last.set()
        threads_end()


@given(st.lists(st.floats(min_value=0.0001, max_value=1000).map(lambda usd: f"{usd:.10f}"), min_size=1, max_size=5))
def test_of_several_list_prices_the_dearest_counts(prices: list[str]) -> None:
    assert on_demand_price([product(*prices)]) == max(map(float, prices))
