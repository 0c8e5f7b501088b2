"""Counting requests: times in their classes, and errors wherever they are in an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.broker.request_counts import BOUNDS_S, ApiCounts
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import Api
from penstock.wire.schema import Message, schema_of


def counts_at(now_s: float) -> ApiCounts:
    return ApiCounts("Produce", lambda: now_s)


@pytest.mark.parametrize(
    ("seconds", "place"),
    [(0.0, 0), (0.0001, 0), (0.00011, 1), (0.001, 2), (0.3, 10), (10.0, 14), (10.1, 15), (1e6, 15)],
)
def test_a_time_is_in_the_class_that_ends_with_it_or_after_it(seconds: float, place: int) -> None:
    counts = counts_at(seconds)
    counts.ended(0.0)
    assert counts.times == [0] * place + [1] + [0] * (len(BOUNDS_S) - place)
    assert counts.sum_s == seconds


def test_one_may_stand_for_many() -> None:
    counts = counts_at(2.0)
    counts.ended(1.5, weight=64)
    assert sum(counts.times) == 64
    assert counts.sum_s == 32


def _filled(cls: type[Message], errors: Iterator[int]) -> Any:
    """A message with two of everything that it can have, and an error code wherever there is room for one."""
    values: dict[str, Any] = {}
    for each in schema_of(cls).fields:
        if each.struct is not None:
            made = [_filled(each.struct, errors) for _ in range(2 if each.is_array else 1)]
            values[each.name] = made if each.is_array else made[0]
        elif each.name.endswith("error_code"):
            values[each.name] = next(errors)
    return cls(**values)


@pytest.mark.parametrize("api", [*APIS.values(), *OWN_APIS.values()], ids=lambda api: str(api.name))
def test_every_error_of_every_answer_is_counted(api: Api) -> None:
    given: list[int] = []

    def errors() -> Iterator[int]:
        while True:
            given.append(1 + len(given) % 3)
            yield given[-1]

    counts = counts_at(0.0)
    counts.count_errors(_filled(api.response, errors()))
    assert counts.errors == Counter(given)
    counts.count_errors(api.response())
    assert counts.errors == Counter(given)


def test_single_errors_are_counted() -> None:
    counts = counts_at(0.0)
    counts.refused(Error.NOT_LEADER_OR_FOLLOWER)
    counts.refused(Error.NOT_LEADER_OR_FOLLOWER)
    assert counts.errors == {Error.NOT_LEADER_OR_FOLLOWER: 2}
