"""The batch reader: decides on the driver, once for each query, which ranges are read; tasks read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from penstock.columnar.cluster import Cluster
from penstock.spark.bounds import resolve
from penstock.spark.given_options import OptionError
from penstock.spark.losses import report
from penstock.spark.offsets import Positions
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range, chosen_ranges, split
from penstock.spark.pushdown import Wanted
from penstock.spark.task import RangePartition, read_partition
from penstock.spark.topic_view import TopicView


class PushFilters:
    """`pushFilters` of a reader that Spark takes for the one that does nothing.

    Spark refuses a reader with a `pushFilters` of its own while spark.sql.python.filterPushdown.enabled is off, as it
    is by default. A reader that could use filters works without them, too: so it must not look like one.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[Iterable[Filter]], Iterable[Filter]]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


class PenstockReader(DataSourceReader):
    """`spark.read.format("penstock")`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()

    @property
    def pushFilters(self) -> PushFilters:
        return PushFilters(self._wanted.take if self._options.pushdown else lambda filters: filters)

    def partitions(self) -> Sequence[InputPartition]:
        with Cluster(self._options.settings) as cluster:
            return plan_read(TopicView(cluster, self._options), self._options, self._wanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)


def plan_read(view: TopicView, options: SourceOptions, wanted: Wanted) -> list[InputPartition]:
    """The tasks of a batch read."""
    seen = view.look_for_all()
    edges = view.edges(seen.partitions)
    start = resolve(options.start, seen.partitions, edges.ask)
    end = resolve(options.end, seen.partitions, edges.ask)
    _check_order(options, start, end)
    plan = chosen_ranges(start, end, edges.first, edges.last)
    report(plan.losses, fail=options.fail_on_data_loss)
    ranges = [wanted.narrowed(piece) for piece in plan.ranges if wanted.has(piece.where)]
    ranges = split(_not_before(view, ranges, wanted.time_ms), options.splits)
    return [RangePartition.of(piece, seen.ids.get(piece.where.topic)) for piece in ranges]


def _check_order(options: SourceOptions, start: Positions, end: Positions) -> None:
    """Offsets that were both written down by somebody must be in order."""
    if options.end.option is None or options.end.offset is not None:
        return
    wrong = [where for where in sorted(end) if start[where] > end[where]]
    if wrong:
        where = wrong[0]
        raise OptionError(
            options.end.option, f"{where} would end at offset {end[where]}, before its start at {start[where]}"
        )


def _not_before(view: TopicView, ranges: list[Range], time_ms: int | None) -> list[Range]:
    """Ranges without what lies before the first record that is not older than a time."""
    ranges = [piece for piece in ranges if piece.size > 0]
    if time_ms is None or not ranges:
        return ranges
    found = view.ask([piece.where for piece in ranges], time_ms)
    return [
        Range(piece.where, max(piece.start, start), piece.end)
        for piece in ranges
        if (start := found[piece.where]) is not None and start < piece.end
    ]
