"""What a task of a write does: hand its rows to the brokers, and say what became of them.

The rows are always taken to their end, also when the batch is known to be written already: what comes before the sink
(the state of an aggregation, for example) is only complete when somebody has taken all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import pyarrow as pa

from penstock.base.errors import Error
from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import BatchLost, PreparedTransaction, describe, prepare
from penstock.columnar.errors import BrokerAway, ColumnarError, Fenced, Refused
from penstock.columnar.produce import BulkProducer
from penstock.columnar.settings import ClientSettings
from penstock.spark.named_batch import NamedBatch, SinkError
from penstock.spark.sink_columns import by_topic
from penstock.spark.sink_options import TRANSACTION_TIMEOUT, SinkOptions

Rows = Iterator[pa.RecordBatch]

#: Whether the batch that this process works on was committed before.
_known: dict[tuple[ClientSettings, NamedBatch], bool] = {}


def write_plainly(cluster: Cluster, options: SinkOptions, rows: Rows) -> int:
    """Write all rows, at least once; returns how many there were."""
    with BulkProducer(cluster, **options.producing._asdict()) as producer:
        count = _write_rows(producer, options.topic, rows)
        producer.flush()
    return count


def write_once(
    cluster: Cluster, options: SinkOptions, batch: NamedBatch, transactional_id: str, rows: Rows
) -> tuple[int, PreparedTransaction | None]:
    """Write all rows in a transaction that is prepared in the end: how many, and the transaction if there is one."""
    if _is_written(cluster, batch):
        return sum(each.num_rows for each in rows), None
    filled = (each for each in rows if each.num_rows)
    first = next(filled, None)
    if first is None:
        return 0, None
    begun_s = time.monotonic()
    try:
        producer = BulkProducer(cluster, transactional_id=transactional_id, **options.producing._asdict())
        with producer, _aborted_on_failure(producer):
            count = _write_rows(producer, options.topic, chain([first], filled))
            producer.flush()
            transaction = PreparedTransaction(transactional_id, *producer.producer)
            prepare(cluster, batch.name, batch.number, batch.run, [transaction])
    except ColumnarError as error:
        raise _explained(error, cluster, batch, time.monotonic() - begun_s) from error
    return count, transaction


@contextmanager
def _aborted_on_failure(producer: BulkProducer) -> Iterator[None]:
    """A transaction that is open at the end of the block, and is ended at once if something goes wrong in it."""
    producer.begin()
    try:
        yield
    except BrokerAway:
        raise  # nobody would hear it; it ends by its timeout
    except BaseException:
        with suppress(ColumnarError):
            producer.abort()
        raise


def _explained(error: ColumnarError, cluster: Cluster, batch: NamedBatch, elapsed_s: float) -> ColumnarError:
    """What went wrong, as the user is told; `elapsed_s`: since the transaction was begun."""
    timeout_s = cluster.settings.transaction_timeout_s
    if isinstance(error, Fenced | BatchLost) and elapsed_s >= timeout_s:
        return SinkError(
            f"a task of {batch} was writing for longer than {TRANSACTION_TIMEOUT} ({timeout_s * 1000:.0f}), so its "
            f"transaction was aborted: set the option {TRANSACTION_TIMEOUT} higher, or use more and smaller partitions"
        )
    if isinstance(error, Refused) and error.error is Error.INVALID_TRANSACTION_TIMEOUT:
        return SinkError(
            f"the brokers do not let a transaction be open for {TRANSACTION_TIMEOUT} ({timeout_s * 1000:.0f}): set the "
            f"option {TRANSACTION_TIMEOUT} lower, or the brokers' transaction.max.timeout.ms higher"
        )
    return error if isinstance(error, BrokerAway) else batch.explained(error)


def _is_written(cluster: Cluster, batch: NamedBatch) -> bool:
    """Whether the batch was committed before; SinkError if this attempt has no right to write it.

    Asked before the transactional id is taken: a driver that was replaced would take it from its successor. Asked once
    by each process: the answer lists what is open under the name, and thousands of tasks would be told of each other.
    It may be out of date then, which costs some work; what counts is decided by the commit.
    """
    key = cluster.settings, batch
    if key not in _known:
        is_written = _ask_if_written(cluster, batch)
        _known.clear()
        _known[key] = is_written
    return _known[key]


def _ask_if_written(cluster: Cluster, batch: NamedBatch) -> bool:
    state = describe(cluster, batch.name)
    if state.last_number > batch.number:
        raise batch.stale(state.last_number)
    if (state.number, state.run) > (batch.number, batch.run):
        raise batch.superseded(f"run {state.run} for number {state.number} has begun")
    return state.last_number == batch.number


def _write_rows(producer: BulkProducer, topic: str | None, rows: Rows) -> int:
    count = 0
    for batch in rows:
        for name, part in by_topic(batch, topic):
            producer.write(name, part)
        count += batch.num_rows
    return count
