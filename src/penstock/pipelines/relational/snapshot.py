"""The table as it is: read whole, in one piece or in ranges that are read at the same time.

In one piece (the default) the rows are those of one moment. In ranges every task reads with a statement of its own, so
each range is of its own moment: a row that is there all the time and keeps its key comes exactly once. Only change
capture has a snapshot that all ranges share, since only there somebody lives long enough to hold it: Spark ends the
process that plans a batch read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.pipelines.relational.dialect import TableShape
from penstock.pipelines.relational.failures import TableOptionError
from penstock.pipelines.relational.filters import PushFilters, filter_conditions
from penstock.pipelines.relational.ranges import KeyRange, even_cuts, ranges_between, row_numbers
from penstock.pipelines.relational.selecting import Condition, Select, column_expressions, range_conditions
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.source_options import SourceOptions
from penstock.pipelines.relational.value_columns import record_batch

PATIENCE_S = 30.0
"""how long a task tries to reach a database that is away"""
READ_ONLY = {"postgresql": "BEGIN READ ONLY", "mysql": "START TRANSACTION READ ONLY", "sqlite": "BEGIN"}


@dataclass
class SnapshotPartition(InputPartition):
    """What one task reads."""

    column: str | None
    keys: KeyRange
    conditions: tuple[Condition, ...] = ()


class SnapshotReader(DataSourceReader):
    """`spark.read.format("penstock-table")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: list[Filter] = []

    @property
    def pushFilters(self) -> PushFilters:
        return PushFilters(self._take)

    def _take(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        self._filters = list(filters)
        return self._filters

    def partitions(self) -> Sequence[InputPartition]:
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            conditions = filter_conditions(session, self._schema, self._filters)
            column, ranges = plan_ranges(session, session.shape(), self._options, self._options.partitions or 1)
            return [SnapshotPartition(column, each, conditions) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SnapshotPartition)
        with open_session(self._options.address, patience_s=PATIENCE_S) as session:
            session.run(READ_ONLY[self._options.address.kind])
            yield from read_range(session, self._schema, partition)


def read_range(session: Session, schema: StructType, partition: SnapshotPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a range, inside a transaction that was begun."""
    keys: tuple[Condition, ...] = ()
    if partition.column is not None:
        keys = range_conditions(session, session.quote(partition.column), partition.keys)
    select = Select(column_expressions(session, schema.fields), (*keys, *partition.conditions))
    for rows in select.pieces(session):
        yield record_batch(rows, schema)


def plan_ranges(
    session: Session, shape: TableShape, options: SourceOptions, parts: int
) -> tuple[str | None, list[KeyRange]]:
    """The column whose values cut the table, and the ranges; without a column there is one range."""
    column = options.partition_column or (shape.primary_key[0] if shape.primary_key else None)
    if options.partition_column is not None and shape.column(options.partition_column) is None:
        names = ", ".join(each.name for each in shape.columns)
        raise TableOptionError("partitionColumn", f"{session.address} has no column {column!r}; it has {names}")
    if parts < 2 or column is None:
        return None, [KeyRange()]
    return column, ranges_between(_cuts(session, session.quote(column), parts))


def _cuts(session: Session, name: str, parts: int) -> list[Any]:
    """Numbers and times are divided by their width, others by counting rows."""
    low, high = Select((f"min({name})", f"max({name})")).run(session)[0]
    if isinstance(low, int | Decimal | datetime) and type(low) is type(high):
        return even_cuts(low, high, parts)
    count = Select(("count(*)",), (Condition(f"{name} IS NOT NULL"),)).run(session)[0][0]
    found = [_row_at(session, name, number) for number in row_numbers(count, parts)]
    return [each for each in found if each is not None]


def _row_at(session: Session, name: str, number: int) -> Any:
    """The key of a row, counted in the order of the keys."""
    not_null = Condition(f"{name} IS NOT NULL")
    tail = f"ORDER BY {name} LIMIT 1 OFFSET {session.parameter}"
    rows = Select((name,), (not_null,), tail, (number,)).run(session)
    return rows[0][0] if rows else None
