"""Records that cannot be read: why, where they were, and where they go.

A source that is decoded has a column `_reason` (`formats`). What a sink's query sees of it are the good ones; with
`stop` it fails at the first bad one instead, and says where it is. Bad ones that are kept go their own way: one query
for each source reads it beside the others and writes them, bytes as they were, with the reason and the place. So no
record is in two places, and none in neither.

Spark's parsers say that a value is wrong, not why. `json_reason` and `csv_reason` find out, for bad records alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from penstock.pipelines.formats import DATA, DOES_NOT_FIT, REASON, data_struct
from penstock.pipelines.specification import Format, FormatKind

#: What is known of the place of a record, for topics and for files.
TOPIC_PLACE = ("topic", "partition", "offset", "timestamp")
FILE_PLACE = ("file",)
HEADER_PREFIX = "penstock."
STOPPED = "PENSTOCK_BAD_RECORD"
_INTEGERS = (ShortType, IntegerType, LongType)
_FRACTIONS = (FloatType, DoubleType)
_KINDS = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}


def good_or_stop(decoded: DataFrame, source: str) -> DataFrame:
    """All rows if they are good; otherwise the query fails and names the first bad one."""
    place = F.concat_ws(", ", *(F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in _places(decoded)))
    text = F.concat(F.lit(f"{STOPPED} source {source}: "), F.col(REASON), F.lit(" ("), place, F.lit(")"))
    return decoded.where(F.when(F.col(REASON).isNull(), F.lit(True)).otherwise(F.raise_error(text).cast("boolean")))


def counted(decoded: DataFrame, source: str) -> DataFrame:
    """All rows, with the number of bad ones told in the query's progress."""
    return decoded.observe(f"bad {source}", F.count(F.col(REASON)).alias("bad"))


def good(decoded: DataFrame) -> DataFrame:
    return decoded.where(F.col(REASON).isNull())


def bad_with_reasons(decoded: DataFrame, format: Format) -> DataFrame:
    """The bad ones: key, value and headers as they were, their place, and an exact reason."""
    rows = decoded.where(F.col(REASON).isNotNull()).drop(DATA)
    if format.kind not in (FormatKind.JSON, FormatKind.CSV):
        return rows
    explain = _explainer(format)
    schema = StructType([*rows.schema.fields])

    def refine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values, reasons = batch.column("value").to_pylist(), batch.column(REASON).to_pylist()
            exact = [
                explain(value) if reason == DOES_NOT_FIT else reason
                for value, reason in zip(values, reasons, strict=True)
            ]
            index = batch.schema.get_field_index(REASON)
            yield batch.set_column(index, REASON, pa.array(exact, pa.string()))

    return rows.mapInArrow(refine, schema)


def dead_letters(bad: DataFrame, pipeline: str, source: str) -> DataFrame:
    """Bad records as they are written to a topic: reason and place are headers, after those that were there."""
    ours = [_header("reason", F.col(REASON)), _header("pipeline", F.lit(pipeline)), _header("source", F.lit(source))]
    ours += [_header(name, F.col(name).cast("string")) for name in _places(bad)]
    headers = F.array(*ours)
    if "headers" in bad.columns:
        headers = F.concat(F.coalesce(F.col("headers"), F.array().cast(bad.schema["headers"].dataType)), headers)
    key = F.col("key") if "key" in bad.columns else F.lit(None).cast("binary")
    return bad.select(key.alias("key"), F.col("value"), headers.alias("headers"))


def dead_columns(bad: DataFrame, pipeline: str, source: str) -> DataFrame:
    """Bad records as they are written to files: reason and place are columns."""
    rows = bad.withColumn("pipeline", F.lit(pipeline)).withColumn("source", F.lit(source))
    kept = [name for name in ("key", "value", "headers") if name in bad.columns]
    names = [REASON, "pipeline", "source", *_places(bad), *kept]
    return rows.select(*(F.col(name).alias(name.removeprefix("_")) for name in names))


def _places(rows: DataFrame) -> list[str]:
    return [name for name in (*TOPIC_PLACE, *FILE_PLACE) if name in rows.columns]


def _header(name: str, value: Column) -> Column:
    text = F.coalesce(value, F.lit(""))
    return F.struct(F.lit(f"{HEADER_PREFIX}{name}").alias("key"), F.encode(text, "UTF-8").alias("value"))


# ── why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _explainer(format: Format) -> Callable[[Any], str]:
    struct = data_struct(format)
    delimiter = format.options.get("sep", format.options.get("delimiter", ","))
    if format.kind is FormatKind.JSON:
        return lambda value: json_reason(_text(value), struct)
    return lambda value: csv_reason(_text(value), struct, delimiter)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def json_reason(text: str, struct: StructType) -> str:
    """Why a text is not JSON of these columns."""
    try:
        found = json.loads(text)
    except ValueError as error:
        return f"this is not JSON: {error}"
    except RecursionError:
        return "this is not JSON: it is nested too deeply"
    if not isinstance(found, dict):
        return f"an object is wanted, and this is {_kind(found)}"
    return _misfit(found, struct, "") or DOES_NOT_FIT


def _misfit(found: Any, kind: DataType, path: str) -> str | None:
    """The first place where the types differ plainly; None if it cannot be told."""
    if found is None:
        return None
    if isinstance(kind, StructType):
        if not isinstance(found, dict):
            return _differs(found, kind, path)
        inner = (
            _misfit(found[field.name], field.dataType, f"{path}.{field.name}" if path else field.name)
            for field in kind.fields
            if field.name in found
        )
        return next((each for each in inner if each), None)
    if isinstance(kind, ArrayType) and isinstance(found, list):
        inner = (_misfit(each, kind.elementType, f"{path}[{number}]") for number, each in enumerate(found))
        return next((each for each in inner if each), None)
    if isinstance(kind, MapType) and isinstance(found, dict):
        inner = (_misfit(each, kind.valueType, f"{path}.{name}") for name, each in found.items())
        return next((each for each in inner if each), None)
    return None if _fits(found, kind) else _differs(found, kind, path)


def _fits(found: Any, kind: DataType) -> bool:
    if isinstance(kind, StringType):
        return True
    if isinstance(kind, BooleanType):
        return isinstance(found, bool)
    if isinstance(kind, _INTEGERS):
        bits = {ShortType: 15, IntegerType: 31, LongType: 63}[type(kind)]
        return isinstance(found, int) and not isinstance(found, bool) and -(1 << bits) <= found < 1 << bits
    if isinstance(kind, _FRACTIONS):
        return isinstance(found, int | float) and not isinstance(found, bool)
    return False  # times, dates and decimals: it is one of these, or it would not be bad


def _differs(found: Any, kind: DataType, path: str) -> str:
    return f"{path}: {kind.simpleString()} is wanted, and this is {_kind(found)}"


def _kind(found: Any) -> str:
    return "null" if found is None else _KINDS[type(found)]


def csv_reason(text: str, struct: StructType, delimiter: str) -> str:
    """Why a line does not have these columns."""
    count = text.count(delimiter) + 1 if '"' not in text else None
    if count is not None and count != len(struct.fields):
        return f"the line has {count} fields, and the schema {len(struct.fields)}"
    return "a field of the line does not have the type that the schema says"
