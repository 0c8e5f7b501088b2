"""What differs from database to database, as one small protocol; `postgresql`, `mysql` and `sqlite` fill it in.

A dialect has no state: connections are given to it. All connections commit by themselves (autocommit) unless a
statement says BEGIN. SQL is built from fixed text, from names that went through `quote`, and from parameters, never
from anything else that somebody may have chosen. Because a quoted name may have a percent sign, which the drivers of
PostgreSQL and MySQL take for a parameter, `quote` doubles it, and every statement is run with parameters, be they none:
that is what `run` is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.types import DataType

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.failures import RelationalError

CONNECT_TIMEOUT_S = 10
APPLICATION = "penstock"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the database describes it."""

    name: str
    database_type: str
    """as it is written in CREATE TABLE, with the character set where there is one"""
    spark_type: DataType
    """what a reader makes of it"""
    nullable: bool = True
    has_default: bool = False
    """the database fills it when it is left out: a default, a serial, an identity"""
    is_computed: bool = False
    """the database computes it from other columns, or numbers it itself always: nobody may write it"""


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as the database describes it."""

    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    """columns that identify a row, the primary key included"""
    engine_without_transactions: str | None = None
    """MySQL: what keeps the table, if a batch could not go into it as one"""

    def column(self, name: str) -> Column | None:
        return next((each for each in self.columns if each.name == name), None)


class Dialect(Protocol):
    """See the head of this file. `connection` is what `connect` gave: a connection of that driver."""

    @property
    def parameter(self) -> str:
        """What stands for a parameter in a statement."""
        ...

    @property
    def begin(self) -> str:
        """The statement that begins a transaction which writes."""
        ...

    def connect(self, address: TableAddress, *, may_create: bool = False) -> Any:
        """A connection that commits by itself; the driver's own exceptions. `may_create`: the file of a SQLite."""
        ...

    def run(self, connection: Any, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any; the driver's own exceptions."""
        ...

    def quote(self, name: str) -> str:
        """A name as it stands in a statement."""
        ...

    def table(self, address: TableAddress) -> str:
        """The table as it stands in a statement, quoted, with its schema."""
        ...

    def shape(self, connection: Any, address: TableAddress) -> TableShape | None:
        """What the table looks like; None: there is no such table."""
        ...

    def column_type(self, spark_type: DataType, *, is_key: bool) -> str | None:
        """The type of a column that is made for such values; None: it cannot hold them."""
        ...

    def explained(self, error: Exception, address: TableAddress) -> RelationalError | None:
        """The driver's exception in the user's words; None: it is no exception of this driver."""
        ...


def quoted(name: str, mark: str) -> str:
    """A name between marks, with the marks inside it doubled; RelationalError for what cannot be a name."""
    if not name or "\0" in name:
        raise RelationalError(f"{name[:100]!r} cannot be the name of a table or a column")
    return mark + name.replace(mark, mark + mark) + mark
