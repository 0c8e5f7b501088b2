"""Committing many producers at once: all transactions of a batch are committed, or none is.

A client that writes with many producers gives all of them ids of one name (`names.py`), so that one shard knows them.
Each producer *prepares* its transaction when it has written everything; then one request commits all of them, under a
number that grows from batch to batch. The decision is **one record** with the number and the exact producers. Replaying
it puts all of them in prepare-commit, so there is no moment at which some are decided and others are not.

What makes it safe to ask again, and to ask late:
- A transaction is named with its producer id and epoch. If one of them is not open at exactly that epoch (another
  attempt took its id, it timed out), nothing is committed.
- The last number is kept for ever. The same number again is answered with "already committed", and only the producers
  named in that request are aborted: those of a batch that was done twice. A lower number is refused: its client starts
  from a checkpoint that is older than what was written.
- The next number waits until all of the last one are complete. So one record for each name is enough.

What is left over ends too. A commit aborts everything else that is open under the name. The first prepare of a new run
(the same batch again, or a later one) aborts what was prepared before; one that brings no transactions announces the
run before anything is written, and aborts everything that is open. What is prepared does not time out alone but with
its name, some time after the last prepare. Runs are ordered; a late prepare of an older run is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from penstock.base.deadlines import Deadlines
from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.transactions.ending import ending_step, markers_step
from penstock.transactions.names import MemberId, id_of_member, id_problem, member_of, name_problem
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.table import TransactionTable
from penstock.transactions.transaction import NO_BATCH, Batch, Transaction
from penstock.wire.messages.commit_many_records import (
    CommitDecisionKey,
    CommitDecisionValue,
    CommitDecisionValueTransaction,
)
from penstock.wire.messages.k20000_prepare_transactions import PrepareTransactionsRequest, PrepareTransactionsResponse
from penstock.wire.messages.k20001_commit_transactions import CommitTransactionsRequest, CommitTransactionsResponse
from penstock.wire.messages.k20002_describe_commits import (
    DescribeCommitsResponseName,
    DescribeCommitsResponseTransaction,
)
from penstock.wire.messages.k20003_delete_commits import DeleteCommitsResponseName

TRANSACTIONS_MAX = 10_000  # of one request; the record of the decision stays well below a megabyte
NO_NUMBER = -1
NAMES_AT_ONCE_MAX = 100  # that time out in one step


class Named(Protocol):
    """A transaction as a request names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Decision(NamedTuple):
    """The last number of a name, and which of its transactions still wait for their markers."""

    number: int
    decided_ms: int
    incomplete: set[str]


class CommitMany:
    """See the head of this file."""

    def __init__(self, table: TransactionTable, coordinator_epoch: int, settings: TransactionSettings) -> None:
        self.settings = settings
        self._table = table
        self._coordinator_epoch = coordinator_epoch
        self._decisions: dict[str, Decision] = {}
        self._newest: dict[str, Batch] = {}  # of what was prepared; not kept: it only sorts out late requests
        self._timeouts: Deadlines[str] = Deadlines()

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay_decision(self, key: CommitDecisionKey, value: CommitDecisionValue | None) -> None:
        """All that it names, and that has not gone on since, is decided with it."""
        if value is None:
            self._decisions.pop(key.name, None)
            return
        incomplete = set()
        for each in value.transactions:
            current = self._table.get(id_of_member(key.name, each.member))
            if current is not None and _is_open_at(current, ProducerEpoch(each.producer_id, each.producer_epoch)):
                self._table.put(current.ending(is_commit=True, now_ms=value.decided_ms))
                incomplete.add(current.transactional_id)
        self._decisions[key.name] = Decision(value.number, value.decided_ms, incomplete)

    def replayed(self, member: MemberId, transactional_id: str) -> None:
        """A record of an id of this name has been replayed."""
        decision = self._decisions.get(member.name)
        if decision is not None:
            decision.incomplete.discard(transactional_id)

    def start(self, now: Moment) -> None:
        """Time goes on where it was, for names with prepared transactions."""
        for name in self._table.names():
            prepared = self._prepared(name)
            if prepared:
                self._newest[name] = max(each.batch for each in prepared)
                left_ms = (
                    max(each.last_update_ms for each in prepared) + self.settings.prepared_timeout_ms - now.wall_ms
                )
                left_ms = min(max(0, left_ms), self.settings.prepared_timeout_ms)
                self._timeouts.set(name, now.monotonic_ms + left_ms)

    def completions(self, completed: Iterable[Transaction]) -> Step:
        """Transactions are about to be complete: the decisions of which they are the last get small."""
        ids_of_name: dict[str, set[str]] = {}
        for each in completed:
            parts = member_of(each.transactional_id)
            if parts is not None:
                ids_of_name.setdefault(parts.name, set()).add(each.transactional_id)
        step = Step()
        for name, ids in ids_of_name.items():
            decision = self._decisions.get(name)
            if decision is not None and decision.incomplete and decision.incomplete <= ids:
                step.records.append(_decision_record(name, decision.number, decision.decided_ms, ()))
        return step

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, token: Token, request: PrepareTransactionsRequest, now: Moment) -> Step:
        """Transactions are written to their end, and wait for the commit of their batch."""
        error, message = Error.NONE, None
        try:
            step = self._prepare(request, now)
        except ApiError as refused:
            step, error, message = Step(), refused.error, refused.message
        response = PrepareTransactionsResponse(
            error_code=error, error_message=message, last_number=self._last_number(request.name)
        )
        step.answers.append((token, response))
        return step

    def _prepare(self, request: PrepareTransactionsRequest, now: Moment) -> Step:
        name, batch = request.name, Batch(request.number, request.run)
        _check_form(name, request.number, request.transactions)
        self._check_not_stale(name, request.number)
        newest = self._newest.get(name, NO_BATCH)
        if request.run < 0:
            raise ApiError(Error.INVALID_REQUEST, f"run {request.run} is below 0")
        if batch < newest:
            raise ApiError(
                Error.PRODUCER_FENCED,
                f"run {batch.run} of {name!r} for number {batch.number} was replaced by "
                f"run {newest.run} for number {newest.number}",
            )
        named = self._open(request.transactions)
        step = Step(records=[each.prepared_for(batch, now.wall_ms).record() for each in named if each.batch != batch])
        if batch > newest:
            self._newest[name] = batch
            is_announcement = not named
            ids = {each.transactional_id for each in named}
            leftover = [
                each
                for each in self._table.open_of_name(name)
                if each.transactional_id not in ids and (is_announcement or each.is_prepared)
            ]
            step.and_then(self._abort(leftover, now))
        self._timeouts.set(name, now.monotonic_ms + self.settings.prepared_timeout_ms)
        return step

    def commit(self, token: Token, request: CommitTransactionsRequest, now: Moment) -> Step:
        """Commit all of them, or none."""
        error, message, is_repeated = Error.NONE, None, False
        last_number = self._last_number(request.name)
        try:
            _check_form(request.name, request.number, request.transactions)
            self._check_not_stale(request.name, request.number)
            is_repeated = request.number == last_number
            step = self._abort_repeated(request, now) if is_repeated else self._commit(request, now)
            last_number = request.number
        except ApiError as refused:
            step, error, message = Step(), refused.error, refused.message
        response = CommitTransactionsResponse(
            error_code=error, error_message=message, last_number=last_number, already_committed=is_repeated
        )
        step.answers.append((token, response))
        return step

    def _commit(self, request: CommitTransactionsRequest, now: Moment) -> Step:
        name = request.name
        decision = self._decisions.get(name)
        if decision is not None and decision.incomplete:
            raise ApiError(
                Error.CONCURRENT_TRANSACTIONS,
                f"{len(decision.incomplete)} transactions of number {decision.number} are not complete yet",
            )
        named = self._open(request.transactions)
        ids = {each.transactional_id for each in named}
        decided = [each.ending(is_commit=True, now_ms=now.wall_ms) for each in named]
        step = Step(records=[_decision_record(name, request.number, now.wall_ms, named)])
        step.and_then(markers_step(decided, self._coordinator_epoch, now.wall_ms))
        others = [each for each in self._table.open_of_name(name) if each.transactional_id not in ids]
        self._timeouts.clear(name)
        return step.and_then(self._abort(others, now))

    def _abort_repeated(self, request: CommitTransactionsRequest, now: Moment) -> Step:
        """The batch was written twice: this time it does not count. What else is open belongs to another batch."""
        open_now = []
        for each in request.transactions:
            current = self._table.get(each.transactional_id)
            if current is not None and _is_open_at(current, ProducerEpoch(each.producer_id, each.producer_epoch)):
                open_now.append(current)
        return self._abort(open_now, now)

    def describe(self, name: str) -> DescribeCommitsResponseName:
        """What is known of a name."""
        problem = name_problem(name)
        if problem is not None:
            return DescribeCommitsResponseName(error_code=Error.INVALID_REQUEST, error_message=problem, name=name)
        open_now = self._table.open_of_name(name)
        decision = self._decisions.get(name)
        if decision is None and not open_now:
            return DescribeCommitsResponseName(
                error_code=Error.RESOURCE_NOT_FOUND, error_message=f"there is no name {name!r}", name=name
            )
        newest = self._newest.get(name, NO_BATCH)
        incomplete = [] if decision is None else [self._table.get(each) for each in sorted(decision.incomplete)]
        return DescribeCommitsResponseName(
            name=name,
            last_number=NO_NUMBER if decision is None else decision.number,
            is_complete=not incomplete,
            number=newest.number,
            run=newest.run,
            transactions=[_described(each) for each in (*incomplete, *open_now) if each is not None],
        )

    def names(self) -> list[str]:
        """Every name that something is known of."""
        return sorted({*self._decisions, *self._table.names()})

    def delete(self, token: Token, name: str, _now: Moment) -> Step:
        """Forget the last number of a name: the next commit may have any."""
        decision = self._decisions.get(name)
        error, message = Error.NONE, None
        step = Step()
        self._newest.pop(name, None)
        if decision is None:
            error, message = Error.RESOURCE_NOT_FOUND, f"nothing was committed under the name {name!r}"
        elif decision.incomplete:
            error, message = Error.CONCURRENT_TRANSACTIONS, "the last commit is not complete yet"
        else:
            step.records.append(StateRecord(CommitDecisionKey(name=name), None))
        step.answers.append((token, DeleteCommitsResponseName(name=name, error_code=error, error_message=message)))
        return step

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        return self._timeouts.next_ms()

    def on_time(self, now: Moment) -> Step:
        """Names whose clients have been silent for too long: abort what they had prepared."""
        step = Step()
        for name in list(islice(self._timeouts.due(now.monotonic_ms), NAMES_AT_ONCE_MAX)):
            self._newest.pop(name, None)
            step.and_then(self._abort(self._prepared(name), now))
        return step

    # ── what they share ──────────────────────────────────────────────────────────────────────────────────────────

    def _last_number(self, name: str) -> int:
        decision = self._decisions.get(name)
        return NO_NUMBER if decision is None else decision.number

    def _prepared(self, name: str) -> list[Transaction]:
        return [each for each in self._table.open_of_name(name) if each.is_prepared]

    def _abort(self, transactions: Iterable[Transaction], now: Moment) -> Step:
        decided = (each.ending(is_commit=False, now_ms=now.wall_ms) for each in transactions)
        return ending_step(decided, self._coordinator_epoch, now.wall_ms)

    def _check_not_stale(self, name: str, number: int) -> None:
        last_number = self._last_number(name)
        if number < last_number:
            raise ApiError(
                Error.INVALID_UPDATE_VERSION,
                f"number {number} of {name!r} is stale: {last_number} has been committed. The checkpoint that this "
                "client started from is older than what was written under the name.",
            )

    def _open(self, named: Iterable[Named]) -> list[Transaction]:
        """The transactions that a request names; ApiError if one is not open at exactly that epoch."""
        found = []
        for each in named:
            current = self._table.get(each.transactional_id)
            if current is None or current.producer_id != each.producer_id:
                error, problem = Error.INVALID_PRODUCER_ID_MAPPING, "has another producer"
            elif current.producer_epoch != each.producer_epoch:
                error, problem = Error.PRODUCER_FENCED, f"is at epoch {current.producer_epoch}"
            elif not current.is_ongoing:
                error, problem = Error.INVALID_TXN_STATE, f"is {current.state.label}"
            else:
                found.append(current)
                continue
            raise ApiError(
                error,
                f"{each.transactional_id} is not open for epoch {each.producer_epoch} of producer "
                f"{each.producer_id}: it {problem}; nothing was done",
            )
        return found


def _is_open_at(current: Transaction, producer: ProducerEpoch) -> bool:
    return current.is_ongoing and current.producer == producer


def _check_form(name: str, number: int, named: Sequence[Named]) -> None:
    problem = name_problem(name)
    if problem is None and number < 0:
        problem = f"number {number} is below 0"
    if problem is None and len(named) > TRANSACTIONS_MAX:
        problem = f"{len(named)} transactions at once are more than {TRANSACTIONS_MAX}"
    if problem is None and len({each.transactional_id for each in named}) < len(named):
        problem = "a transactional id is named twice"
    if problem is None:
        problem = next(filter(None, (_stranger(name, each.transactional_id) for each in named)), None)
    if problem is not None:
        raise ApiError(Error.INVALID_REQUEST, problem)


def _stranger(name: str, transactional_id: str) -> str | None:
    parts = member_of(transactional_id)
    if parts is None or parts.name != name:
        return f"{transactional_id!r} is not an id of the name {name!r}"
    return id_problem(transactional_id)


def _decision_record(name: str, number: int, decided_ms: int, named: Iterable[Transaction]) -> StateRecord:
    members = []
    for each in named:
        parts = member_of(each.transactional_id)
        assert parts is not None
        members.append(
            CommitDecisionValueTransaction(
                member=parts.member, producer_id=each.producer_id, producer_epoch=each.producer_epoch
            )
        )
    value = CommitDecisionValue(number=number, decided_ms=decided_ms, transactions=members)
    return StateRecord(CommitDecisionKey(name=name), value)


def _described(transaction: Transaction) -> DescribeCommitsResponseTransaction:
    return DescribeCommitsResponseTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_state=transaction.state.label,
        prepared_number=transaction.batch.number,
        prepared_run=transaction.batch.run,
    )
