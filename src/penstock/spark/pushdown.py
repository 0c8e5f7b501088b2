"""Filters of a query that decide which topics, partitions and offsets a batch read fetches at all.

Filters on topic, partition and offset are kept exactly, and Spark need not look at them again. A lower limit for the
timestamp chooses where to begin, by asking the brokers; Spark still looks at every row. An upper limit does not help:
times need not rise with offsets, so what comes later may still be early enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.base.identifiers import TopicPartition
from penstock.spark.planning import Range

_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_OFFSET_MAX = (1 << 63) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Wanted:
    """What the filters leave; everything, without any."""

    choices: list[Filter] = field(default_factory=list)
    """on topic and partition; all of them hold"""
    start: int = 0
    end: int = _OFFSET_MAX
    time_ms: int | None = None
    """records before this time are not wanted"""

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Narrow by each filter; returns those that Spark still has to look at."""
        return [each for each in filters if not self._is_kept(each)]

    def has(self, where: TopicPartition) -> bool:
        """Whether the filters leave anything of a partition."""
        values = {"topic": where.topic, "partition": where.partition}
        return self.start < self.end and all(holds(each, values) for each in self.choices)

    def narrowed(self, piece: Range) -> Range:
        """The part of a range that is wanted; it can be empty."""
        start = max(piece.start, self.start)
        return Range(piece.where, start, max(start, min(piece.end, self.end)))

    def _is_kept(self, each: Filter) -> bool:
        column = column_of(each)
        if column in _NEVER_NULL and isinstance(each, IsNotNull):
            return True
        if column in ("topic", "partition") and _is_understood(each):
            self.choices.append(each)
            return True
        if column == "offset":
            return self._narrow_offsets(each)
        if column == "timestamp":
            self._narrow_times(each)
        return False

    def _narrow_offsets(self, each: Filter) -> bool:
        """True if the interval says exactly what the filter says."""
        if isinstance(each, In):
            numbers = [value for value in each.value if isinstance(value, int)]
            self._cut_offsets(min(numbers, default=0), max(numbers, default=-1) + 1)
            return not numbers
        bounds = _OFFSET_BOUNDS.get(type(each))
        value = getattr(each, "value", None)
        if bounds is None or not isinstance(value, int):
            return False
        self._cut_offsets(*bounds(value))
        return True

    def _cut_offsets(self, start: int, end: int) -> None:
        self.start, self.end = max(self.start, start), min(self.end, end)

    def _narrow_times(self, each: Filter) -> None:
        if isinstance(each, In):
            times = [_time_ms(value) for value in each.value if value is not None]
        elif isinstance(each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
            times = [_time_ms(each.value)]
        else:
            return
        known = [time_ms for time_ms in times if time_ms is not None]
        if known and len(known) == len(times):
            self.time_ms = max(0, min(known), self.time_ms or 0)


def column_of(each: Filter) -> str | None:
    """The column that a filter is about, if it is one of the record's own."""
    inner = each.child if isinstance(each, Not) else each
    path: Sequence[str] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def holds(each: Filter, values: dict[str, object]) -> bool:
    """Whether a filter that is understood holds for values that are not null."""
    if isinstance(each, Not):
        return not _has_null(each.child) and not holds(each.child, values)
    column = column_of(each)
    assert column is not None
    return _HOLDS[type(each)](values[column], getattr(each, "value", None))


def _is_understood(each: Filter) -> bool:
    return type(each.child if isinstance(each, Not) else each) in _HOLDS


def _has_null(each: Filter) -> bool:
    """Whether SQL can only say null, and never true, when the filter does not hold."""
    if isinstance(each, EqualNullSafe | IsNull | IsNotNull):
        return False
    value = getattr(each, "value", None)
    return value is None or (isinstance(each, In) and None in value)


def _compared(compare: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    """Comparing with null is never true."""
    return lambda have, value: value is not None and compare(have, value)


_HOLDS: dict[type[Filter], Callable[..., bool]] = {
    EqualTo: lambda have, value: have == value,
    EqualNullSafe: lambda have, value: have == value,
    In: lambda have, value: have in value,
    IsNull: lambda _have, _value: False,
    IsNotNull: lambda _have, _value: True,
    GreaterThan: _compared(lambda have, value: have > value),  # type: ignore[operator]
    GreaterThanOrEqual: _compared(lambda have, value: have >= value),  # type: ignore[operator]
    LessThan: _compared(lambda have, value: have < value),  # type: ignore[operator]
    LessThanOrEqual: _compared(lambda have, value: have <= value),  # type: ignore[operator]
    StringStartsWith: _compared(lambda have, value: have.startswith(value)),  # type: ignore[attr-defined]
    StringEndsWith: _compared(lambda have, value: have.endswith(value)),  # type: ignore[attr-defined]
    StringContains: _compared(lambda have, value: value in have),  # type: ignore[operator]
}

_OFFSET_BOUNDS: dict[type[Filter], Callable[[int], tuple[int, int]]] = {
    EqualTo: lambda value: (value, value + 1),
    EqualNullSafe: lambda value: (value, value + 1),
    GreaterThan: lambda value: (value + 1, _OFFSET_MAX),
    GreaterThanOrEqual: lambda value: (value, _OFFSET_MAX),
    LessThan: lambda value: (0, value),
    LessThanOrEqual: lambda value: (0, value + 1),
}


def _time_ms(value: object) -> int | None:
    """Milliseconds that are not after the time; None if it is none."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)
