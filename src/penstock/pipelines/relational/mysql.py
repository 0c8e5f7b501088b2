"""MySQL and MariaDB, over PyMySQL.

Every connection speaks utf8mb4, has its clock at UTC, and is strict: what does not fit into a column is an error and
not cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pymysql
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

#: Longer than any statement of ours should take; without it a server that is gone would be waited for without end.
ANSWER_TIMEOUT_S = 900
_SESSION = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION'",
    "SET SESSION default_storage_engine = 'InnoDB'",  # what we make has transactions
)

_SIGNED: dict[str, DataType] = {
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "mediumint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
}
_UNSIGNED: dict[str, DataType] = {
    "tinyint": ShortType(),
    "smallint": IntegerType(),
    "mediumint": IntegerType(),
    "int": LongType(),
    "bigint": DecimalType(20, 0),
}
_TYPES: dict[str, DataType] = {
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "datetime": TimestampNTZType(),
    "timestamp": TimestampType(),
    "year": IntegerType(),
    "bit": LongType(),
}
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_PRECISION_MAX = 38
#: As long as a key of text may be: within the limit of an index, and of bytes, so that A and a are two keys.
_KEY_TEXT = "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_KEY_BINARY = "varbinary(255)"
_TEXT = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

_COLUMN_TYPES: tuple[tuple[type[DataType], str], ...] = (
    (BooleanType, "boolean"),
    (ByteType, "tinyint"),
    (ShortType, "smallint"),
    (IntegerType, "int"),
    (LongType, "bigint"),
    (FloatType, "float"),
    (DoubleType, "double"),
    (StringType, _TEXT),
    (VarcharType, _TEXT),
    (CharType, _TEXT),
    (BinaryType, "longblob"),
    (DateType, "date"),
    (TimestampType, "datetime(6)"),
    (TimestampNTZType, "datetime(6)"),
    (ArrayType, "json"),
    (MapType, "json"),
    (StructType, "json"),
)
_COLUMNS = """
    SELECT column_name, data_type, column_type, is_nullable, column_default, extra, character_set_name, collation_name
    FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position"""
_KEYS = """
    SELECT index_name, column_name, sub_part FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index"""
#: The engine of a table if it has no transactions.
_ENGINE = """
    SELECT engine FROM information_schema.tables JOIN information_schema.engines USING (engine)
    WHERE table_schema = DATABASE() AND table_name = %s AND COALESCE(transactions, 'NO') <> 'YES'"""

_AWAY = (1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055)
_LOGIN = (1044, 1045, 1049, 1698, 2059)
_NOT_ALLOWED = (1142, 1143)
_AGAIN = (1205, 1213, 1020, 1412)
_ROWS = (1048, 1062, 1138, 1216, 1264, 1265, 1292, 1364, 1366, 1406, 1411, 1451, 1452, 1216, 3140, 3819, 4025, 1153)


class MySQL:
    """See `dialect.Dialect`."""

    parameter = "%s"
    begin = "START TRANSACTION"

    def connect(self, address: TableAddress, *, may_create: bool = False) -> pymysql.Connection[Any]:
        del may_create
        settings: dict[str, Any] = dict(address.settings)
        timeout_s = int(settings.pop("connect_timeout", CONNECT_TIMEOUT_S))
        connection: pymysql.Connection[Any] = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user or None,
            password=address.password,
            database=address.database,
            connect_timeout=timeout_s,
            read_timeout=ANSWER_TIMEOUT_S,
            write_timeout=ANSWER_TIMEOUT_S,
            charset="utf8mb4",
            autocommit=True,
            program_name=APPLICATION,
            **settings,
        )
        for each in _SESSION:
            self.run(connection, each)
        return connection

    def run(
        self, connection: pymysql.Connection[Any], statement: str, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement, tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []

    def quote(self, name: str) -> str:
        return quoted(name, "`").replace("%", "%%")

    def table(self, address: TableAddress) -> str:
        return self.quote(address.table)

    def shape(self, connection: pymysql.Connection[Any], address: TableAddress) -> TableShape | None:
        columns = tuple(_column(*row) for row in self.run(connection, _COLUMNS, (address.table,)))
        if not columns:
            return None
        keys: dict[str, list[str]] = {}
        partial = set()
        for index, name, part in self.run(connection, _KEYS, (address.table,)):
            keys.setdefault(index, []).append(name)
            if part is not None:
                partial.add(index)  # it is unique in its first characters
        primary = tuple(keys.get("PRIMARY", ()))
        unique = tuple(tuple(names) for index, names in keys.items() if index not in partial)
        engines = self.run(connection, _ENGINE, (address.table,))
        return TableShape(columns, primary, unique, engines[0][0] if engines else None)

    def column_type(self, spark_type: DataType, *, is_key: bool) -> str | None:
        if isinstance(spark_type, DecimalType):
            fits = spark_type.scale <= 30
            return f"decimal({spark_type.precision},{spark_type.scale})" if fits else None
        if is_key and isinstance(spark_type, StringType | VarcharType | CharType):
            return _KEY_TEXT
        if is_key and isinstance(spark_type, BinaryType):
            return _KEY_BINARY
        return next((text for kind, text in _COLUMN_TYPES if isinstance(spark_type, kind)), None)

    def explained(self, error: Exception, address: TableAddress) -> RelationalError | None:
        return _explained(error, address) if isinstance(error, pymysql.MySQLError) else None


def _column(
    name: str, kind: str, declared: str, nullable: str, default: str | None, extra: str, charset: str, collation: str
) -> Column:
    extra = extra.lower()
    words = f"{declared} CHARACTER SET {charset} COLLATE {collation}" if charset else declared
    return Column(
        name=name,
        database_type=words,
        spark_type=_spark_type(kind.lower(), declared.lower()),
        nullable=nullable == "YES",
        has_default=default is not None or "auto_increment" in extra or "default_generated" in extra,
        is_computed="virtual" in extra or "stored" in extra or "persistent" in extra,
    )


def _spark_type(kind: str, declared: str) -> DataType:
    if declared.startswith(("tinyint(1)", "bit(1)")):
        return BooleanType()
    if kind in _SIGNED:
        return (_UNSIGNED if "unsigned" in declared else _SIGNED)[kind]
    if found := _DECIMAL.match(declared):
        precision, scale = int(found[1]), int(found[2])
        return DecimalType(precision, scale) if precision <= _PRECISION_MAX else StringType()
    if kind in _BINARY:
        return BinaryType()
    return _TYPES.get(kind, StringType())


def _explained(error: pymysql.MySQLError, address: TableAddress) -> RelationalError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = " ".join(str(error.args[-1] if error.args else error).split())[:2000]
    if code in _LOGIN:
        return LoginRefused(f"{address.database_shown} does not let {address.user or 'this user'} in: {said}")
    if code == 1146:
        return NoSuchTable(f"{address.database_shown}: {said}")
    if code in _NOT_ALLOWED:
        return NotAllowed(f"{address}: {said}")
    if code in _AGAIN:
        return TryAgain(f"{address}: {said}")
    if code in _ROWS or isinstance(error, pymysql.DataError | pymysql.IntegrityError):
        return RowsRefused(f"{address} does not take these rows: {said}")
    if code in _AWAY or isinstance(error, pymysql.InterfaceError):
        return DatabaseAway(f"{address.database_shown} cannot be reached, or broke off: {said}")
    return RelationalError(f"{address}: {said}")
