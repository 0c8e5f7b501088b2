"""The data source itself: what Spark makes for `format("penstock-table")`, and asks for readers and writers.

Spark pickles it and calls it in several Python processes, so it has no state but its options. `url` says where the
table is; everything else belongs to the reader (`table_source`) or to the writer (`table_sink`).
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.pipelines.relational.table_sink import TableStreamWriter, TableWriter
from penstock.pipelines.relational.table_source import source_schema, table_reader, table_stream_reader


class RelationalTable(DataSource):
    """A table of PostgreSQL, MySQL, MariaDB or SQLite."""

    @classmethod
    def name(cls) -> str:
        return "penstock-table"

    def schema(self) -> StructType:
        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return table_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return table_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return TableWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TableStreamWriter(self.options, schema, overwrite)
