"""The orders of a shop that does not exist, for `penstock demo`: most are fine, some are late, twice there or broken.

The same seed and the same times give the same orders. `Kind` says what is the matter with each, so that a test can
compare what a pipeline made of them with what was sent.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from random import Random
from typing import NamedTuple

#: What is late is so many seconds late: more than the pipeline's watermark waits.
LATE_S = (120.0, 600.0)
#: What is on time is under way for up to so many seconds.
DELAY_S_MAX = 2.0
#: A second copy comes among so many of the last orders.
REMEMBERED_MAX = 50
CUSTOMERS = 200


class Item(NamedTuple):
    """Something the shop sells."""

    sku: str
    title: str
    category: str
    price: float


ITEMS = (
    Item("tea-green", "Green tea, 100 g", "tea", 7.50),
    Item("tea-black", "Black tea, 100 g", "tea", 6.20),
    Item("tea-mint", "Peppermint, 50 g", "tea", 4.80),
    Item("cup-blue", "Cup, blue", "cups", 12.00),
    Item("cup-white", "Cup, white", "cups", 11.00),
    Item("pot-small", "Pot for one", "pots", 24.00),
    Item("pot-large", "Pot for six", "pots", 39.00),
    Item("spoon", "Spoon for loose tea", "spoons", 3.90),
)
#: How often each is bought, beside the others.
POPULARITY = (9, 7, 4, 5, 4, 2, 1, 6)


class Kind(StrEnum):
    """What is the matter with an order."""

    FINE = "fine"
    LATE = "late"
    TWICE = "twice"
    BROKEN = "broken"


SHARES = {Kind.FINE: 0.90, Kind.LATE: 0.03, Kind.TWICE: 0.04, Kind.BROKEN: 0.03}


@dataclass(frozen=True, slots=True)
class Order:
    """A record for the topic, and what is the matter with it."""

    kind: Kind
    key: bytes
    value: bytes


class OrderStream:
    """Endless orders. `sent` counts them by kind."""

    def __init__(self, seed: int = 1, shares: dict[Kind, float] = SHARES) -> None:
        self.sent: Counter[Kind] = Counter()
        self._random = Random(seed)
        self._kinds, self._weights = list(shares), list(shares.values())
        self._last: deque[Order] = deque(maxlen=REMEMBERED_MAX)
        self._number = 0

    def take(self, count: int, now_s: float) -> Iterator[Order]:
        """So many orders of this moment."""
        return (self.next(now_s) for _ in range(count))

    def next(self, now_s: float) -> Order:
        """One order of this moment, in seconds since 1970."""
        [kind] = self._random.choices(self._kinds, self._weights)
        if kind is Kind.TWICE and not self._last:
            kind = Kind.FINE
        order = self._make(kind, now_s)
        self.sent[kind] += 1
        return order

    def _make(self, kind: Kind, now_s: float) -> Order:
        match kind:
            case Kind.TWICE:
                earlier = self._random.choice(self._last)
                return Order(kind, earlier.key, earlier.value)
            case Kind.LATE:
                return self._order(kind, now_s - self._random.uniform(*LATE_S))
            case Kind.BROKEN:
                order = self._order(kind, now_s)
                return Order(kind, order.key, self._break(order.value))
            case _:
                order = self._order(kind, now_s - self._random.uniform(0, DELAY_S_MAX))
                self._last.append(order)
                return order

    def _order(self, kind: Kind, at_s: float) -> Order:
        self._number += 1
        [item] = self._random.choices(ITEMS, POPULARITY)
        customer = f"c-{self._random.randrange(CUSTOMERS):03}"
        document = {
            "id": f"o-{self._number:07}",
            "customer": customer,
            "sku": item.sku,
            "quantity": self._random.choices((1, 2, 3, 6), (10, 5, 2, 1))[0],
            "at": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
        }
        return Order(kind, customer.encode(), json.dumps(document).encode())

    def _break(self, value: bytes) -> bytes:
        """As others break theirs: cut off on the way, a word for a number, or something else altogether."""
        way = self._random.randrange(3)
        if way == 0:
            return value[: self._random.randrange(1, len(value) - 1)]
        if way == 1:
            return json.dumps({**json.loads(value), "quantity": "two"}).encode()
        return f"<order><id>{json.loads(value)['id']}</id></order>".encode()
