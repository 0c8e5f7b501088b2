"""A shard with a log that forgets, and partitions that take batches and markers: the world around the machine.

`Rig` does what the shell does, step by step and as the test wants it: append and replay, answer once committed, write
markers, crash and read again. Its partitions are a dumb model of the data side: they note who wrote what, and which
marker came after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.transactions.ending import Marker, WriteMarkers
from penstock.transactions.names import id_of_member
from penstock.transactions.records import TRANSACTIONS_CODEC
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import FIRST_PROTOCOL, PREPARED_STATES, SECOND_PROTOCOL, Transaction
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.k20000_prepare_transactions import (
    PrepareTransactionsRequest,
    PrepareTransactionsRequestTransaction,
)
from penstock.wire.messages.k20001_commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsRequestTransaction,
)

Encoded = tuple[bytes, bytes | None]


@dataclass
class Written:
    """A batch in a partition, and the marker that came after it."""

    partition: TopicPartition
    producer: ProducerEpoch
    tag: Any
    fate: str = "open"


@dataclass
class Partition:
    """What one partition knows of producers: their epochs, and what is open."""

    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Written]] = field(default_factory=dict)


class Waiting:
    """An answer, once it is there."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]


class Rig:
    """See the head of this file."""

    def __init__(self, settings: TransactionSettings | None = None, *, is_at_once: bool = True) -> None:
        self.settings = settings or TransactionSettings()
        self.is_at_once = is_at_once  # what is appended is committed, and markers are written
        self.now = Moment(1_000_000, 1_700_000_000_000)
        self.batches: list[list[Encoded]] = []
        self.committed = 0
        self.partitions: dict[TopicPartition, Partition] = {}
        self.written: list[Written] = []
        self.coordinator_epoch = 0
        self._next_producer_id = 1000
        self._held: list[tuple[int, Step]] = []
        self.marker_work: list[tuple[Marker, set[TopicPartition]]] = []
        self._is_writing = False
        self.machine = self._new_machine()

    # ── the shell ────────────────────────────────────────────────────────────────────────────────────────────────

    def _new_machine(self) -> TransactionShard:
        self.coordinator_epoch += 1
        machine = TransactionShard(self.coordinator_epoch, self.settings)
        for batch in self.batches:
            for key, value in batch:
                record = TRANSACTIONS_CODEC.decode(key, value)
                assert record is not None
                machine.replay(record, None, 0)
        return machine

    def run(self, step: Step) -> None:
        if step.records:
            encoded = [TRANSACTIONS_CODEC.encode(record) for record in step.records]
            self.batches.append(encoded)
            for key, value in encoded:
                record = TRANSACTIONS_CODEC.decode(key, value)
                assert record is not None
                self.machine.replay(record, None, 0)
        self._held.append((len(self.batches), step))
        if self.is_at_once:
            self.commit()
            self.write_markers()

    def commit(self) -> None:
        """All that was appended is safe: give the answers, begin the actions."""
        self.committed = len(self.batches)
        held, self._held = self._held, []
        for _, step in held:
            for token, answer in step.answers:
                assert isinstance(token, Waiting)
                token.answers.append(answer)
            for action in step.actions:
                assert isinstance(action, WriteMarkers)
                assert action.coordinator_epoch == self.coordinator_epoch
                self.marker_work += [(marker, set(marker.partitions)) for marker in action.markers]

    def crash(self, kept: int | None = None) -> None:
        """Lose some of what is not committed, and read the log again. `kept` batches at most stay."""
        kept = len(self.batches) if kept is None else kept
        del self.batches[max(self.committed, kept) :]
        self._held = []
        self.marker_work = []
        self.machine = self._new_machine()
        self.committed = len(self.batches)
        self.run(self.machine.start(self.now))

    def compact(self) -> None:
        """Of each key in the log keep only the newest record, where it is."""
        newest: dict[bytes, bytes | None] = {}
        for batch in self.batches[: self.committed]:
            for key, value in batch:
                newest.pop(key, None)
                newest[key] = value
        self.batches[: self.committed] = [list(newest.items())]
        self.committed = 1

    def ask(self, decide: Callable[[TransactionShard, Token, Moment], Step]) -> Waiting:
        token = Waiting()
        self.run(decide(self.machine, token, self.now))
        return token

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def pass_time(self, ms: int) -> None:
        """Time passes, and the machine is called whenever it wants to be."""
        until = self.now.monotonic_ms + ms
        while (deadline := self.machine.next_deadline_ms()) is not None and deadline <= until:
            left = max(0, deadline - self.now.monotonic_ms)
            self.now = Moment(self.now.monotonic_ms + left, self.now.wall_ms + left)
            self.run(self.machine.on_time(self.now))
        left = until - self.now.monotonic_ms
        self.now = Moment(until, self.now.wall_ms + left)

    # ── the data side ────────────────────────────────────────────────────────────────────────────────────────────

    def partition(self, name: TopicPartition) -> Partition:
        return self.partitions.setdefault(name, Partition())

    def append(self, name: TopicPartition, producer: ProducerEpoch, tag: Any) -> bool:
        """A batch that was verified arrives; False if the partition knows a newer epoch."""
        partition = self.partition(name)
        if producer.producer_epoch < partition.epochs.get(producer.producer_id, -1):
            return False
        partition.epochs[producer.producer_id] = producer.producer_epoch
        written = Written(name, producer, tag)
        partition.open.setdefault(producer.producer_id, []).append(written)
        self.written.append(written)
        return True

    def is_open(self, name: TopicPartition, producer: ProducerEpoch) -> bool:
        partition = self.partition(name)
        opened = partition.open.get(producer.producer_id)
        return bool(opened) and partition.epochs[producer.producer_id] == producer.producer_epoch

    def write_marker(self, marker: Marker, name: TopicPartition) -> None:
        partition = self.partition(name)
        producer_id, epoch = marker.producer
        known = partition.epochs.get(producer_id, -1)
        opened = partition.open.pop(producer_id, [])
        assert epoch >= known, f"a marker of epoch {epoch} after {known}"
        assert not (opened and marker.protocol >= SECOND_PROTOCOL and epoch == known), "a marker of its own epoch"
        partition.epochs[producer_id] = epoch
        for each in opened:
            each.fate = "committed" if marker.is_commit else "aborted"

    def write_markers(self, count: int | None = None) -> None:
        """Write markers, all or some, and tell the machine of transactions that have all of theirs."""
        if self._is_writing:
            return
        self._is_writing = True
        while self.marker_work and (count is None or count > 0):
            marker, missing = self.marker_work[0]
            self.write_marker(marker, missing.pop())
            if count is not None:
                count -= 1
            if not missing:
                del self.marker_work[0]
                self.run(self.machine.markers_written([marker], self.now))
        self._is_writing = False

    def settle(self) -> None:
        """Everything that has been decided is carried out."""
        while self._held or self.marker_work:
            self.commit()
            self.write_markers()
        assert not [each for each in self.machine.table if each.state in PREPARED_STATES]

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def init(self, transactional_id: str, named: ProducerEpoch | None = None, timeout_ms: int = 60_000) -> Waiting:
        producer_id, epoch = named or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        new = self.new_producer_id() if self.machine.wants_producer_id(transactional_id) else None
        return self.ask(lambda machine, token, now: machine.init_producer_id(token, request, new, now))

    def add(self, transactional_id: str, producer: ProducerEpoch, *names: TopicPartition, is_new: bool) -> Waiting:
        protocol = SECOND_PROTOCOL if is_new else FIRST_PROTOCOL
        return self.ask(
            lambda machine, token, now: machine.add_partitions(token, transactional_id, producer, names, protocol, now)
        )

    def verify(self, transactional_id: str, producer: ProducerEpoch, name: TopicPartition) -> Waiting:
        return self.ask(
            lambda machine, token, now: machine.verify_partitions(token, transactional_id, producer, [name], now)
        )

    def end(self, transactional_id: str, producer: ProducerEpoch, *, commit: bool, is_new: bool) -> Waiting:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        new = self.new_producer_id() if is_new and self.machine.is_exhausted(transactional_id) else None
        return self.ask(
            lambda machine, token, now: machine.end_transaction(token, request, new, now, is_second_protocol=is_new)
        )

    def prepare(self, name: str, number: int, run: int, *members: tuple[str, ProducerEpoch]) -> Waiting:
        request = PrepareTransactionsRequest(
            name=name,
            number=number,
            run=run,
            transactions=[
                PrepareTransactionsRequestTransaction(
                    transactional_id=id_of_member(name, member), producer_id=pid, producer_epoch=epoch
                )
                for member, (pid, epoch) in members
            ],
        )
        return self.ask(lambda machine, token, now: machine.many.prepare(token, request, now))

    def commit_many(self, name: str, number: int, members: Iterable[tuple[str, ProducerEpoch]]) -> Waiting:
        request = CommitTransactionsRequest(
            name=name,
            number=number,
            transactions=[
                CommitTransactionsRequestTransaction(
                    transactional_id=id_of_member(name, member), producer_id=pid, producer_epoch=epoch
                )
                for member, (pid, epoch) in members
            ],
        )
        return self.ask(lambda machine, token, now: machine.many.commit(token, request, now))

    # ── short ways ───────────────────────────────────────────────────────────────────────────────────────────────

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> ProducerEpoch:
        """Take an id over, and wait for that; for rigs that do everything at once."""
        answer: InitProducerIdResponse = self.init(transactional_id, timeout_ms=timeout_ms).answer
        if answer.error_code == Error.CONCURRENT_TRANSACTIONS:
            answer = self.init(transactional_id, timeout_ms=timeout_ms).answer
        assert answer.error_code == Error.NONE
        return ProducerEpoch(answer.producer_id, answer.producer_epoch)

    def write(self, transactional_id: str, producer: ProducerEpoch, tag: Any, *names: TopicPartition) -> Error:
        """As a producer of the second protocol."""
        error: Error = self.add(transactional_id, producer, *names, is_new=True).answer
        if error is Error.NONE:
            for name in names:
                assert self.append(name, producer, tag)
        return error

    def finish(self, transactional_id: str, producer: ProducerEpoch, *, commit: bool) -> EndTxnResponse:
        response: EndTxnResponse = self.end(transactional_id, producer, commit=commit, is_new=True).answer
        return response

    def fates(self) -> dict[Any, set[str]]:
        """What became of the batches with each tag."""
        found: dict[Any, set[str]] = {}
        for each in self.written:
            found.setdefault(each.tag, set()).add(each.fate)
        return found

    def state(self, transactional_id: str) -> Transaction:
        found = self.machine.table.get(transactional_id)
        assert found is not None
        return found

    def put(self, *transactions: Transaction) -> None:
        """As if this had been written."""
        self.run(Step(records=[each.record() for each in transactions]))

    def records(self) -> list[StateRecord]:
        """All that is in the log."""
        decoded = (TRANSACTIONS_CODEC.decode(key, value) for batch in self.batches for key, value in batch)
        return [record for record in decoded if record is not None]
