"""A followed table without Spark: a reader that is asked for offsets, partitions and rows, as Spark asks."""

from __future__ import annotations

from typing import Any

from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema

from .source_tables import SourceDatabase


class Following:
    """One run of a query; the next one, from where this one is, is what a restart makes."""

    def __init__(self, database: SourceDatabase, at: dict[str, Any] | None = None, **options: str) -> None:
        values = {"url": database.table_url(), "mode": "growing", "pollInterval": "0s", **options}
        self.reader = GrowingReader(parse_source_options(values), source_schema(values))
        self.at = self.reader.initialOffset() if at is None else at

    def rows(self) -> list[dict[str, Any]]:
        """The next batch."""
        limit = self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.at, limit)
        parts = self.reader.partitions(self.at, end) if end != self.at else []
        found = [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]
        self.at = end
        return found

    def all_rows(self) -> list[dict[str, Any]]:
        """Everything there is now, in as many batches as it takes: Trigger.AvailableNow."""
        self.reader.prepareForTriggerAvailableNow()
        found: list[dict[str, Any]] = []
        while True:
            before = self.at
            found += self.rows()
            if self.at == before:
                return found
