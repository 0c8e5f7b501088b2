"""The sink: what tasks and the driver do when a DataFrame is written to a table.

Spark makes a writer on the driver, which looks at the table (`target`); sends it to every task, which copies its rows
into a staging table (`staging`); and hands what the tasks report to `commit` on the driver, which merges all of them in
one transaction (`merging`). For a stream the one who commits is another object in a process that knows nothing of
the first. So a report carries everything that the end needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipelines.relational.failures import RelationalError, TableOptionError
from penstock.pipelines.relational.merging import abort_batch, merge_batch
from penstock.pipelines.relational.staging import Staged, stage_rows
from penstock.pipelines.relational.table_batch import TableBatch, used_once
from penstock.pipelines.relational.table_sink_options import INSERT, parse_sink_options
from penstock.pipelines.relational.target import Target, plan_target

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class StageReport(WriterCommitMessage):
    """What a task tells the driver."""

    batch: TableBatch
    staged: Staged


class TableWriter(DataSourceArrowWriter):
    """`df.write`: all or nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise RelationalError('mode("overwrite") is not possible; use mode("append") with the option mode or keys')
        parsed = parse_sink_options(options, is_stream=False)
        self.target = plan_target(parsed, schema)
        self.batch = used_once()
        if parsed.name is not None and parsed.number is not None:
            self.batch = TableBatch(parsed.name, parsed.number)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return StageReport(self.batch, stage_rows(self.target, self.batch, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.target, self.batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_batch(self.target, _stages(_reports(messages)))


class TableStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch once, whatever is killed and started again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        parsed = parse_sink_options(options, is_stream=True)
        if overwrite and parsed.mode == INSERT:
            raise TableOptionError(
                "mode", "insert would add the whole result again with every batch in output mode complete; use upsert"
            )
        self.target: Target = plan_target(parsed, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = self.batch()
        return StageReport(batch, stage_rows(self.target, batch, iterator))

    def batch(self) -> TableBatch:
        """The batch whose task this is."""
        task = TaskContext.get()
        assert task is not None, "write is called by tasks"
        query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise RelationalError("Spark does not say which query and batch this is, so the batch cannot count once")
        return TableBatch(self.target.options.name or query_id, int(batch_id), query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        batch = next((each.batch for each in _reports(messages)), None)
        if batch is None:
            return
        if batch.number != batchId:
            raise RelationalError(f"Spark commits batch {batchId}, and its tasks have staged {batch}")
        _commit(self.target, batch, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        del batchId
        abort_batch(self.target, _stages(_reports(messages)))


def _reports(messages: list[WriterCommitMessage | None]) -> list[StageReport]:
    return [each for each in messages if isinstance(each, StageReport)]


def _stages(reports: list[StageReport]) -> list[str]:
    return [each.staged.stage for each in reports if each.staged.stage is not None]


def _commit(target: Target, batch: TableBatch, messages: list[WriterCommitMessage | None]) -> None:
    """Tasks that were left out would be rows that are lost, so there must be none."""
    reports = _reports(messages)
    if len(reports) < len(messages):
        raise RelationalError(f"{len(messages) - len(reports)} tasks of {batch} have not reported what they staged")
    if any(each.batch != batch for each in reports):
        raise RelationalError(f"tasks of different attempts have reported for {batch}")
    merge_batch(target, batch, [each.staged for each in reports])
