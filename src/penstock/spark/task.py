"""What a task does: read its range from the partition's leader, and hand Arrow batches to Spark as they come.

It runs in one of Spark's Python workers, with nothing but the options and the range. Batches are passed on one by one,
so its memory does not depend on the size of the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.decode import ColumnChoice
from penstock.columnar.errors import OffsetsGone, TopicGone
from penstock.columnar.fetch import RangeReader
from penstock.spark.kept_clusters import kept_cluster
from penstock.spark.losses import report
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range
from penstock.spark.sizes import BYTES_LOOKED_AT, Look


@dataclass
class RangePartition(InputPartition):
    """One task's range; plain data, because Spark pickles it. `topic_id`: what the topic must still be, if known."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes | None = None

    @classmethod
    def of(cls, piece: Range, topic_id: UUID | None) -> RangePartition:
        identity = None if topic_id is None else topic_id.bytes
        return cls(piece.where.topic, piece.where.partition, piece.start, piece.end, identity)


def column_choice(columns: tuple[str, ...]) -> ColumnChoice:
    """Which of the large columns are copied at all."""
    return ColumnChoice(key="key" in columns, value="value" in columns, headers="headers" in columns)


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Spark makes up a partition that is no range when there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return
    with kept_cluster(options.settings) as cluster:
        yield from read_range(cluster, options, partition)


def look_at(cluster: Cluster, options: SourceOptions, piece: Range) -> Look:
    """How large the first records of a range are; nothing if they have gone."""
    choice = column_choice(options.columns)
    reader = RangeReader(
        cluster,
        *piece,
        choice,
        committed=options.committed,
        fetch_bytes=BYTES_LOOKED_AT,
        batch_bytes_max=BYTES_LOOKED_AT,
    )
    size_bytes, following = 0, piece.start
    try:
        for rows in reader:
            size_bytes += rows.select(options.columns).nbytes
            following = rows.column("offset")[-1].as_py() + 1
            if size_bytes >= BYTES_LOOKED_AT:
                return Look(size_bytes, following - piece.start)
    except (OffsetsGone, TopicGone):
        return Look(size_bytes, following - piece.start)
    return Look(size_bytes, piece.size)


def read_range(cluster: Cluster, options: SourceOptions, piece: RangePartition) -> Iterator[pa.RecordBatch]:
    """The rows of a range; what has gone since it was planned is an error or is left out."""
    where = TopicPartition(piece.topic, piece.partition)
    topic_id = None if piece.topic_id is None else UUID(bytes=piece.topic_id)
    choice = column_choice(options.columns)
    start = piece.start
    while start < piece.end:
        reader = RangeReader(cluster, where, start, piece.end, choice, committed=options.committed, topic_id=topic_id)
        try:
            for rows in reader:
                yield rows.select(options.columns)
            return
        except OffsetsGone as error:
            report([str(error)], fail=options.fail_on_data_loss)
            start = error.first if error.first > start else piece.end
        except TopicGone as error:
            report([str(error)], fail=options.fail_on_data_loss)
            return
