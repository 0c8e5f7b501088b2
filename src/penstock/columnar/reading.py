"""A topic as a stream of Arrow batches, for people.

    table = penstock.columnar.read("localhost:9092", "orders", start=datetime(2026, 3, 1, tzinfo=UTC)).read_all()

Where to read is settled when `read` is called; the records are fetched as the batches are asked for, one partition
after the other, so memory stays flat however long the topic is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa

from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.decode import SCHEMA_WITH_HEADERS, ColumnChoice
from penstock.columnar.errors import ColumnarError, SettingError, TopicGone
from penstock.columnar.fetch import BATCH_BYTES_MAX, FETCH_BYTES, ROWS_MAX, RangeReader
from penstock.columnar.positions import Where, ranges_of
from penstock.columnar.settings import ClientSettings

ISOLATION = ("read_committed", "read_uncommitted")


class _Range(NamedTuple):
    where: TopicPartition
    start: int
    end: int
    topic_id: UUID


def read(
    bootstrap: str,
    topic: str | Sequence[str],
    *,
    start: Where = "earliest",
    end: Where = "latest",
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    headers: bool = False,
    isolation: str | None = None,
    settings: Mapping[str, str] | None = None,
    rows_max: int = ROWS_MAX,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    fetch_bytes: int = FETCH_BYTES,
) -> pa.RecordBatchReader:
    """The records of a topic, or of several, as they are now, as Arrow batches with the columns that Spark's sources
    have: key, value, topic, partition, offset, timestamp, timestampType, and headers if they are asked for.

    `start` and `end` (which is not read itself) are "earliest", "latest", an offset, a datetime, or a dict with one of
    them for each partition. Of key, value and headers only those named in `columns` are copied. `settings` are those of
    Kafka's clients, security included. Batches have at most `rows_max` rows and about `batch_bytes_max` bytes.
    """
    parsed = ClientSettings.parse({**(settings or {}), "bootstrap.servers": bootstrap})
    names = [topic] if isinstance(topic, str) else list(topic)
    chosen = _columns(columns, headers)
    choice = ColumnChoice(key="key" in chosen, value="value" in chosen, headers="headers" in chosen)
    committed = _is_committed(isolation, parsed)
    cluster = Cluster(parsed)
    try:
        ranges = [row for name in names for row in _plan(cluster, name, partitions, start, end, committed)]
    finally:
        cluster.close()  # it connects again when the first batch is asked for, if ever

    def batches() -> Iterator[pa.RecordBatch]:
        with cluster:
            for where, first, last, topic_id in ranges:
                reader = RangeReader(
                    cluster,
                    where,
                    first,
                    last,
                    choice,
                    committed=committed,
                    topic_id=topic_id,
                    fetch_bytes=fetch_bytes,
                    rows_max=rows_max,
                    batch_bytes_max=batch_bytes_max,
                )
                for rows in reader:
                    yield rows.select(chosen)

    schema = pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in chosen])
    return pa.RecordBatchReader.from_batches(schema, batches())


def _plan(
    cluster: Cluster, topic: str, partitions: Sequence[int] | None, start: Where, end: Where, committed: bool
) -> list[_Range]:
    info = cluster.topics([topic]).get(topic)
    if info is None:
        raise TopicGone(topic)
    for number in partitions or ():
        if number not in range(info.partitions):
            raise ColumnarError(f"partitions: topic {topic} has {info.partitions} of them, from 0; {number!r} is none")
    wanted = [TopicPartition(topic, number) for number in sorted(set(partitions or range(info.partitions)))]
    ranges = ranges_of(cluster, wanted, start, end, committed=committed)
    return [_Range(*row, info.topic_id) for row in ranges]


def _columns(columns: Sequence[str] | None, headers: bool) -> list[str]:
    """The names of the columns, as they were asked for."""
    everything = SCHEMA_WITH_HEADERS.names
    if columns is None:
        return [name for name in everything if headers or name != "headers"]
    for name in columns:
        if name not in everything:
            near = get_close_matches(name, everything, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(everything)}"
            raise ColumnarError(f"columns: there is no column {name!r}{hint}")
    chosen = list(dict.fromkeys(columns))
    return [*chosen, "headers"] if headers and "headers" not in chosen else chosen


def _is_committed(isolation: str | None, settings: ClientSettings) -> bool:
    name = isolation or settings.get("isolation.level") or "read_committed"
    if name not in ISOLATION:
        raise SettingError("isolation", f"is {' or '.join(ISOLATION)}, not {name!r}")
    return name == "read_committed"
