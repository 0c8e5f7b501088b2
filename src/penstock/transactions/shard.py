"""Everything one partition of `__transaction_state` knows: its transactional ids, and how far each transaction is.

The shard is the machine that the shell talks to. The rules for one id are pure functions beside it (`initialise.py`,
`finish.py`); here they are applied to the table, become records, and time is watched: open transactions end by their
timeout, ids that nobody uses are forgotten after some days.

Records are the newest state of an id, whole. A transaction that has been decided is carried out by an action
(`WriteMarkers`); the shell writes the markers, however long that takes, and tells by `markers_written`. After a start
everything that is decided and not complete is carried out again: writing a marker twice does no harm.

A new producer id costs a round trip, and a decision cannot wait. So whoever asks looks first (`wants_producer_id`) and
brings one; if the state has changed in between and the id is missing after all, the client is told to ask again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from penstock.base.deadlines import Deadlines
from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.transactions.commit_many import CommitMany
from penstock.transactions.ending import Marker, ending_step, marker_of, markers_step
from penstock.transactions.finish import Finish, finish_first_protocol, finish_second_protocol
from penstock.transactions.initialise import first_producer, initialise
from penstock.transactions.names import id_problem, member_of
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.table import TransactionTable
from penstock.transactions.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    PREPARED_STATES,
    STATE_OF_LABEL,
    State,
    Transaction,
)
from penstock.wire.messages.commit_many_records import CommitDecisionKey
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.k65_describe_transactions import (
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
)
from penstock.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponseTransaction

ENDED_AT_ONCE_MAX = 1000  # in one step, of those that time out
FORGOTTEN_AT_ONCE_MAX = 1000
_KEPT_STATES = range(State.EMPTY, State.DEAD)  # the others are never written


class TransactionShard:
    """See the head of this file."""

    def __init__(self, coordinator_epoch: int, settings: TransactionSettings) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.table = TransactionTable()
        self.many = CommitMany(self.table, coordinator_epoch, settings)
        self._timeouts: Deadlines[str] = Deadlines()
        self._timeouts_not_before_ms = 0
        self._next_expiry_ms: int | None = None

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: StateRecord, _producer: ProducerEpoch | None, _offset: int) -> None:
        if isinstance(record.key, CommitDecisionKey):
            self.many.replay_decision(record.key, record.value)
            return
        transactional_id: str = record.key.transactional_id
        if record.value is None:
            self.table.remove(transactional_id)
        elif record.value.transaction_status in _KEPT_STATES:
            transaction = Transaction.of_record(transactional_id, record.value)
            self.table.put(transaction)
            if not transaction.is_ongoing or transaction.is_prepared:
                self._timeouts.clear(transactional_id)
        parts = member_of(transactional_id)
        if parts is not None:
            self.many.replayed(parts, transactional_id)

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        """There are none in this topic."""

    def start(self, now: Moment) -> Step:
        decided = []
        for transaction in self.table:
            if transaction.state in PREPARED_STATES:
                decided.append(transaction)
            elif transaction.is_ongoing and not transaction.is_prepared:
                left_ms = min(
                    max(0, transaction.start_ms + transaction.timeout_ms - now.wall_ms), transaction.timeout_ms
                )
                self._timeouts.set(transaction.transactional_id, now.monotonic_ms + left_ms)
        self.many.start(now)
        self._next_expiry_ms = now.monotonic_ms + self.settings.id_expiration_check_interval_ms
        return markers_step(decided, self.coordinator_epoch, now.wall_ms)

    # ── producers ────────────────────────────────────────────────────────────────────────────────────────────────

    def wants_producer_id(self, transactional_id: str) -> bool:
        """Whether the next decision about this id may need a producer id that nobody had."""
        return transactional_id not in self.table or self.is_exhausted(transactional_id)

    def is_exhausted(self, transactional_id: str) -> bool:
        """Whether the producer id of this id has no epochs left."""
        current = self.table.get(transactional_id)
        return current is not None and current.is_exhausted

    def init_producer_id(
        self, token: Token, request: InitProducerIdRequest, new_producer_id: int | None, now: Moment
    ) -> Step:
        transactional_id = request.transactional_id or ""
        if id_problem(transactional_id) is not None:
            return _refuse_producer(token, Error.INVALID_REQUEST)
        timeout_ms = request.transaction_timeout_ms
        if not 0 < timeout_ms <= self.settings.timeout_ms_max:
            return _refuse_producer(token, Error.INVALID_TRANSACTION_TIMEOUT)
        current = self.table.get(transactional_id)
        if current is None:
            changed = first_producer(transactional_id, new_producer_id, timeout_ms, now.wall_ms)
        else:
            changed = initialise(current, _named(request), new_producer_id, timeout_ms, now.wall_ms)
        if isinstance(changed, Error):
            return _refuse_producer(token, changed)
        if changed.state is not State.EMPTY:
            return self._ending(changed, now).and_then(_refuse_producer(token, Error.CONCURRENT_TRANSACTIONS))
        response = InitProducerIdResponse(producer_id=changed.producer_id, producer_epoch=changed.producer_epoch)
        return Step(records=[changed.record()], answers=[(token, response)])

    # ── partitions ───────────────────────────────────────────────────────────────────────────────────────────────

    def add_partitions(
        self,
        token: Token,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
        protocol: int,
        now: Moment,
    ) -> Step:
        """The transaction is about to write to these; begins it if there is none. The answer is an Error."""
        current = self.table.get(transactional_id)
        error = _refusal(current, producer)
        if error is not Error.NONE or current is None:
            return Step(answers=[(token, error)])
        if current.is_prepared:
            return Step(answers=[(token, Error.INVALID_TXN_STATE)])
        if current.is_ongoing and current.partitions.issuperset(partitions):
            return Step(answers=[(token, Error.NONE)])
        if not current.is_ongoing:
            self._timeouts.set(transactional_id, now.monotonic_ms + current.timeout_ms)
        changed = current.with_partitions(partitions, protocol, now.wall_ms)
        return Step(records=[changed.record()], answers=[(token, Error.NONE)])

    def verify_partitions(
        self,
        token: Token,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
        _now: Moment,
    ) -> Step:
        """Whether the transaction has these partitions. The answer is an Error for each of them."""
        current = self.table.get(transactional_id)
        error = _refusal(current, producer)
        if error is Error.NONE and current is not None and current.is_prepared:
            error = Error.INVALID_TXN_STATE
        if error is not Error.NONE or current is None:
            return Step(answers=[(token, dict.fromkeys(partitions, error))])
        known = current.partitions
        answer = {each: Error.NONE if each in known else Error.TRANSACTION_ABORTABLE for each in partitions}
        return Step(answers=[(token, answer)])

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end_transaction(
        self,
        token: Token,
        request: EndTxnRequest,
        new_producer_id: int | None,
        now: Moment,
        *,
        is_second_protocol: bool,
    ) -> Step:
        current = self.table.get(request.transactional_id)
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        if current is None:
            end = Finish(Error.INVALID_PRODUCER_ID_MAPPING if request.transactional_id else Error.INVALID_REQUEST)
        elif is_second_protocol:
            end = finish_second_protocol(
                current, producer, new_producer_id, is_commit=request.committed, now_ms=now.wall_ms
            )
        else:
            end = finish_first_protocol(current, producer, is_commit=request.committed, now_ms=now.wall_ms)
        step = Step() if end.changed is None else self._ending(end.changed, now)
        response = EndTxnResponse(error_code=end.error)
        after = end.changed or current
        if end.error is Error.NONE and is_second_protocol and after is not None:
            if after.state in PREPARED_STATES:
                after = after.completed(now.wall_ms)
            response.producer_id, response.producer_epoch = after.producer
        step.answers.append((token, response))
        return step

    def markers_written(self, markers: Sequence[Marker], now: Moment) -> Step:
        """Every partition of these transactions has its marker."""
        decided = [self.table.get(each.transactional_id) for each in markers]
        completed = [
            current.completed(now.wall_ms)
            for current, marker in zip(decided, markers, strict=True)
            if current is not None and current.state in PREPARED_STATES and marker_of(current) == marker
        ]
        step = Step(records=[each.record() for each in completed])
        return step.and_then(self.many.completions(completed))

    def _ending(self, changed: Transaction, now: Moment) -> Step:
        if changed.state in PREPARED_STATES:
            return ending_step([changed], self.coordinator_epoch, now.wall_ms)
        return Step(records=[changed.record()])

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, transactional_id: str) -> DescribeTransactionsResponseTransaction:
        current = self.table.get(transactional_id)
        if current is None:
            error = Error.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Error.INVALID_REQUEST
            return DescribeTransactionsResponseTransaction(error_code=error, transactional_id=transactional_id)
        indexes: dict[str, list[int]] = {}
        for topic, index in sorted(current.partitions):
            indexes.setdefault(topic, []).append(index)
        return DescribeTransactionsResponseTransaction(
            transactional_id=transactional_id,
            transaction_state=current.state.label,
            transaction_timeout_ms=current.timeout_ms,
            transaction_start_time_ms=current.start_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            topics=[
                DescribeTransactionsResponseTopic(topic=topic, partitions=found) for topic, found in indexes.items()
            ],
        )

    def list_transactions(
        self, request: ListTransactionsRequest, wall_ms: int
    ) -> list[ListTransactionsResponseTransaction]:
        """Those that pass all filters but the pattern, which may take its time."""
        states = {STATE_OF_LABEL[label] for label in request.state_filters if label in STATE_OF_LABEL}
        producer_ids = set(request.producer_id_filters)
        return [
            ListTransactionsResponseTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            for each in self.table
            if (not request.state_filters or each.state in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (request.duration_filter < 0 or wall_ms - each.start_ms > request.duration_filter)
        ]

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_deadline_ms(self) -> int | None:
        next_timeout_ms = self._timeouts.next_ms()
        if next_timeout_ms is not None:
            next_timeout_ms = max(next_timeout_ms, self._timeouts_not_before_ms)
        times = (next_timeout_ms, self.many.next_deadline_ms(), self._next_expiry_ms)
        return min((each for each in times if each is not None), default=None)

    def on_time(self, now: Moment) -> Step:
        step = self.many.on_time(now)
        if now.monotonic_ms >= self._timeouts_not_before_ms:
            step.and_then(self._abort_timed_out(now))
        if self._next_expiry_ms is not None and now.monotonic_ms >= self._next_expiry_ms:
            step.and_then(self._forget_unused(now))
        return step

    def _abort_timed_out(self, now: Moment) -> Step:
        due = list(islice(self._timeouts.due(now.monotonic_ms), ENDED_AT_ONCE_MAX))
        late = [
            current.ending(is_commit=False, now_ms=now.wall_ms)
            for current in map(self.table.get, due)
            if current is not None and current.is_ongoing and not current.is_prepared
        ]
        if late and len(due) < ENDED_AT_ONCE_MAX:
            self._timeouts_not_before_ms = now.monotonic_ms + self.settings.timeout_check_interval_ms
        return ending_step(late, self.coordinator_epoch, now.wall_ms)

    def _forget_unused(self, now: Moment) -> Step:
        """Ids without a transaction that nobody has used for long."""
        before_ms = now.wall_ms - self.settings.id_expiration_ms
        step = Step()
        for each in self.table:
            if each.last_update_ms <= before_ms and not each.is_ongoing and each.state not in PREPARED_STATES:
                step.records.append(StateRecord(each.record().key, None))
                if len(step.records) == FORGOTTEN_AT_ONCE_MAX:
                    return step  # and go on at once
        self._next_expiry_ms = now.monotonic_ms + self.settings.id_expiration_check_interval_ms
        return step


def _named(request: InitProducerIdRequest) -> ProducerEpoch | None:
    """The producer that a request of one that goes on names."""
    if request.producer_id == NO_PRODUCER:
        return None
    return ProducerEpoch(request.producer_id, request.producer_epoch)


def _refuse_producer(token: Token, error: Error) -> Step:
    return Step(answers=[(token, InitProducerIdResponse(error_code=error, producer_epoch=NO_EPOCH))])


def _refusal(current: Transaction | None, producer: ProducerEpoch) -> Error:
    """Why a transaction takes no partitions from a producer; NONE if it does."""
    if current is None or current.producer_id != producer.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != producer.producer_epoch or producer.producer_epoch == EPOCH_MAX:
        return Error.PRODUCER_FENCED
    if current.state in PREPARED_STATES:
        return Error.CONCURRENT_TRANSACTIONS
    return Error.NONE
