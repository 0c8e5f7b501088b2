"""What a streaming query says of its batches, as a `QueryStatus`."""

from __future__ import annotations

import json
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipelines.running_errors import explained
from penstock.pipelines.running_sinks import PlannedQuery
from penstock.pipelines.running_sources import SlotWatch, source_name
from penstock.pipelines.specification import Pipeline
from penstock.pipelines.status import QueryStatus, SourceStatus


class QueryProgress:
    """Follows one query: what happened in its batches adds up."""

    def __init__(self, planned: PlannedQuery, query: StreamingQuery, pipeline: Pipeline, slots: SlotWatch) -> None:
        self.planned = planned
        self.query = query
        self._pipeline = pipeline
        self._slots = slots
        self._seen = -1
        self._rows = 0
        self._bad = 0
        self._last: Any = None

    def error(self) -> StreamingQueryException | None:
        return self.query.exception()

    def status(self) -> QueryStatus:
        for progress in self.query.recentProgress:
            self._add(json.loads(progress.json))
        error = self.error()
        base = QueryStatus(
            self.planned.name,
            self.planned.kind,
            self.planned.target,
            rows_total=self._rows,
            bad_records=self._bad,
            is_active=self.query.isActive,
            last_error=None if error is None else explained(error),
        )
        return base if self._last is None else self._with_batch(base, self._last)

    def _add(self, progress: dict[str, Any]) -> None:
        """A batch that was not counted yet; the same one is told again while nothing happens."""
        self._last = progress
        if progress["batchId"] <= self._seen or "addBatch" not in progress.get("durationMs", {}):
            return
        self._seen = progress["batchId"]
        self._rows += progress["numInputRows"]
        if self.planned.kind != "sink":
            self._bad += max(0, progress.get("sink", {}).get("numOutputRows", 0) or 0)
        for name, values in (progress.get("observedMetrics") or {}).items():
            if name.startswith("bad "):
                self._bad += int(values.get("bad", 0))

    def _with_batch(self, base: QueryStatus, progress: dict[str, Any]) -> QueryStatus:
        return QueryStatus(
            base.name,
            base.kind,
            base.target,
            self._seen,
            float(progress.get("processedRowsPerSecond") or 0.0),
            int(progress.get("batchDuration") or 0),
            base.rows_total,
            base.bad_records,
            sum(int(each.get("numRowsTotal", 0)) for each in progress.get("stateOperators", ())),
            (progress.get("eventTime") or {}).get("watermark"),
            base.is_active,
            tuple(self._source(number, each) for number, each in enumerate(progress.get("sources", ()))),
            base.last_error,
        )

    def _source(self, number: int, progress: dict[str, Any]) -> SourceStatus:
        end, latest = _document(progress.get("endOffset")), _document(progress.get("latestOffset"))
        name = source_name(self._pipeline, end, str(progress.get("description") or ""), number)
        return SourceStatus(
            name,
            float(progress.get("processedRowsPerSecond") or 0.0),
            int(progress.get("numInputRows") or 0),
            _lag(_positions(end), _positions(latest)),
            self._slots.held_back_bytes(name),
        )


def _document(value: Any) -> dict[str, Any]:
    """An offset as the source wrote it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _positions(offset: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Positions of topics, if these are such."""
    return offset if all(isinstance(each, dict) for each in offset.values()) else {}


def _lag(end: dict[str, dict[str, int]], latest: dict[str, dict[str, int]]) -> int | None:
    if not end or not latest:
        return None
    try:
        return sum(
            max(0, int(offset) - int(end.get(topic, {}).get(partition, 0)))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
    except (TypeError, ValueError):
        return None
