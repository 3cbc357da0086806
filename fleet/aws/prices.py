"""What an instance costs an hour, by AWS's own price lists and by nothing else: no table here, which would grow old.

A price is worth a few seconds and never a failed run: whatever goes wrong, it is unknown.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from fleet.aws.capacity import Market, candidates
from fleet.aws.failures import AwsRefused, calling
from fleet.aws.session import Aws

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import InstanceTypeType
    from mypy_boto3_ec2.type_defs import SpotPriceTypeDef
    from mypy_boto3_pricing.type_defs import FilterTypeDef

PATIENCE_SECONDS = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Price:
    """What an instance of one type costs on one market."""

    instance_type: str
    market: Market
    hourly: float | None
    """US dollars an hour; None where AWS didn't say."""


def hourly_prices(
    aws: Aws, instance_types: Iterable[str], *, spot: bool, patience: float = PATIENCE_SECONDS
) -> tuple[Price, ...]:
    """The price of whatever a launch with these types may give, in the order in which it is tried: with `spot`, on-demand too.

    All are asked for at once; after `patience` seconds the rest is unknown. Never raises.
    """
    tried = candidates(instance_types, {}, "spot" if spot else "on-demand")
    asked = [(one, _asked(aws, one.instance_type, spot=one.market == "spot")) for one in tried]
    until = time.monotonic() + patience
    return tuple(
        Price(
            one.instance_type, one.market, _waited(answer, max(0.0, until - time.monotonic()), aws, one.instance_type)
        )
        for one, answer in asked
    )


def hourly_price(aws: Aws, instance_type: str, *, spot: bool, patience: float = PATIENCE_SECONDS) -> float | None:
    """US dollars an hour of a Linux instance in this region. None: unknown, after `patience` seconds at most. Never raises.

    On-demand: the list price. Spot: the price now in the dearest zone, so that an estimate isn't below the bill.
    """
    return _waited(_asked(aws, instance_type, spot=spot), patience, aws, instance_type)


def hourly_of(prices: Sequence[Price], instance_type: str, market: str) -> float | None:
    """Dollars an hour of an instance that is one of these; the dearest where none is meant. None: AWS didn't say."""
    own = [price for price in prices if (price.instance_type, price.market) == (instance_type, market)]
    asked = [price.hourly for price in own or prices]
    return None if None in asked else max((hourly for hourly in asked if hourly is not None), default=None)


def on_demand_price(products: Iterable[str]) -> float | None:
    """The hourly price in the Pricing API's products, which are JSON texts. ValueError, LookupError: they are something else."""
    prices = [
        float(dimension["pricePerUnit"]["USD"])
        for product in products
        for term in json.loads(product)["terms"].get("OnDemand", {}).values()
        for dimension in term["priceDimensions"].values()
        if dimension["unit"] == "Hrs"
    ]
    return _dearest(prices)


def spot_price(history: Sequence[SpotPriceTypeDef]) -> float | None:
    """The latest price of the dearest zone in a spot price history."""
    latest: dict[str, SpotPriceTypeDef] = {}
    for entry in sorted(history, key=lambda entry: entry["Timestamp"]):
        latest[entry["AvailabilityZone"]] = entry
    return _dearest([float(entry["SpotPrice"]) for entry in latest.values()])


def _asked(aws: Aws, instance_type: str, *, spot: bool) -> SimpleQueue[float | None]:
    """Ask in a thread, which answers here."""
    ask = _spot if spot else _on_demand
    answer: SimpleQueue[float | None] = SimpleQueue()
    # A thread that nobody waits for at exit: botocore's timeouts don't hold for a name server that doesn't answer.
    Thread(target=_answer, args=(ask, aws, instance_type, answer), daemon=True, name="price").start()
    return answer


def _waited(answer: SimpleQueue[float | None], seconds: float, aws: Aws, instance_type: str) -> float | None:
    try:
        return answer.get(timeout=seconds)
    except Empty:
        log.info("price of %s in %s unknown: no answer in time", instance_type, aws.region)
        return None


def _answer(
    ask: Callable[[Aws, str], float | None], aws: Aws, instance_type: str, answer: SimpleQueue[float | None]
) -> None:
    price = None
    try:
        price = ask(aws, instance_type)
    except (AwsRefused, LookupError, ValueError, TypeError, AttributeError) as error:
        log.info("price of %s in %s unknown: %s: %s", instance_type, aws.region, type(error).__name__, error)
    finally:
        answer.put(price)  # also where a bug of ours ends the thread with a traceback: the run goes on


def _on_demand(aws: Aws, instance_type: str) -> float | None:
    wanted = {
        "instanceType": instance_type,
        "regionCode": aws.region,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",  # not a reservation's unused hours
    }
    filters: list[FilterTypeDef] = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()
    ]
    with calling("pricing", instance_type):
        return on_demand_price(aws.pricing.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"])


def _spot(aws: Aws, instance_type: str) -> float | None:
    kinds: list[InstanceTypeType] = [instance_type]  # type: ignore[list-item]  # EC2 knows newer ones
    with calling("ec2", instance_type):
        history = aws.ec2.describe_spot_price_history(
            InstanceTypes=kinds, ProductDescriptions=["Linux/UNIX"], StartTime=datetime.now(UTC)
        )
        return spot_price(history["SpotPriceHistory"])


def _dearest(prices: Sequence[float]) -> float | None:
    """The highest of the prices that are any."""
    return max((price for price in prices if math.isfinite(price) and price > 0), default=None)
