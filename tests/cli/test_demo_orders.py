"""The orders of the demo: the same from the same seed, and each as broken as it says."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from penstock.cli.demo_orders import DELAY_S_MAX, ITEMS, LATE_S, SHARES, Kind, Order, OrderStream

NOW_S = 1_800_000_000.0
SKUS = {item.sku for item in ITEMS}


def take(count: int = 2000, seed: int = 7) -> list[Order]:
    return list(OrderStream(seed).take(count, NOW_S))


def at_s(order: Order) -> float:
    return datetime.fromisoformat(json.loads(order.value)["at"]).timestamp()


def test_the_same_seed_gives_the_same_orders() -> None:
    assert take(seed=3) == take(seed=3)
    assert take(seed=3) != take(seed=4)


def test_all_kinds_come_about_as_often_as_they_should() -> None:
    stream = OrderStream(7)
    orders = list(stream.take(5000, NOW_S))
    assert sum(stream.sent.values()) == len(orders)
    for kind, share in SHARES.items():
        assert stream.sent[kind] == sum(order.kind is kind for order in orders)
        assert stream.sent[kind] / len(orders) == pytest.approx(share, abs=0.02)


def test_fine_ones_are_whole_and_on_time() -> None:
    fine = [order for order in take() if order.kind is Kind.FINE]
    assert len({json.loads(order.value)["id"] for order in fine}) == len(fine)
    for order in fine:
        document = json.loads(order.value)
        assert document["sku"] in SKUS and document["quantity"] > 0
        assert order.key == document["customer"].encode()
        assert 0 <= NOW_S - at_s(order) <= DELAY_S_MAX + 0.001


def test_late_ones_are_late() -> None:
    late = [order for order in take() if order.kind is Kind.LATE]
    assert all(LATE_S[0] - 0.001 <= NOW_S - at_s(order) <= LATE_S[1] + 0.001 for order in late)


def test_second_copies_are_copies_of_an_earlier_one() -> None:
    seen: set[bytes] = set()
    for order in take():
        if order.kind is Kind.TWICE:
            assert order.value in seen
        seen.add(order.value)


def test_broken_ones_cannot_be_read_as_orders() -> None:
    for order in take():
        if order.kind is not Kind.BROKEN:
            continue
        try:
            document = json.loads(order.value)
        except ValueError:
            continue
        assert document["quantity"] == "two"
