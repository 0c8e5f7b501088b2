"""PostgreSQL, over psycopg 3.

The shape of a table is read from the catalog, so that domains, arrays, enums and generated columns are seen as they
are. Types that Spark does not know become strings: PostgreSQL reads and writes all of its types as text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg
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
from penstock.pipelines.relational.dialect import APPLICATION, CONNECT_TIMEOUT_S, Column, TableShape, quoted
from penstock.pipelines.relational.failures import (
    DatabaseAway,
    LoginRefused,
    NoSuchTable,
    NotAllowed,
    RelationalError,
    RowsRefused,
    TryAgain,
)

_TYPES: dict[str, DataType] = {
    "smallint": ShortType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "oid": LongType(),
    "real": FloatType(),
    "double precision": DoubleType(),
    "numeric": DecimalType(38, 18),
    "boolean": BooleanType(),
    "bytea": BinaryType(),
    "date": DateType(),
    "timestamp without time zone": TimestampNTZType(),
    "timestamp with time zone": TimestampType(),
}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
#: Digits of a second in a type's name, which change nothing for Spark.
_PRECISION = re.compile(r"(timestamp|time)\(\d\)")
_PRECISION_MAX = 38

_COLUMN_TYPES: tuple[tuple[type[DataType], str], ...] = (
    (BooleanType, "boolean"),
    (ByteType, "smallint"),
    (ShortType, "smallint"),
    (IntegerType, "integer"),
    (LongType, "bigint"),
    (FloatType, "real"),
    (DoubleType, "double precision"),
    (StringType, "text"),
    (VarcharType, "text"),
    (CharType, "text"),
    (BinaryType, "bytea"),
    (DateType, "date"),
    (TimestampType, "timestamp with time zone"),
    (TimestampNTZType, "timestamp without time zone"),
    (ArrayType, "jsonb"),
    (MapType, "jsonb"),
    (StructType, "jsonb"),
)

_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
           CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
           a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
           a.attgenerated <> '' OR a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum"""
_KEYS = """
    SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.place)
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY AS k(number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid, i.indisprimary
    ORDER BY i.indisprimary DESC, i.indexrelid"""


class PostgreSQL:
    """See `dialect.Dialect`."""

    parameter = "%s"
    begin = "BEGIN"

    def connect(self, address: TableAddress, *, may_create: bool = False) -> psycopg.Connection[Any]:
        del may_create
        settings: dict[str, Any] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": APPLICATION,
            "keepalives_idle": 30,
            "tcp_user_timeout": 60_000,
            **dict(address.settings),
        }
        connection: psycopg.Connection[Any] = psycopg.connect(
            host=address.host,
            port=address.port,
            dbname=address.database,
            user=address.user or None,
            password=address.password or None,
            autocommit=True,
            **settings,
        )
        self.run(connection, "SET TIME ZONE 'UTC'")
        return connection

    def run(
        self, connection: psycopg.Connection[Any], statement: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.encode(), tuple(parameters))
            return cursor.fetchall() if cursor.description else []

    def quote(self, name: str) -> str:
        return quoted(name, '"').replace("%", "%%")

    def table(self, address: TableAddress) -> str:
        name = self.quote(address.table)
        return name if address.schema is None else f"{self.quote(address.schema)}.{name}"

    def shape(self, connection: psycopg.Connection[Any], address: TableAddress) -> TableShape | None:
        name = self.table(address).replace("%%", "%")  # it is a parameter here
        found = self.run(connection, "SELECT to_regclass(%s)::oid", (name,))[0][0]
        if found is None:
            return None
        columns = tuple(
            Column(name, declared, _spark_type(base or declared), not is_required, has_default, is_computed)
            for name, declared, base, is_required, has_default, is_computed in self.run(connection, _COLUMNS, (found,))
        )
        keys = self.run(connection, _KEYS, (found,))
        primary = next((tuple(names) for is_primary, names in keys if is_primary), ())
        return TableShape(columns, primary, tuple(tuple(names) for _, names in keys))

    def column_type(self, spark_type: DataType, *, is_key: bool) -> str | None:
        del is_key
        if isinstance(spark_type, DecimalType):
            return f"numeric({spark_type.precision},{spark_type.scale})"
        return next((text for kind, text in _COLUMN_TYPES if isinstance(spark_type, kind)), None)

    def explained(self, error: Exception, address: TableAddress) -> RelationalError | None:
        return _explained(error, address) if isinstance(error, psycopg.Error) else None


def _spark_type(text: str) -> DataType:
    """The type of a column as `format_type` writes it."""
    if text.endswith("[]"):
        return ArrayType(_spark_type(text.removesuffix("[]")))
    if found := _NUMERIC.fullmatch(text):
        precision, scale = int(found[1]), int(found[2])
        return DecimalType(precision, scale) if 0 <= scale <= precision <= _PRECISION_MAX else StringType()
    return _TYPES.get(_PRECISION.sub(r"\1", text), StringType())


def _explained(error: psycopg.Error, address: TableAddress) -> RelationalError:
    state, said = error.sqlstate or "", _said(error)
    if state in ("28P01", "28000") or "password authentication failed" in said or "no password supplied" in said:
        return LoginRefused(f"{address.database_shown} does not let {address.user or 'this user'} in: {said}")
    if state == "3D000" or ("database" in said and "does not exist" in said):
        return LoginRefused(f"{address.database_shown}: there is no such database ({said})")
    if state == "42P01":
        return NoSuchTable(f"{address.database_shown}: {said}")
    if state == "42501":
        return NotAllowed(f"{address}: {said}")
    if state in ("40001", "40P01", "55P03"):
        return TryAgain(f"{address}: {said}")
    if state[:2] in ("22", "23"):
        return RowsRefused(f"{address} does not take these rows: {said}")
    if isinstance(error, psycopg.OperationalError) and state[:2] in ("", "08", "57", "53", "58"):
        return DatabaseAway(f"{address.database_shown} cannot be reached, or broke off: {said}")
    return RelationalError(f"{address}: {said}")


def _said(error: psycopg.Error) -> str:
    """The message, and where and why if the server said so, in one line."""
    about = error.diag
    parts = [about.message_primary or str(error), about.message_detail, about.context]
    return "; ".join(" ".join(part.split()) for part in parts if part)[:2000]
