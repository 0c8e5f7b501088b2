"""Filters of a batch read that the database may apply, so that less is read.

Spark applies every filter once more, so the database may let too many rows through, never too few. Texts are therefore
compared for equality only: their order depends on the database's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StringType, StructType, TimestampNTZType

from penstock.pipelines.relational.selecting import Condition, column_expressions
from penstock.pipelines.relational.session import Session

VALUES_MAX = 1000
_SIGNS: dict[type[Filter], str] = {
    EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<=",
}  # fmt: skip


class PushFilters:
    """`pushFilters` of a reader that Spark takes for the one that does nothing.

    Spark refuses a reader with a `pushFilters` of its own while spark.sql.python.filterPushdown.enabled is off, as it
    is by default. A reader that could use filters works without them, too: so it must not look like one.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[Iterable[Filter]], Iterable[Filter]]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


def filter_conditions(session: Session, schema: StructType, filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """What the database can check; the rest is left to Spark."""
    found = (_condition(session, schema, each) for each in filters)
    return tuple(each for each in found if each is not None)


def _condition(session: Session, schema: StructType, each: Filter) -> Condition | None:
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    field = schema[path[0]]
    expression = column_expressions(session, [field])[0]
    if isinstance(each, IsNull):
        return Condition(f"{expression} IS NULL")
    if isinstance(each, IsNotNull):
        return Condition(f"{expression} IS NOT NULL")
    is_text = isinstance(field.dataType, StringType)
    values = each.value if isinstance(each, In) else (getattr(each, "value", None),)
    usable = [_parameter(session, value, isinstance(field.dataType, TimestampNTZType)) for value in values]
    if None in usable or not 0 < len(usable) <= VALUES_MAX or is_text != isinstance(values[0], str):
        return None
    if isinstance(each, In):
        return Condition(f"{expression} IN ({', '.join([session.parameter] * len(usable))})", tuple(usable))
    sign = _SIGNS.get(type(each))
    if sign is None or (is_text and sign != "="):
        return None
    return Condition(f"{expression} {sign} {session.parameter}", tuple(usable))


def _parameter(session: Session, value: Any, is_local: bool) -> Any:
    """The value as the database takes it; None: it is left to Spark."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | str | Decimal):
        return value if not (isinstance(value, Decimal) and session.address.kind == "sqlite") else None
    if session.address.kind == "sqlite":
        return None
    if isinstance(value, datetime):
        if is_local or value.tzinfo is None:
            return value if is_local and value.tzinfo is None else None
        return value if session.address.kind == "postgresql" else value.astimezone(UTC).replace(tzinfo=None)
    return value if isinstance(value, date) else None
