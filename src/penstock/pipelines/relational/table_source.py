"""What tables give as sources: the schema, a reader for the table as it is, and readers for what comes to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructField, StructType

from penstock.pipelines.relational.change_columns import change_schema
from penstock.pipelines.relational.change_readiness import check_start
from penstock.pipelines.relational.changes import ChangesReader
from penstock.pipelines.relational.failures import NotAllowed, TableOptionError
from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.growing_column import growing_column
from penstock.pipelines.relational.selecting import Select
from penstock.pipelines.relational.session import Session, open_session
from penstock.pipelines.relational.snapshot import SnapshotReader
from penstock.pipelines.relational.source_options import CHANGES, GROWING, SourceOptions, parse_source_options


def source_schema(values: Mapping[str, str]) -> StructType:
    """The columns of the table, or of its changes."""
    options = parse_source_options(values)
    with open_session(options.address) as session:
        if options.mode == CHANGES:
            schema = change_schema(session.address, session.shape())
            check_start(session, options.publication, options.slot)
            return schema
        return _table_schema(session, options)


def _table_schema(session: Session, options: SourceOptions) -> StructType:
    shape = session.shape()
    names = [each.name for each in shape.columns]
    unknown = [name for name in options.columns if name not in names]
    if unknown:
        raise TableOptionError("columns", f"{session.address} has no column {unknown[0]!r}; it has {', '.join(names)}")
    if options.mode == GROWING:
        growing_column(shape, options)  # says what is wrong with it before anything runs
    chosen = options.columns or tuple(names)
    _try_reading(session, chosen)
    found = (shape.column(name) for name in chosen)
    return StructType([StructField(each.name, each.spark_type, each.nullable) for each in found if each is not None])


def _try_reading(session: Session, names: Sequence[str]) -> None:
    """Describing a table needs less than reading it: whoever may not read it hears of it before anything runs."""
    try:
        Select(tuple(session.quote(name) for name in names), tail="LIMIT 0").run(session)
    except NotAllowed as error:
        table, user = session.table.replace("%%", "%"), session.address.user
        raise NotAllowed(f"{error}; GRANT SELECT ON {table} TO {user or 'this user'}") from None


def table_reader(values: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """For `spark.read`."""
    options = parse_source_options(values)
    if options.mode is not None:
        raise TableOptionError("mode", f"{options.mode} is for streams (readStream); a batch reads the table as it is")
    return SnapshotReader(options, schema)


def table_stream_reader(values: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """For `spark.readStream`."""
    options = parse_source_options(values)
    if options.mode == GROWING:
        return GrowingReader(options, schema)
    if options.mode == CHANGES:
        return ChangesReader(options, schema)
    raise TableOptionError("mode", "is needed for a stream: growing (with the option column) or changes (with slot)")
