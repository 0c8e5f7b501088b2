"""The data source itself: what Spark makes for `format("penstock")`, and asks for readers and writers.

Spark pickles it and calls it in several Python processes, so it has no state but its options. Options are checked when
`load()` asks for the schema, as far as that can be done without knowing whether a batch or a stream is read.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.columnar.errors import ColumnarError
from penstock.spark.options import parse_batch_options, parse_options, parse_stream_options
from penstock.spark.sink import PenstockStreamWriter, PenstockWriter
from penstock.spark.source import PenstockReader
from penstock.spark.stream import PenstockStreamReader

COLUMN_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


class PenstockDataSource(DataSource):
    """Topics of any broker that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return schema_of(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_batch_options(self.options)
        _check_schema(schema, options.columns)
        return PenstockReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_stream_options(self.options)
        _check_schema(schema, options.columns)
        return PenstockStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return PenstockWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return PenstockStreamWriter(self.options, schema, overwrite)


def schema_of(columns: tuple[str, ...]) -> StructType:
    """What the source gives."""
    return StructType([StructField(name, COLUMN_TYPES[name]) for name in columns])


def _check_schema(schema: StructType, columns: tuple[str, ...]) -> None:
    """A schema of the user's own would be filled with something else."""
    ours = schema_of(columns)
    if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in ours]:
        raise ColumnarError(
            "the schema of topics is fixed and cannot be given with schema(); choose columns with the option columns, "
            f"and convert them afterwards. It is: {ours.simpleString()}"
        )
