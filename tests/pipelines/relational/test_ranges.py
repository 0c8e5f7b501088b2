"""Ranges meet exactly and together have every key."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipelines.relational.ranges import KeyRange, even_cuts, ranges_between, row_numbers

NUMBERS = st.integers(-(2**63), 2**63)


def has(each: KeyRange, value: int) -> bool:
    return (each.at_least is None or each.at_least <= value) and (each.below is None or value < each.below)


@given(NUMBERS, NUMBERS, st.integers(1, 40), st.lists(NUMBERS))
def test_every_key_is_in_exactly_one_range(low: int, high: int, parts: int, keys: list[int]) -> None:
    ranges = ranges_between(even_cuts(low, high, parts))
    assert 1 <= len(ranges) <= parts
    for key in [low, high, *keys]:
        assert sum(has(each, key) for each in ranges) == 1


def test_numbers_are_divided_evenly() -> None:
    assert even_cuts(1, 100, 4) == [26, 51, 76]
    assert ranges_between(even_cuts(1, 2, 8)) == [KeyRange(None, 2), KeyRange(2, None)]


def test_an_empty_table_is_one_range() -> None:
    assert ranges_between(even_cuts(None, None, 8)) == [KeyRange()]


def test_times_and_decimals_are_divided() -> None:
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
    assert even_cuts(first, last, 2) == [datetime(2026, 1, 2, tzinfo=UTC)]
    assert even_cuts(Decimal(0), Decimal(3), 2) == [Decimal("1.5")]


def test_equal_cuts_make_no_empty_range() -> None:
    assert ranges_between(["a", "a", "b"]) == [KeyRange(None, "a"), KeyRange("a", "b"), KeyRange("b", None)]


@given(st.integers(0, 1000), st.integers(1, 20))
def test_row_numbers_begin_ranges_in_order(rows: int, parts: int) -> None:
    numbers = row_numbers(rows, parts)
    assert list(numbers) == sorted(numbers) and all(0 < number < rows for number in numbers)
