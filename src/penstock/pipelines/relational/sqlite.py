"""SQLite, from the standard library. The file must be where the program runs, tasks included: one machine.

A column takes any value whatever its declared type is, so the type says only how a reader understands it. There are no
times: they are kept as text, `2024-05-01 12:00:00.000000` in UTC, which sorts by time and which SQLite's own functions
understand.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote as url_quote

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.dialect import Column, TableShape, quoted
from penstock.pipelines.relational.failures import LoginRefused, NoSuchTable, RelationalError, RowsRefused, TryAgain

#: How long a connection waits for others who write.
LOCK_TIMEOUT_S = 30.0
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DECIMAL_TEXT)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_PRECISION_MAX = 38
#: What a floating point number holds: SQLite turns longer decimal numbers into rounded ones, unless the type is text.
_EXACT_DIGITS = 15
_COLUMN_TYPES: tuple[tuple[type[DataType], str], ...] = (
    (BooleanType, "BOOLEAN"),
    (ByteType, "INTEGER"),
    (ShortType, "INTEGER"),
    (IntegerType, "INTEGER"),
    (LongType, "INTEGER"),
    (FloatType, "REAL"),
    (DoubleType, "REAL"),
    (StringType, "TEXT"),
    (VarcharType, "TEXT"),
    (CharType, "TEXT"),
    (BinaryType, "BLOB"),
    (DateType, "DATE"),
    (TimestampType, "TIMESTAMP"),
    (TimestampNTZType, "DATETIME"),
    (ArrayType, "TEXT"),
    (MapType, "TEXT"),
    (StructType, "TEXT"),
)
#: The first that is found in the declared type counts.
_TYPES: tuple[tuple[str, DataType], ...] = (
    ("BOOL", BooleanType()),
    ("TIMESTAMP", TimestampType()),
    ("DATETIME", TimestampNTZType()),
    ("DATE", DateType()),
    ("INT", LongType()),
    ("CHAR", StringType()),
    ("CLOB", StringType()),
    ("TEXT", StringType()),
    ("BLOB", BinaryType()),
    ("REAL", DoubleType()),
    ("FLOA", DoubleType()),
    ("DOUB", DoubleType()),
    ("NUMERIC", DoubleType()),
    ("DECIMAL", DoubleType()),
)


class SQLite:
    """See `dialect.Dialect`."""

    parameter = "?"
    begin = "BEGIN IMMEDIATE"

    def connect(self, address: TableAddress, *, may_create: bool = False) -> sqlite3.Connection:
        file = url_quote(str(Path(address.database).absolute()))
        timeout_s = float(address.setting("timeout") or LOCK_TIMEOUT_S)
        return sqlite3.connect(
            f"file:{file}?mode={'rwc' if may_create else 'rw'}",
            uri=True,
            timeout=timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )

    def run(
        self, connection: sqlite3.Connection, statement: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        return connection.execute(statement, tuple(parameters)).fetchall()

    def quote(self, name: str) -> str:
        return quoted(name, "`")  # what stands between " and is no column (any more) SQLite takes for a text

    def table(self, address: TableAddress) -> str:
        return self.quote(address.table)

    def shape(self, connection: sqlite3.Connection, address: TableAddress) -> TableShape | None:
        rows = self.run(connection, "SELECT * FROM pragma_table_xinfo(?)", (address.table,))
        if not rows:
            return None
        keys = [name for place, name in sorted((row[5], row[1]) for row in rows) if place]
        has_number = len(keys) == 1 and any(row[5] and row[2].upper() == "INTEGER" for row in rows)
        columns = tuple(
            Column(
                name=name,
                database_type=declared,
                spark_type=_spark_type(declared),
                nullable=not is_required and not place,
                has_default=default is not None or bool(place and has_number),
                is_computed=hidden in (2, 3),
            )
            for _, name, declared, is_required, default, place, hidden in rows
        )
        return TableShape(columns, tuple(keys), self._unique_keys(connection, address.table, tuple(keys)))

    def _unique_keys(
        self, connection: sqlite3.Connection, table: str, primary: tuple[str, ...]
    ) -> tuple[tuple[str, ...], ...]:
        """An integer primary key has no index of its own."""
        found = [primary] if primary else []
        indexes = 'SELECT name FROM pragma_index_list(?) WHERE "unique" = 1 AND partial = 0'
        for (index,) in self.run(connection, indexes, (table,)):
            parts = self.run(connection, "SELECT name FROM pragma_index_info(?) ORDER BY seqno", (index,))
            names = tuple(name for (name,) in parts)
            if None not in names and names not in found:
                found.append(names)
        return tuple(found)

    def column_type(self, spark_type: DataType, *, is_key: bool) -> str | None:
        del is_key
        if isinstance(spark_type, DecimalType):
            word = "DECIMAL" if spark_type.precision <= _EXACT_DIGITS else "DECIMAL_TEXT"
            return f"{word}({spark_type.precision},{spark_type.scale})"
        return next((text for kind, text in _COLUMN_TYPES if isinstance(spark_type, kind)), None)

    def explained(self, error: Exception, address: TableAddress) -> RelationalError | None:
        return _explained(error, address) if isinstance(error, sqlite3.Error) else None


def _spark_type(declared: str) -> DataType:
    """A column without a type is text: anything can be read as text."""
    upper = declared.upper()
    if found := _DECIMAL.match(upper):
        precision, scale = int(found[1]), int(found[2] or 0)
        if 0 < precision <= _PRECISION_MAX and scale <= precision:
            return DecimalType(precision, scale)
    return next((spark_type for word, spark_type in _TYPES if word in upper), StringType())


def _why_not_opened(file: Path) -> str:
    if file.exists():
        return "it may not be opened"
    if not file.parent.is_dir():
        return "there is no such folder"
    return "there is no such file (a sink makes one with the option create)"


def _explained(error: sqlite3.Error, address: TableAddress) -> RelationalError:
    said = str(error)
    if "locked" in said or "busy" in said:
        return TryAgain(
            f"{address.database_shown} is locked by somebody else who writes into it ({said}); let that end, or wait "
            "longer with ?timeout=SECONDS in the address"
        )
    if "unable to open" in said:
        return LoginRefused(f"{address.database_shown}: {_why_not_opened(Path(address.database))}")
    if "no such table" in said:
        return NoSuchTable(f"{address.database_shown}: {said}")
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError):
        return RowsRefused(f"{address} does not take these rows: {said}")
    return RelationalError(f"{address}: {said}")
