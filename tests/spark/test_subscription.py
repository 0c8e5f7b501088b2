"""Which partitions are read, and what Java's patterns mean here."""

from __future__ import annotations

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import OptionError
from penstock.spark.subscription import Subscription, parse_pattern

COUNTS = {"orders": 2, "orders-eu": 1, "payments": 1, "x.y": 1}


def topics(subscription: Subscription) -> list[str]:
    return list(dict.fromkeys(where.topic for where in subscription.partitions(COUNTS)))


def test_by_name() -> None:
    subscription = Subscription(topics=("payments", "orders", "lost"))
    assert subscription.names == ("payments", "orders", "lost")
    assert subscription.partitions(COUNTS) == [
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("payments", 0),
    ]
    assert subscription.missing(COUNTS) == ["topic lost"]


def test_by_partition() -> None:
    subscription = Subscription(
        assigned=tuple(TopicPartition(*each) for each in [("orders", 1), ("orders", 2), ("z", 0)])
    )
    assert subscription.names == ("orders", "z")
    assert subscription.partitions(COUNTS) == [TopicPartition("orders", 1)]
    assert subscription.missing(COUNTS) == ["topic z", "partition 2 of topic orders"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", ["orders", "orders-eu"]),
        ("^orders$", ["orders"]),
        ("pay", ["payments"]),
        ("-eu$|payments", ["orders-eu", "payments"]),
        ("^(?!orders)", ["payments", "x.y"]),
        (r"\Qx.y\E", ["x.y"]),
        (r"x\.y", ["x.y"]),
        (r"(?i)^ORDERS$", ["orders"]),
        (r"^[a-z]++$", ["orders", "payments"]),
        (r"^\p{L}+$", ["orders", "payments"]),
        ("^[[:alpha:]]+$", ["orders", "payments"]),
        ("nothing", []),
    ],
)
def test_by_pattern(pattern: str, expected: list[str]) -> None:
    subscription = Subscription(pattern=parse_pattern("subscribePattern", pattern))
    assert subscription.names is None
    assert topics(subscription) == expected
    assert subscription.missing(COUNTS) == []


@pytest.mark.parametrize(
    "pattern", ["", "(", "[a-z&&[^b]]+", "[a[bc]]", "*", r"\p{Alpha}", "a" * 10_001, "(?<name>a)("]
)
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(OptionError, match="subscribePattern"):
        parse_pattern("subscribePattern", pattern)
