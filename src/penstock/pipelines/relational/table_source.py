"""What tables give as sources: the schema, a reader for the table as it is, and readers for what comes to it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructField, StructType

from penstock.pipelines.relational.session import open_session
from penstock.pipelines.relational.table_options import TableOptions


def source_schema(values: Mapping[str, str]) -> StructType:
    """The columns of the table."""
    with open_session(TableOptions(values).address()) as session:
        return StructType([StructField(each.name, each.spark_type, each.nullable) for each in session.shape().columns])


def table_reader(values: Mapping[str, str], schema: StructType) -> DataSourceReader:
    raise NotImplementedError


def table_stream_reader(values: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    raise NotImplementedError
