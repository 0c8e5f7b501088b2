"""Bytes to columns and back: json, csv, string and raw by Spark's own functions, avro by `formats_avro`.

`decoded` adds two columns to what a source delivers: `_data`, a struct of the columns that the format has, and
`_reason`, which is null unless the bytes cannot be read. Nobody throws: one record that makes no sense must not hold up
the others. What becomes of those that have a reason is for `bad_records` to say.

`encoded` makes the columns key, value and timestamp of rows, as `format("penstock")` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType, TimestampType

from penstock.pipelines.formats_avro import avro_decoded, avro_encoded, avro_struct
from penstock.pipelines.reading_nodes import did_you_mean
from penstock.pipelines.spark_errors import in_short
from penstock.pipelines.specification import Format, FormatKind, TopicSink

DATA = "_data"
REASON = "_reason"
CORRUPT = "_corrupt_record"

NO_VALUE = "there is no value"
NOT_TEXT = "the bytes are not text in UTF-8"
EMPTY = "the value is empty"
DOES_NOT_FIT = "the value does not fit the schema"


class FormatError(ValueError):
    """A format and its columns that do not go together."""


def data_struct(format: Format) -> StructType:
    """The columns that values of this format have. FormatError."""
    if format.kind is FormatKind.AVRO:
        return avro_struct(format.schema or "")
    if format.kind in (FormatKind.JSON, FormatKind.CSV):
        try:
            struct = StructType.fromDDL(format.schema or "")
        except ParseException as error:
            raise FormatError(f"the schema cannot be read: {in_short(error)}") from None
        if not isinstance(struct, StructType) or not struct.fields:
            raise FormatError("the schema has no columns")
        return struct
    kind = StringType() if format.kind is FormatKind.STRING else BinaryType()
    return StructType().add("value", kind)


def decoded(raw: DataFrame, format: Format) -> DataFrame:
    """See the head of this file. `raw` has a column value, bytes or text."""
    if format.kind is FormatKind.AVRO:
        return avro_decoded(raw, format)
    if format.kind in (FormatKind.JSON, FormatKind.CSV):
        return _parsed(raw, format)
    value = F.col("value")
    if format.kind is FormatKind.STRING:
        data, reason = F.struct(value.cast("string").alias("value")), _text_reason(raw)
    else:
        data, reason = F.struct(value), F.lit(None).cast("string")
    return raw.withColumns({DATA: data, REASON: reason})


def _parsed(raw: DataFrame, format: Format) -> DataFrame:
    struct = data_struct(format)
    text = F.col("value").cast("string")
    options = {**format.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    wanted = StructType([*struct.fields]).add(CORRUPT, StringType())
    if format.kind is FormatKind.JSON:
        parsed = F.from_json(text, wanted, options)
    else:
        parsed = F.from_csv(
            text, ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in wanted), options
        )
    with_data = raw.withColumn(DATA, parsed)
    data = F.col(DATA)
    reason = (
        F.when(_text_reason(raw).isNotNull(), _text_reason(raw))
        .when(data.isNull() | (F.trim(text) == ""), F.lit(EMPTY))
        .when(data[CORRUPT].isNotNull(), F.lit(DOES_NOT_FIT))
    )
    for field in struct.fields:
        if not field.nullable:
            reason = reason.when(
                data[field.name].isNull(), F.lit(f"{field.name} is missing, and the schema says not null")
            )
    return with_data.withColumns({REASON: reason, DATA: data.dropFields(CORRUPT)})


def _text_reason(raw: DataFrame) -> Column:
    value = F.col("value")
    reason = F.when(value.isNull(), F.lit(NO_VALUE))
    if isinstance(raw.schema["value"].dataType, BinaryType):
        reason = reason.when(~F.is_valid_utf8(value.cast("string")), F.lit(NOT_TEXT))
    return reason


# ── to bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_options(spark: SparkSession, format: Format) -> None:
    """FormatError for an option that Spark's reader and writer of this format do not know; they would say nothing."""
    catalyst: Any = spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    if format.kind is FormatKind.JSON:
        known = catalyst.json.JSONOptions.getAllOptions()
    elif format.kind is FormatKind.CSV:
        known = catalyst.csv.CSVOptions.getAllOptions()
    elif format.options:
        raise FormatError(f"format_options belong to json and csv; {format.kind.value} has none")
    else:
        return
    names = {name.lower(): name for name in known.mkString(",").split(",")}
    for name in format.options:
        if name.lower() not in names:
            hint = did_you_mean(name, list(names.values())) or f"; there are {', '.join(sorted(names.values()))}"
            raise FormatError(f"format_options: {name} is unknown to Spark{hint}")


def encoded(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """The records of rows: columns as `format("penstock")` takes them. FormatError."""
    columns = [name for name in rows.columns if name != sink.delete_when]
    need_columns(rows, (*sink.key, *filter(None, (sink.timestamp, sink.delete_when))))
    if sink.delete_when and not isinstance(rows.schema[sink.delete_when].dataType, BooleanType):
        raise FormatError(f"delete_when: the column {sink.delete_when} is not boolean")
    if sink.format.kind is FormatKind.RAW:
        need_columns(rows, ("value",))
        return rows
    check_options(rows.sparkSession, sink.format)
    records = _with_value(rows, sink.format, columns)
    kept: dict[str, Column] = {"value": F.col("_value")}
    if sink.delete_when:
        kept["value"] = F.when(F.coalesce(F.col(f"`{sink.delete_when}`"), F.lit(False)), None).otherwise(
            F.col("_value")
        )
    if sink.key:
        kept["key"] = _key(rows, sink.key)
    if sink.timestamp:
        if not isinstance(rows.schema[sink.timestamp].dataType, TimestampType):
            raise FormatError(f"timestamp: the column {sink.timestamp} is not a timestamp")
        kept["timestamp"] = F.col(f"`{sink.timestamp}`")
    return records.select(*(column.alias(name) for name, column in kept.items()))


def need_columns(rows: DataFrame, names: Sequence[str]) -> None:
    """FormatError unless all these columns are there."""
    missing = [name for name in names if name not in rows.columns]
    if missing:
        hint = did_you_mean(missing[0], rows.columns)
        raise FormatError(f"there is no column {', '.join(missing)}{hint}; there are {', '.join(rows.columns)}")


def _with_value(rows: DataFrame, format: Format, columns: list[str]) -> DataFrame:
    if format.kind is FormatKind.AVRO:
        return avro_encoded(rows, format, columns)
    row = F.struct(*(F.col(f"`{name}`") for name in columns))
    if format.kind is FormatKind.JSON:
        return rows.withColumn("_value", F.to_json(row, {"ignoreNullFields": "false", **format.options}))
    if format.kind is FormatKind.CSV:
        return rows.withColumn("_value", F.to_csv(row, dict(format.options)))
    name = "value" if "value" in columns else columns[0]
    if name != "value" and len(columns) > 1:
        raise FormatError(f"format string writes one column: call it value; there are {', '.join(columns)}")
    return rows.withColumn("_value", F.col(f"`{name}`").cast("string"))


def _key(rows: DataFrame, names: Sequence[str]) -> Column:
    """One column is the key as text (bytes stay bytes); several are JSON."""
    if len(names) > 1:
        return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)), {"ignoreNullFields": "false"})
    column = F.col(f"`{names[0]}`")
    return column if isinstance(rows.schema[names[0]].dataType, BinaryType) else column.cast("string")
