"""The stream reader: keeps the position of a query, and decides on the driver what each micro-batch reads.

Spark runs it in a Python process of its own that lives as long as the query, so connections stay open from batch to
batch. It calls `initialOffset` when there is no checkpoint, `latestOffset` before each batch, and `partitions` for the
batch; after a restart `partitions` comes first if a batch was begun and not finished. `read` runs in tasks, on a copy.

*The first batch is empty* when a query begins at the latest offset. The checkpoint does not keep where the first batch
began, only where it ended; without this, a query that dies in its first batch would begin later the next time, and what
was in between would be lost.

*Topic ids* are not in the checkpoint (its form is that of Spark's connector), but are kept here while the query runs: a
topic that was deleted and made anew is noticed even if it has grown past the old position, and tasks refuse to read the
new one as the old. After a restart it is noticed when it is shorter than what was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.groups import commit_offsets
from penstock.spark.bounds import resolve
from penstock.spark.losses import report
from penstock.spark.offsets import Positions, PositionsAsJson, from_json, to_json
from penstock.spark.options import SourceOptions
from penstock.spark.planning import (
    batch_ranges,
    chosen_ranges,
    is_delayed,
    limited_end,
    losses_between,
    split,
    waiting,
)
from penstock.spark.sizes import SizeEstimates
from penstock.spark.task import RangePartition, look_at, read_partition
from penstock.spark.topic_view import Edges, Seen, TopicView


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("penstock")`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._sizes: SizeEstimates | None = None
        self._initial: Positions | None = None
        """where the query begins, if it has no checkpoint"""
        self._is_first = False
        """the next batch is the first of all"""
        self._latest: Positions | None = None
        self._target: Positions | None = None
        """where Trigger.AvailableNow ends"""
        self._is_available_now = False
        self._ids: dict[str, UUID] = {}
        self._made_anew: Positions = {}
        """partitions of topics that were made anew, and where the old ones had been read to"""
        self._planned: Positions | None = None
        """where the batch that was planned last ends"""
        self._went_ahead_s = -float("inf")
        """when a trigger last did not wait for more"""
        self._in_group: Positions | None = None

    # ── where to begin, and how far to go ────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> PositionsAsJson:
        if self._initial is None:
            view = self._view()
            seen = view.look_for_all()
            self._ids = seen.ids
            self._initial = self._begin(view.edges(seen.partitions), seen)
            self._is_first = self._options.start.may_be_latest
        return to_json(self._initial)

    def _begin(self, edges: Edges, seen: Seen) -> Positions:
        """Offsets that were written down must be there."""
        start = resolve(self._options.start, seen.partitions, edges.ask)
        report(chosen_ranges(start, start, edges.first, edges.last).losses, fail=self._options.fail_on_data_loss)
        return {where: min(max(offset, edges.first[where]), edges.last[where]) for where, offset in start.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says only that there are limits: `latestOffset` keeps all of them."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: PositionsAsJson, limit: ReadLimit) -> PositionsAsJson:
        begin = from_json(start)
        if begin == self._planned:
            self._made_anew = {}
        view = self._view()
        self._latest = self._end_of_now(view, begin)
        self._commit_to_group({where: offset for where, offset in begin.items() if where in self._latest})
        is_first, self._is_first = self._is_first and begin == self._initial, False
        if is_first:
            return start
        if isinstance(limit, ReadAllAvailable) or self._options.limits.are_none:
            self._went_ahead_s = time.monotonic()
            return to_json(self._latest)
        limited = self._limited(view, self._true_begin(begin), self._latest)
        return start if limited is None else to_json(limited)

    def reportLatestOffset(self) -> PositionsAsJson | None:
        return None if self._latest is None else to_json(self._latest)

    def _end_of_now(self, view: TopicView, begin: Positions) -> Positions:
        if self._target is not None:
            return self._target
        end = self._end(view, begin)
        if self._is_available_now:
            self._target = end
        return end

    def _end(self, view: TopicView, begin: Positions) -> Positions:
        """Where the partitions end now. It is asked again where one seems to end before what was read: a new leader
        may not know yet how much of it is safe."""
        seen = view.look()
        report([f"{each} does not exist any more" for each in seen.missing], fail=self._options.fail_on_data_loss)
        self._notice_new_topics(seen, begin)
        begin = self._true_begin(begin)
        for left in reversed(range(self._options.offset_attempts)):
            end = view.last(seen.partitions)
            losses = losses_between(begin, end)
            if not losses or not left:
                break
            time.sleep(self._options.offset_pause_s)
        report(losses, fail=self._options.fail_on_data_loss)
        return end

    def _notice_new_topics(self, seen: Seen, begin: Positions) -> None:
        """Topics that have another id than before."""
        changed = sorted(topic for topic, known in self._ids.items() if seen.ids.get(topic, known) != known)
        losses = [
            f"topic {topic} was deleted and made anew: what was not read of the old one is gone" for topic in changed
        ]
        report(losses, fail=self._options.fail_on_data_loss)
        self._ids = self._ids | seen.ids
        self._made_anew |= {where: offset for where, offset in begin.items() if where.topic in changed}

    def _true_begin(self, begin: Positions) -> Positions:
        """Without partitions that have to be read from their beginning although there is a position."""
        return {where: offset for where, offset in begin.items() if self._made_anew.get(where) != offset}

    def _limited(self, view: TopicView, begin: Positions, end: Positions) -> Positions | None:
        """How far a trigger goes within the limits; None: it waits for more."""
        limits = self._options.limits
        begin = begin | view.first(sorted(set(end) - set(begin)))
        sizes = waiting(begin, end)
        now_s = time.monotonic()
        if not self._is_available_now and is_delayed(limits, sizes, now_s - self._went_ahead_s):
            return None
        self._went_ahead_s = now_s
        return limited_end(
            begin,
            end,
            offsets_max=limits.offsets_max,
            bytes_max=limits.bytes_max,
            bytes_per_offset=None if limits.bytes_max is None else self._bytes_per_offset(begin, sizes),
        )

    def _bytes_per_offset(self, begin: Positions, sizes: Positions) -> dict[TopicPartition, float]:
        if self._sizes is None:
            self._sizes = SizeEstimates(lambda piece: look_at(self._connected(), self._options, piece))
        return self._sizes.bytes_per_offset(begin, sizes)

    # ── one micro-batch ──────────────────────────────────────────────────────────────────────────────────────────

    def partitions(self, start: PositionsAsJson, end: PositionsAsJson) -> Sequence[InputPartition]:
        if start == end:
            return []
        to = from_json(end)
        begin = self._true_begin(self._as_it_began(from_json(start), to))
        view = self._view()
        if not self._ids.keys() >= {where.topic for where in to}:
            self._ids = view.look().ids | self._ids
        first = view.first([where for where in sorted(to) if begin.get(where) != to[where]])
        plan = batch_ranges(begin, to, first)
        self._planned = to
        report(plan.losses, fail=self._options.fail_on_data_loss)
        return [
            RangePartition.of(piece, self._ids.get(piece.where.topic))
            for piece in split(plan.ranges, self._options.splits)
        ]

    def _as_it_began(self, begin: Positions, to: Positions) -> Positions:
        """Where a batch up to `to` began. If it is the first, and was begun before a restart, then where a query
        begins may have moved since, and there may be partitions that it did not know."""
        if begin != self._initial:
            return begin
        begin = {where: offset for where, offset in begin.items() if where in to}
        if self._options.start.may_be_latest:
            return {where: min(offset, to[where]) for where, offset in begin.items()}
        return begin

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _commit_to_group(self, done: Positions) -> None:
        """Everything before `done` is finished: Spark asks for the next batch only then."""
        if self._options.group is None or done == self._in_group:
            return
        commit_offsets(self._connected(), self._options.group, done)
        self._in_group = done

    def _view(self) -> TopicView:
        return TopicView(self._connected(), self._options)

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.settings)
        return self._cluster
