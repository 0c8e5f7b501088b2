"""What is written into which table: the DataFrame's columns beside the table's, decided once on the driver.

A column of the DataFrame goes to the column of the table with the same name. It is an error if there is none, except
for the columns that only say what to do (`deleteWhen`, `orderBy`): those are written if the table has them. Columns of
the table that the DataFrame has not are left to the database, which must be able to fill them.

This is looked at for every batch anew, so a table that was changed in the middle is taken as it is from the next batch
on: a new column that may be null is left empty, one that is gone and still in the DataFrame is an error.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.types import BooleanType, DataType, StructType

from penstock.pipelines.relational.dialect import Dialect, TableShape
from penstock.pipelines.relational.failures import NoSuchTable, RelationalError, TableOptionError
from penstock.pipelines.relational.session import Session, dialect_of, open_session
from penstock.pipelines.relational.table_sink_options import DELETE, INSERT, TOMBSTONES, UPSERT, TableSinkOptions
from penstock.pipelines.relational.target_rights import check_rights


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the DataFrame."""

    name: str
    staged_type: str
    """its type in a staging table"""
    is_key: bool
    is_written: bool
    """False: it says what to do, and the table has no such column"""


@dataclass(frozen=True, slots=True)
class Target:
    """See the head of this file. Plain data: tasks get it."""

    options: TableSinkOptions
    columns: tuple[TargetColumn, ...]
    """all of the DataFrame, in its order"""

    @property
    def written(self) -> list[int]:
        """The places of the columns that go into the table."""
        return [place for place, column in enumerate(self.columns) if column.is_written]

    @property
    def keys(self) -> list[int]:
        by_name = {column.name: place for place, column in enumerate(self.columns)}
        return [by_name[name] for name in self.options.keys]

    def place(self, name: str) -> int:
        return next(place for place, column in enumerate(self.columns) if column.name == name)


def plan_target(options: TableSinkOptions, schema: StructType) -> Target:
    """Look at the table, make it if that is asked for, and compare; RelationalError."""
    check_columns(options, schema)
    with open_session(options.address, may_create=options.create, patience_s=options.retry_s) as session:
        shape = session.find_shape()
        if shape is None:
            session.run(_create_if_asked(session.dialect, options, schema))
            shape = session.shape()
        return compare(session, options, schema, shape)


def check_target(options: TableSinkOptions, schema: StructType) -> None:
    """What `plan_target` would say, with nothing made and nobody waited for; RelationalError."""
    check_columns(options, schema)
    address = options.address
    file = Path(address.database)
    if address.kind == "sqlite" and options.create and file.parent.is_dir() and not file.exists():
        create_statement(dialect_of(address), options, schema)
        return
    with open_session(address) as session:
        shape = session.find_shape()
        if shape is None:
            _create_if_asked(session.dialect, options, schema)
        else:
            compare(session, options, schema, shape)
        check_rights(session, options, is_there=shape is not None)


def _create_if_asked(dialect: Dialect, options: TableSinkOptions, schema: StructType) -> str:
    if not options.create:
        raise NoSuchTable(
            f"{options.address.database_shown}: there is no table {options.address.table_shown!r}; make it, or "
            "let the option create make it"
        )
    return create_statement(dialect, options, schema)


def check_columns(options: TableSinkOptions, schema: StructType) -> None:
    """What can be said without the database."""
    names = schema.names
    if len(set(names)) != len(names):
        raise RelationalError(f"the rows have two columns of the same name: {', '.join(names)}")
    for key in options.keys:
        _require("keys", key, names)
    if options.order_by is not None:
        _require("orderBy", options.order_by, names)
    if options.delete_when is not None:
        _check_delete_when(options, schema)


def _check_delete_when(options: TableSinkOptions, schema: StructType) -> None:
    name = options.delete_when or ""
    if name == TOMBSTONES:
        if name in schema.names:
            raise TableOptionError("deleteWhen", f"{name} is also a column here; give the column another name")
        return
    _require("deleteWhen", name, schema.names, also=f", or {TOMBSTONES}")
    if not isinstance(schema[name].dataType, BooleanType) or name in options.keys:
        raise TableOptionError(
            "deleteWhen", f"names a boolean column that is no key, and {name!r} is not such a column"
        )


def _require(option: str, name: str, names: list[str], also: str = "") -> None:
    if name not in names:
        raise TableOptionError(option, f"names {name!r}, which the rows do not have{_near(name, names)}{also}")


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f" (they have {', '.join(names)})"


def create_statement(dialect: Dialect, options: TableSinkOptions, schema: StructType) -> str:
    """CREATE TABLE for such rows, with the keys as its primary key."""
    lines = []
    for field in schema:
        if field.name == options.delete_when:
            continue
        is_key = field.name in options.keys
        kind = _column_type(dialect, field.name, field.dataType, is_key)
        lines.append(f"{dialect.quote(field.name)} {kind}{' NOT NULL' if is_key else ''}")
    if options.keys:
        lines.append(f"PRIMARY KEY ({', '.join(map(dialect.quote, options.keys))})")
    return f"CREATE TABLE IF NOT EXISTS {dialect.table(options.address)} ({', '.join(lines)})"


def _column_type(dialect: Dialect, name: str, spark_type: DataType, is_key: bool) -> str:
    kind = dialect.column_type(spark_type, is_key=is_key)
    if kind is None:
        raise RelationalError(
            f"column {name!r} is {spark_type.simpleString()}, which this database has no type for; cast it, for "
            "example to string"
        )
    return kind


def compare(session: Session, options: TableSinkOptions, schema: StructType, shape: TableShape) -> Target:
    """The DataFrame beside the table; RelationalError."""
    address, columns = options.address, []
    if shape.engine_without_transactions is not None:
        raise RelationalError(
            f"{address} is a table of the engine {shape.engine_without_transactions}, which has no transactions, so "
            f"no batch can go into it as one: ALTER TABLE {address.table_shown} ENGINE = InnoDB"
        )
    helping = {options.order_by, options.delete_when}
    for field in schema:
        found = shape.column(field.name)
        made_type = _column_type(session.dialect, field.name, field.dataType, field.name in options.keys)
        if found is None and field.name not in helping:
            raise RelationalError(
                f"{address} has no column {field.name!r}{_near(field.name, [each.name for each in shape.columns])}. "
                f"Add it to the table (ALTER TABLE … ADD COLUMN … {made_type}), or do not select it"
            )
        if found is not None and found.is_computed:
            raise RelationalError(f"column {field.name!r} of {address} is filled by the database; do not select it")
        kind = made_type if found is None else found.database_type
        columns.append(TargetColumn(field.name, kind, field.name in options.keys, found is not None))
    if options.mode != DELETE:
        _check_left_out(options, schema, shape)
    if options.mode != INSERT:
        _check_keys(options, schema, shape)
    return Target(options, tuple(columns))


def _check_left_out(options: TableSinkOptions, schema: StructType, shape: TableShape) -> None:
    for column in shape.columns:
        if column.name not in schema.names and not (column.nullable or column.has_default or column.is_computed):
            raise RelationalError(
                f"column {column.name!r} of {options.address} may not be null and has no default, and the rows do "
                "not have it; select it, or give it a default"
            )


def _check_keys(options: TableSinkOptions, schema: StructType, shape: TableShape) -> None:
    address, keys = options.address, set(options.keys)
    if missing := [key for key in options.keys if shape.column(key) is None]:
        raise RelationalError(f"{address} has no column {missing[0]!r}, which the option keys names")
    if options.mode == UPSERT and not any(set(unique) == keys for unique in shape.unique_keys):
        names = ", ".join(options.keys)
        raise RelationalError(
            f"mode upsert needs a primary key or a unique index on exactly the keys ({names}) of {address}, which is "
            f"how the database finds the row: CREATE UNIQUE INDEX … ON {address.table_shown} ({names})"
        )
    others = [unique for unique in shape.unique_keys if set(unique) != keys and set(unique) & set(schema.names)]
    if options.mode == UPSERT and address.kind == "mysql" and others:
        raise RelationalError(
            f"{address} has another unique key, ({', '.join(others[0])}), and MySQL cannot be told which of them means "
            f"the same row; keys has to be the only one that the rows can violate"
        )
