"""What the driver does at the end of a batch that counts once: commit it, or clear up after it.

Only `commit_batch` decides anything. Everything else here is tidiness: if it cannot be done, the brokers do the same
later by themselves (the next commit under the name, or a timeout), so a failure is noted and not raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TypeVar

from penstock.base.errors import ApiError, Error
from penstock.columnar.cluster import TRANSACTION, Cluster
from penstock.columnar.commit_many import MARK, NO_NUMBER, PreparedTransaction, announce, commit
from penstock.columnar.errors import ColumnarError, check, error_of
from penstock.spark.named_batch import NamedBatch
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.messages.k20002_describe_commits import DescribeCommitsRequest, DescribeCommitsResponseName
from penstock.wire.messages.k20003_delete_commits import DeleteCommitsRequest

#: Clearing up is not worth more of anybody's time.
TIDY_DEADLINE_S = 10.0
POLL_S = 0.01

T = TypeVar("T")

_log = logging.getLogger(__name__)


def commit_batch(cluster: Cluster, batch: NamedBatch, transactions: Sequence[PreparedTransaction]) -> bool:
    """All of them become visible, or none does; True if the batch was written before, and these were dropped."""
    try:
        return commit(cluster, batch.name, batch.number, transactions)
    except ColumnarError as error:
        raise batch.explained(error) from error


def settle(cluster: Cluster, batch: NamedBatch) -> None:
    """Wait until readers can see the batch, and forget a name that was made up for it."""
    try:
        _wait_until_complete(cluster, batch)
        if batch.is_forgotten:
            cluster.retry(lambda: _forget(cluster, batch.name), f"forget the name of {batch}", TIDY_DEADLINE_S)
    except ColumnarError as error:
        _log.warning("%s is committed; %s", batch, error)


def abort_batch(cluster: Cluster, batch: NamedBatch, reported: Sequence[PreparedTransaction]) -> None:
    """End what this run has written, as far as it can be known."""
    try:
        if batch.is_forgotten:
            # Nobody else has this name. A later run keeps out those of its tasks that are still at work.
            announce(cluster, batch.name, batch.number, batch.run + 1)
        else:
            _abort({*reported, *_prepared_by(cluster, batch)}, cluster, batch)
    except ColumnarError as error:
        _log.warning("what was written of %s is not aborted yet: %s", batch, error)


def _wait_until_complete(cluster: Cluster, batch: NamedBatch) -> None:
    until_s = time.monotonic() + TIDY_DEADLINE_S
    while not _described(cluster, batch).is_complete and time.monotonic() < until_s:
        time.sleep(POLL_S)


def _described(cluster: Cluster, batch: NamedBatch) -> DescribeCommitsResponseName:
    def attempt() -> DescribeCommitsResponseName:
        answer = cluster.coordinator(MARK + batch.name, TRANSACTION).ask(DescribeCommitsRequest(names=[batch.name]))
        check(answer.error_code)
        found: DescribeCommitsResponseName = _only(answer.names)
        if found.error_code == Error.RESOURCE_NOT_FOUND:
            return DescribeCommitsResponseName(name=batch.name, last_number=NO_NUMBER, is_complete=True)
        check(found.error_code, found.error_message)
        return found

    return cluster.retry(attempt, f"look up {batch}", TIDY_DEADLINE_S)


def _forget(cluster: Cluster, name: str) -> None:
    answer = cluster.coordinator(MARK + name, TRANSACTION).ask(DeleteCommitsRequest(names=[name]))
    deleted = _only(answer.names)
    if deleted.error_code != Error.RESOURCE_NOT_FOUND:
        check(deleted.error_code, deleted.error_message)


def _only(names: Sequence[T]) -> T:
    """What was answered about the one name that was asked for."""
    if len(names) != 1:
        raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, f"the answer is about {len(names)} names and not about one")
    return names[0]


def _prepared_by(cluster: Cluster, batch: NamedBatch) -> set[PreparedTransaction]:
    """What tasks of this run have prepared, also those whose report was lost. What is still written to is not known to
    be of this run and not of its successor."""
    return {
        PreparedTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
        for each in _described(cluster, batch).transactions
        if (each.prepared_number, each.prepared_run) == (batch.number, batch.run)
    }


def _abort(transactions: set[PreparedTransaction], cluster: Cluster, batch: NamedBatch) -> None:
    left = set(transactions)

    def attempt() -> None:
        connection = cluster.coordinator(MARK + batch.name, TRANSACTION)
        sent = {each: connection.send(EndTxnRequest(**each._asdict(), committed=False)) for each in left}
        again: Error | None = None
        for each, pending in sent.items():
            error = error_of(pending.wait().error_code)
            if error.retriable:
                again = error
            else:  # aborted, or not as we know it any more: then somebody else has ended it
                left.discard(each)
        if again is not None:
            raise ApiError(again)

    if left:
        cluster.retry(attempt, f"abort {batch}", TIDY_DEADLINE_S)
