"""Committing many producers at once, as a client: Penstock's extension that `docs/reference/commit-many.md` describes.

Each task writes in a transaction of its own, whose id belongs to a *name*, and prepares it; whoever drives the tasks
then commits all of them under the *number* of the batch. Every request here can be made again, and is, until it is
answered for certain: a commit that was done before is answered with "already committed", a prepare with success.

    announce(cluster, "query-1", 17, run)                                   # the driver: ends what an earlier run left
    prepare(cluster, "query-1", 17, run, [PreparedTransaction(its_id, *producer.producer)])     # each task
    commit(cluster, "query-1", 17, all_of_them)                             # the driver
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.base.errors import ApiError, Error
from penstock.columnar.cluster import TRANSACTION, Cluster
from penstock.columnar.connection import Connection
from penstock.columnar.errors import ColumnarError, Fenced, Refused, StaleNumber, check
from penstock.wire.messages.k20000_prepare_transactions import API as PREPARE
from penstock.wire.messages.k20000_prepare_transactions import (
    PrepareTransactionsRequest,
    PrepareTransactionsRequestTransaction,
)
from penstock.wire.messages.k20001_commit_transactions import API as COMMIT
from penstock.wire.messages.k20001_commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsRequestTransaction,
)
from penstock.wire.messages.k20002_describe_commits import DescribeCommitsRequest, DescribeCommitsResponseName
from penstock.wire.schema import Message

MARK = "penstock-many:"
TRANSACTIONS_MAX = 10_000
NO_NUMBER = -1

_WRITE_AGAIN = frozenset({Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_TXN_STATE})


class PreparedTransaction(NamedTuple):
    """A transaction that waits for its commit, as tasks report it to whoever drives them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class BatchLost(ColumnarError):
    """A transaction of the batch is not open any more, so nothing was done: the batch has to be written again."""

    def __init__(self, name: str, number: int, why: str) -> None:
        super().__init__(name, number, why)
        self.name = name
        self.number = number
        self.why = why

    def __str__(self) -> str:
        return f"{self.name}: number {self.number} has to be written again: {self.why}"


class CommitState(NamedTuple):
    """What the brokers know of a name."""

    last_number: int
    """of the last commit, -1 if there was none"""
    is_complete: bool
    """whether readers can see all of it"""
    number: int
    run: int
    """of what was prepared last, -1 if nothing is"""
    open_transactions: tuple[PreparedTransaction, ...]


def transactional_id(name: str, member: str) -> str:
    """The transactional id of a member of a name."""
    if not name or len(name) > 200 or "/" in name:
        raise ColumnarError(f"{name!r} cannot be the name of a stream of batches: 1 to 200 characters, and no '/'")
    if not member or len(member) > 100:
        raise ColumnarError(f"{member!r} cannot be a member of {name!r}: 1 to 100 characters")
    return f"{MARK}{name}/{member}"


def is_offered(connection: Connection) -> bool:
    """Whether the brokers have the extension."""
    return PREPARE.key in connection.versions and COMMIT.key in connection.versions


def announce(cluster: Cluster, name: str, number: int, run: int) -> int:
    """A run at a batch begins: everything that is open under the name is aborted. Returns the last number.

    Fenced if a later run has begun, StaleNumber if a later number has been committed.
    """
    return _prepare(cluster, name, number, run, ())


def prepare(cluster: Cluster, name: str, number: int, run: int, transactions: Iterable[PreparedTransaction]) -> None:
    """These transactions are complete, and wait for the commit. Nothing happens if there are none.

    Fenced if a later run has begun or another attempt has taken over the id; StaleNumber; BatchLost.
    """
    named = tuple(transactions)
    if named:
        _prepare(cluster, name, number, run, named)


def commit(cluster: Cluster, name: str, number: int, transactions: Iterable[PreparedTransaction]) -> bool:
    """Commit all of them, or none; True if the number was committed before, and these were aborted if still open.

    StaleNumber if a later number has been committed; BatchLost if one of the transactions is not open any more. After
    any other error it is not known whether it was done: ask again, with the same number.
    """
    named = tuple(transactions)
    _check_count(name, number, named)
    request = CommitTransactionsRequest(
        name=name,
        number=number,
        transactions=[CommitTransactionsRequestTransaction(**each._asdict()) for each in named],
    )
    with_last: list[int] = []
    try:
        answer = _ask(cluster, name, request, f"commit number {number} of {name}", with_last)
    except Refused as refused:
        if refused.error is Error.INVALID_UPDATE_VERSION:
            raise StaleNumber(name, number, with_last[-1]) from None
        if refused.error in _WRITE_AGAIN:
            raise BatchLost(name, number, refused.message) from None
        raise
    return bool(answer.already_committed)


def describe(cluster: Cluster, name: str) -> CommitState:
    """What is known of a name; nothing is said of one that was never used."""

    def attempt() -> DescribeCommitsResponseName | None:
        answer = cluster.coordinator(MARK + name, TRANSACTION).ask(DescribeCommitsRequest(names=[name]))
        check(answer.error_code)
        if len(answer.names) != 1:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, f"the answer is about {len(answer.names)} names, not one")
        found: DescribeCommitsResponseName = answer.names[0]
        if found.error_code == Error.RESOURCE_NOT_FOUND:
            return None
        check(found.error_code, found.error_message)
        return found

    found = cluster.retry(attempt, f"look up the commits of {name}")
    if found is None:
        return CommitState(NO_NUMBER, True, NO_NUMBER, NO_NUMBER, ())
    rows = (
        PreparedTransaction(each.transactional_id, each.producer_id, each.producer_epoch) for each in found.transactions
    )
    return CommitState(found.last_number, found.is_complete, found.number, found.run, tuple(rows))


def _prepare(cluster: Cluster, name: str, number: int, run: int, named: tuple[PreparedTransaction, ...]) -> int:
    _check_count(name, number, named)
    request = PrepareTransactionsRequest(
        name=name,
        number=number,
        run=run,
        transactions=[PrepareTransactionsRequestTransaction(**each._asdict()) for each in named],
    )
    with_last: list[int] = []
    try:
        answer = _ask(cluster, name, request, f"prepare number {number} of {name}", with_last)
    except Refused as refused:
        if refused.error is Error.INVALID_UPDATE_VERSION:
            raise StaleNumber(name, number, with_last[-1]) from None
        if refused.error is Error.PRODUCER_FENCED:
            raise Fenced(named[0].transactional_id if named else MARK + name, refused.message) from None
        if refused.error in _WRITE_AGAIN:
            raise BatchLost(name, number, refused.message) from None
        raise
    return int(answer.last_number)


def _ask(cluster: Cluster, name: str, request: Message, what: str, with_last: list[int]) -> Any:
    """The answer without an error; the last number of the name is told also when there is one."""

    def attempt() -> Any:
        answer = cluster.coordinator(MARK + name, TRANSACTION).ask(request)
        with_last.append(answer.last_number)
        check(answer.error_code, answer.error_message)
        return answer

    return cluster.retry(attempt, what)


def _check_count(name: str, number: int, named: tuple[PreparedTransaction, ...]) -> None:
    if len(named) > TRANSACTIONS_MAX:
        raise ColumnarError(
            f"{name}: number {number} has {len(named)} transactions, and at most {TRANSACTIONS_MAX} can be committed "
            "at once: write with fewer tasks"
        )
