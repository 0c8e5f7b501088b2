"""Rows of any kind into a topic, in one call.

    written = write(table, "orders", "localhost:9092", key="id", value="payload")

Rows come as an Arrow table, record batch, reader or iterable of batches, or as anything that can hand itself over as an
Arrow stream: a pandas, Polars or DuckDB frame. They are streamed: what does not fit into memory does not have to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.columnar.cluster import Cluster
from penstock.columnar.errors import ColumnarError
from penstock.columnar.produce import BATCH_BYTES, BulkProducer, parse_acks
from penstock.columnar.settings import ClientSettings

BATCH_ROWS = 65_536  # of a table, at a time
DEFAULT_COMPRESSION = "none"


class Written(NamedTuple):
    """What a write has done: rows, their bytes as they were sent, and how many partitions they went to."""

    rows: int
    bytes: int
    partitions: int


def write(
    rows: Any,
    topic: str,
    bootstrap: str | None = None,
    *,
    key: str | None = None,
    value: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    timestamp: str | None = None,
    compression: str | None = None,
    transactional_id: str | None = None,
    batch_bytes: int = BATCH_BYTES,
    settings: Mapping[str, str] | None = None,
) -> Written:
    """Write rows to a topic; returns when all of them are acknowledged.

    `key`, `value`, `headers`, `partition` and `timestamp` name columns. Without a name, `key`, `value` and `headers`
    are the columns of these names if there are such; a frame of a single column is taken for the values. Keys and
    values are bytes or text. Rows with the same key go to the same partition, the one that Java's clients choose; rows
    without one are spread.

    With a `transactional_id` readers see all rows or none. Without it an error can leave some of the rows written.
    `settings` are client settings under Kafka's names, such as those of security; `compression` is that of
    `compression.type` there, or none, as with other producers.
    """
    named = {"key": key, "value": value, "headers": headers, "partition": partition, "timestamp": timestamp}
    given = {} if bootstrap is None else {"bootstrap.servers": bootstrap}
    parsed = ClientSettings.parse({**(settings or {}), **given})
    codec = compression or parsed.get("compression.type") or parsed.get("compression.codec") or DEFAULT_COMPRESSION
    acks = parse_acks(parsed.get("acks") or parsed.get("request.required.acks") or "all")
    transactional_id = transactional_id or parsed.get("transactional.id") or None
    batches = batches_of(rows)
    with Cluster(parsed) as cluster:
        producer = BulkProducer(
            cluster, transactional_id=transactional_id, acks=acks, compression=codec, batch_bytes=batch_bytes
        )
        with producer:
            if transactional_id is None:
                _write_all(producer, topic, batches, named)
            else:
                _write_at_once(producer, topic, batches, named)
            return Written(producer.rows, producer.bytes, producer.partitions)


def _write_all(
    producer: BulkProducer, topic: str, batches: Iterable[pa.RecordBatch], named: Mapping[str, str | None]
) -> None:
    for batch in batches:
        producer.write(topic, arranged(batch, named))
    producer.flush()


def _write_at_once(
    producer: BulkProducer, topic: str, batches: Iterable[pa.RecordBatch], named: Mapping[str, str | None]
) -> None:
    producer.begin()
    try:
        _write_all(producer, topic, batches, named)
        producer.commit()
    except BaseException:
        _abort_quietly(producer)
        raise


def _abort_quietly(producer: BulkProducer) -> None:
    """The first error is the one to be told. What is not aborted now ends with its timeout."""
    try:
        producer.abort()
    except ColumnarError:
        pass


def batches_of(rows: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of whatever the rows are."""
    if isinstance(rows, pa.RecordBatch):
        return iter((rows,))
    if isinstance(rows, pa.Table):
        return iter(rows.to_batches(max_chunksize=BATCH_ROWS))
    if isinstance(rows, pa.RecordBatchReader):
        return iter(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(rows))
    if hasattr(rows, "__dataframe__"):  # pandas before it could hand itself over
        return iter(pa.Table.from_pandas(rows, preserve_index=False).to_batches(max_chunksize=BATCH_ROWS))
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping):
        return _batches_of_each(rows)
    raise ColumnarError(
        f"rows of type {type(rows).__name__} cannot be written; give an Arrow table, reader or record batches, or a "
        "pandas, Polars or DuckDB frame (of dictionaries: pyarrow.Table.from_pylist(rows))"
    )


def _batches_of_each(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for part in rows:
        if not isinstance(part, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
            raise ColumnarError(
                f"an item of type {type(part).__name__} is among the rows; an iterable must yield Arrow record batches "
                "(of dictionaries: pyarrow.Table.from_pylist(rows))"
            )
        yield from batches_of(part)


def arranged(rows: pa.RecordBatch, named: Mapping[str, str | None]) -> pa.RecordBatch:
    """The columns that are written, under the names by which they are known; keys and values as bytes."""
    columns = {role: _column(rows, role, name) for role, name in named.items()}
    found = {role: column for role, column in columns.items() if column is not None}
    for role in ("key", "value"):
        if role in found:
            found[role] = _as_bytes(found[role], role, named[role] or role)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _column(rows: pa.RecordBatch, role: str, name: str | None) -> pa.Array | None:
    names = rows.schema.names
    if name is None:
        if role in ("key", "value", "headers") and role in names:
            return rows.column(role)
        if role != "value":
            return None
        if len(names) == 1:
            return rows.column(0)
        raise ColumnarError(
            f"the rows have the columns {', '.join(names)}: say which one is the value (value=…). {_MAKE_ONE}"
        )
    if not isinstance(name, str):
        raise ColumnarError(f"{role}={name!r}: {role} is the name of one column. {_MAKE_ONE}")
    if names.count(name) != 1:
        problem = "is not there" if name not in names else "is there more than once"
        raise ColumnarError(f"{role}={name!r}: this column {problem}; the rows have {', '.join(names)}")
    return rows.column(name)


_MAKE_ONE = (
    "To write several columns, make one of them first, for instance JSON: struct(…).struct.json_encode() in Polars, "
    "to_json({…}) in DuckDB"
)


def _as_bytes(column: pa.Array, role: str, name: str) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_bytes(column.dictionary_decode(), role, name)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_null(kind) or _is_text(kind) or pa.types.is_fixed_size_binary(kind) or kind == pa.binary_view():
        return column.cast(pa.binary())
    hint = _MAKE_ONE if pa.types.is_nested(kind) else "Cast it to text or bytes first"
    raise ColumnarError(f"column {name!r} of type {kind} cannot be a {role}: keys and values are bytes or text. {hint}")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or kind == pa.string_view())
