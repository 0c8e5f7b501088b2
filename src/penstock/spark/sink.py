"""The sink: what tasks and the driver do when a DataFrame is written to topics.

Spark makes a writer on the driver, sends it to every task (`write`), and hands what the tasks report to `commit` or
`abort`, on the driver again. For a batch write that is the same object; for a stream it is another one, in a process
that knows nothing of the first. So a report carries everything that the end needs, and nothing is kept between calls
but connections.

At least once: a task writes and waits until all is acknowledged. There is nothing to commit.

Exactly once, with Penstock brokers: a task writes in a transaction of its own and *prepares* it as its last act; the
driver's commit commits all that were reported as one, under the name and number of the batch (`named_batch`). The
brokers say if that number was committed before; then nothing is written twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.columnar.commit_many import PreparedTransaction, is_offered
from penstock.columnar.settings import ClientSettings
from penstock.spark.batch_ending import abort_batch, commit_batch, settle
from penstock.spark.given_options import OptionError
from penstock.spark.kept_clusters import kept_cluster
from penstock.spark.named_batch import NamedBatch, SinkError, used_once
from penstock.spark.sink_columns import check_schema
from penstock.spark.sink_options import Delivery, SinkOptions
from penstock.spark.sink_task import write_once, write_plainly

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

_log = logging.getLogger(__name__)

#: Whether the brokers behind some settings have the extension, as this process has found out.
_has_extension: dict[ClientSettings, bool] = {}


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """What a task tells the driver."""

    rows: int
    batch: NamedBatch | None
    """None: at least once"""
    transaction: PreparedTransaction | None
    """None: nothing was written, or it is not in a transaction"""


class PenstockWriter(DataSourceArrowWriter):
    """`df.write`: all or nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SinkError('mode("overwrite") is not possible: topics are only appended to; use mode("append")')
        self.options = SinkOptions.parse(options, is_stream=False)
        check_schema(schema, self.options.topic)
        self.batch: NamedBatch | None = None
        if _delivery(self.options) is Delivery.EXACTLY_ONCE:
            self.batch = _batch_of(self.options, run=time.time_ns())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _run_task(self.options, self.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.batch is None:
            return
        transactions = _transactions(self.batch, messages)
        with kept_cluster(self.options.settings) as cluster:
            _say_if_repeated(self.batch, commit_batch(cluster, self.batch, transactions))
            settle(cluster, self.batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.batch is not None:
            with kept_cluster(self.options.settings) as cluster:
                abort_batch(cluster, self.batch, [each.transaction for each in _reports(messages) if each.transaction])


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch once, whatever is killed and started again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        del overwrite  # the output mode "complete": every batch is appended whole, as with Spark's connector
        self.options = SinkOptions.parse(options, is_stream=True)
        check_schema(schema, self.options.topic)
        self.delivery = _delivery(self.options)
        self.run = time.time_ns()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = None if self.delivery is Delivery.AT_LEAST_ONCE else self._batch()
        return _run_task(self.options, batch, iterator)

    def _batch(self) -> NamedBatch:
        task = _task()
        query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise SinkError(
                "Spark does not say which query and batch this is; set the option delivery to at-least-once"
            )
        return NamedBatch(query_id, int(batch_id), self.run, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        batch = next((each.batch for each in _reports(messages) if each.batch is not None), None)
        if batch is None:
            return
        if batch.number != batchId:
            raise SinkError(f"Spark commits batch {batchId}, and its tasks have written {batch}")
        transactions = _transactions(batch, messages)
        with kept_cluster(self.options.settings) as cluster:
            _say_if_repeated(batch, commit_batch(cluster, batch, transactions))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reports = [each for each in _reports(messages) if each.batch is not None]
        if reports and reports[0].batch is not None:
            with kept_cluster(self.options.settings) as cluster:
                abort_batch(cluster, reports[0].batch, [each.transaction for each in reports if each.transaction])


def _delivery(options: SinkOptions) -> Delivery:
    """What is promised: decided once on the driver, so that all tasks do the same."""
    if options.delivery is Delivery.AT_LEAST_ONCE:
        return Delivery.AT_LEAST_ONCE
    settings = options.settings
    is_news = settings not in _has_extension
    if is_news:
        with kept_cluster(settings) as cluster:
            _has_extension[settings] = is_offered(cluster.any())
    if _has_extension[settings]:
        return Delivery.EXACTLY_ONCE
    why = "these brokers do not offer to commit many producers at once, as Penstock brokers do"
    if options.named is not None:
        raise OptionError("txnAppId", f"{why}: a write cannot be made to count once; leave out txnAppId and txnVersion")
    if options.delivery is Delivery.EXACTLY_ONCE:
        raise OptionError("delivery", f"exactly-once cannot be: {why}. Use Penstock brokers, or at-least-once")
    if is_news:
        _log.warning("rows are delivered at least once, and after a failure some of them twice: %s", why)
    return Delivery.AT_LEAST_ONCE


def _batch_of(options: SinkOptions, run: int) -> NamedBatch:
    if options.named is None:
        return used_once(run)
    return NamedBatch(options.named.name, options.named.number, run, is_stream=False)


def _run_task(options: SinkOptions, batch: NamedBatch | None, rows: Iterator[pa.RecordBatch]) -> TaskReport:
    with kept_cluster(options.settings) as cluster:
        if batch is None:
            return TaskReport(write_plainly(cluster, options, rows), None, None)
        task = _task()
        transactional_id = batch.transactional_id(task.partitionId(), task.attemptNumber())
        count, transaction = write_once(cluster, options, batch, transactional_id, rows)
        return TaskReport(count, batch, transaction)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "write is called by tasks"
    return task


def _reports(messages: list[WriterCommitMessage | None]) -> list[TaskReport]:
    return [each for each in messages if isinstance(each, TaskReport)]


def _say_if_repeated(batch: NamedBatch, is_repeated: bool) -> None:
    if is_repeated and not batch.is_forgotten:
        _log.warning("%s had been committed already: what was written now does not count", batch)


def _transactions(batch: NamedBatch, messages: list[WriterCommitMessage | None]) -> list[PreparedTransaction]:
    """What the tasks have prepared. Tasks that were left out would be rows that are lost, so there must be none."""
    reports = _reports(messages)
    if reports and len(reports) < len(messages):
        raise SinkError(f"{len(messages) - len(reports)} tasks of {batch} have not reported what they wrote")
    if any(each.batch != batch for each in reports):
        raise SinkError(f"tasks of different attempts have reported for {batch}")
    return [each.transaction for each in reports if each.transaction is not None]
