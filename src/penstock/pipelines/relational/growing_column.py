"""The column that grows: what is compared in the database, and what its values are here.

A column of numbers, of moments (with a zone) or of local times (without). SQLite keeps times as text in several forms
that do not sort alike, so there its own function brings them into one, to the millisecond; all comparisons use that.

Times are followed up to the database's clock: a row dated ahead waits until its time has come. Otherwise one wrong
date would move the position into the future, and all rows until then would be behind it. A local time may be meant in
UTC or in the database's zone, so the later of the two clocks counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql.types import DataType, DecimalType, IntegralType, TimestampNTZType, TimestampType

from penstock.pipelines.relational.dialect import TableShape
from penstock.pipelines.relational.failures import TableOptionError
from penstock.pipelines.relational.selecting import Condition
from penstock.pipelines.relational.session import Session
from penstock.pipelines.relational.source_options import SourceOptions
from penstock.pipelines.relational.value_columns import as_local, as_moment
from penstock.pipelines.relational.window import Interval, Position

NUMBER, MOMENT, LOCAL = "number", "moment", "local"
_SQLITE_FORM = "%Y-%m-%d %H:%M:%f"
_CLOCKS = {
    ("postgresql", MOMENT): "clock_timestamp()",
    ("postgresql", LOCAL): "greatest(clock_timestamp()::timestamp, clock_timestamp() AT TIME ZONE 'UTC')",
    ("mysql", MOMENT): "UTC_TIMESTAMP(6)",
    ("mysql", LOCAL): "greatest(UTC_TIMESTAMP(6), CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM'))",
    ("sqlite", MOMENT): f"strftime('{_SQLITE_FORM}', 'now')",
    ("sqlite", LOCAL): f"max(strftime('{_SQLITE_FORM}', 'now'), strftime('{_SQLITE_FORM}', 'now', 'localtime'))",
}


@dataclass(frozen=True, slots=True)
class GrowingColumn:
    """See the head of this file."""

    name: str
    kind: str
    is_nullable: bool
    overlap: Decimal | timedelta

    def expression(self, session: Session) -> str:
        """What is compared."""
        name = session.quote(self.name)
        if self.kind != NUMBER and session.address.kind == "sqlite":
            return f"strftime('{_SQLITE_FORM}', {name})"
        return name

    def clock(self, session: Session) -> str | None:
        return _CLOCKS.get((session.address.kind, self.kind))

    def within(self, session: Session, interval: Interval) -> tuple[Condition, ...]:
        expression, mark = self.expression(session), session.parameter
        found = [Condition(f"{expression} <= {mark}", (self._parameter(session, interval.up_to),))]
        if interval.above is not None:
            found.append(Condition(f"{expression} > {mark}", (self._parameter(session, interval.above),)))
        return tuple(found)

    def above(self, session: Session, position: Position | None) -> tuple[Condition, ...]:
        """Rows above a position that are not ahead of the clock."""
        expression, clock, found = self.expression(session), self.clock(session), []
        if position is not None:
            found.append(Condition(f"{expression} > {session.parameter}", (self._parameter(session, position),)))
        if clock is not None:
            found.append(Condition(f"{expression} <= {clock}"))
        return tuple(found)

    def position(self, value: Any) -> Position:
        """A value of the database as a position."""
        if self.kind == NUMBER:
            return value if isinstance(value, int) else Decimal(str(value))
        return as_moment(value) if self.kind == MOMENT else as_local(value)

    def as_text(self, position: Position) -> str:
        return position.isoformat() if isinstance(position, datetime) else str(position)

    def from_text(self, text: str) -> Position:
        """ValueError or ArithmeticError for what `as_text` did not write."""
        if self.kind == NUMBER:
            number = Decimal(text)
            return int(number) if number == number.to_integral_value() and "." not in text else number
        return self.position(text)

    def _parameter(self, session: Session, position: Position) -> Any:
        if not isinstance(position, datetime):
            exact = session.address.kind != "sqlite" and not isinstance(position, int)
            return position if exact or isinstance(position, int) else _plain_number(position)
        if session.address.kind == "sqlite":
            return position.strftime("%Y-%m-%d %H:%M:%S.") + f"{position.microsecond // 1000:03}"
        if session.address.kind == "mysql" and position.tzinfo is not None:
            return position.astimezone(UTC).replace(tzinfo=None)
        return position


def _plain_number(position: Decimal) -> int | float:
    return int(position) if position == position.to_integral_value() else float(position)


def growing_column(shape: TableShape, options: SourceOptions) -> GrowingColumn:
    """The column that the options name; TableOptionError if it cannot be followed."""
    column = shape.column(options.column)
    if column is None:
        names = ", ".join(each.name for each in shape.columns)
        raise TableOptionError("column", f"{options.address} has no column {options.column!r}; it has {names}")
    kind = _kind(column.spark_type)
    if kind is None:
        raise TableOptionError(
            "column", f"{column.name} is {column.database_type}; a column that grows holds numbers or times"
        )
    overlap = options.overlap_numbers() if kind == NUMBER else options.overlap_time()
    return GrowingColumn(column.name, kind, column.nullable, overlap)


def _kind(spark_type: DataType) -> str | None:
    if isinstance(spark_type, IntegralType | DecimalType):
        return NUMBER
    if isinstance(spark_type, TimestampType):
        return MOMENT
    return LOCAL if isinstance(spark_type, TimestampNTZType) else None
