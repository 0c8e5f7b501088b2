"""Simulated transactional producers, of the older protocol and of the newer one (KIP-890), and what they are for: a
member of a group that reads, transforms, and writes its results together with its offsets, exactly once.

Every request is made again until it is answered for certain, as real producers do, with the same producer id, epoch
and sequence numbers. When a transaction cannot go on, it is given up: the producer initialises its id again, which ends
whatever is left of it, and the transformer goes back to the committed offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Outcome
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_members import SimMember
from penstock.testing.sim_routes import GROUP, MOVED, TRANSACTION, Routes
from penstock.testing.sim_workload import RECONNECT_S
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from penstock.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.records import Record

TRANSACTION_TIMEOUT_MS = 10_000
ANSWER_WITHIN_S = 5.0
ATTEMPTS_MAX = 6
IMPATIENT_S = 1.0
_WAITS = (Error.CONCURRENT_TRANSACTIONS, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)


class Unanswered(Exception):
    """A request was made again and again and its outcome is not known."""


class SimTransactions:
    """One transactional producer. `is_new`: clients of EndTxn 5 and newer, which add no partitions themselves."""

    def __init__(
        self,
        routes: Routes,
        transactional_id: str,
        history: ClientHistory,
        *,
        is_new: bool,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        is_patient: bool = True,
    ) -> None:
        self.transactional_id = transactional_id
        self.is_new = is_new
        self.history = history
        self.label = ""  # tells those apart that share an id
        self.instance = ""  # who we are since the last initialisation
        self._routes = routes
        self._world = routes.world
        self._timeout_ms = timeout_ms
        self._attempts_max = ATTEMPTS_MAX if is_patient else 2
        self._answer_within_s = ANSWER_WITHIN_S if is_patient else IMPATIENT_S
        self._producer_id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._instances = count()
        self._transactions = count()
        self._messages = count()
        self.transaction: str | None = None
        self._added: set[TopicPartition] = set()
        self._is_ending = False

    @property
    def producer(self) -> ProducerEpoch:
        """As the cluster knows us since the last initialisation."""
        return ProducerEpoch(self._producer_id, self._epoch)

    # ── one transaction ──────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> str:
        """Begin a transaction, after a new initialisation if there is need of one; its name."""
        if not self.instance:
            await self._initialise()
        self.transaction = f"{self.instance}.{next(self._transactions)}"
        self._added.clear()
        self._is_ending = False
        self.history.beginning(self.transaction, self.instance)
        return self.transaction

    async def send(self, where: TopicPartition) -> bytes:
        """One message; its value."""
        if not self.is_new and where not in self._added:
            await self._add_partition(where)
        value = self.history.sending(self.instance, next(self._messages), where, transaction=self.transaction)
        batch = batch_of(
            [value],
            timestamp_ms=self._world.clock.wall_ms(),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(where, 0),
            transactional=True,
        )
        part = ProduceRequestPartition(index=where.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=int(ANSWER_WITHIN_S * 1000),
            topic_data=[ProduceRequestTopic(name=where.topic, partition_data=[part])],
        )
        answer = await self._ask(
            request,
            12 if self.is_new else 11,
            lambda found: found.responses[0].partition_responses[0].error_code,
            lambda: self._routes.leader(where),
        )
        self._sequences[where] = self._sequences.get(where, 0) + 1
        self.history.acked(value, answer.responses[0].partition_responses[0].base_offset)
        return value

    async def send_offsets(self, member: SimMember, offsets: Mapping[int, int]) -> None:
        """Offsets of a group that count with this transaction."""
        group_id = member.place.group
        if not self.is_new:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group_id,
            )
            await self._ask(request, 4, lambda found: found.error_code)
        rows = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in offsets.items()
        ]
        named = {TopicPartition(member.place.topic, index): offset for index, offset in offsets.items()}
        member.history.committing(member.name, named, transaction=self.transaction)
        await self._ask(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                generation_id=member.epoch,
                member_id=member.member_id,
                topics=[TxnOffsetCommitRequestTopic(name=member.place.topic, partitions=rows)],
            ),
            5 if self.is_new else 4,
            lambda found: found.topics[0].partitions[0].error_code,
            lambda: self._routes.coordinator(group_id, GROUP),
        )

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort."""
        assert self.transaction is not None
        self._is_ending = True
        self.history.ending(self.transaction, is_commit=is_commit)
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_commit,
        )
        answer = await self._ask(request, 5 if self.is_new else 4, lambda found: found.error_code)
        self.history.ended(self.transaction)
        self.transaction = None
        if self.is_new:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def abandon(self) -> None:
        """The transaction cannot go on. Clients of the older protocol abort it, in the same epoch, and begin anew."""
        is_open = self.transaction is not None and not self._is_ending
        if is_open and not self.is_new and self._world.random.random() < 0.5:
            try:
                await self.end(is_commit=False)
            except (ApiError, Unanswered):
                pass
        self.give_up()

    def give_up(self) -> None:
        """The transaction cannot go on: what becomes of it, the next initialisation decides."""
        if self.transaction is not None:
            self.history.ended(self.transaction, Outcome.UNKNOWN)
        self.transaction = None
        self.instance = ""

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _initialise(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        answer = await self._ask(request, 5 if self.is_new else 4, lambda found: found.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self.instance = (
            f"{self.transactional_id}{self.label}#{self._world.clock.monotonic():.3f}/{next(self._instances)}"
        )
        self.history.initialised(self.transactional_id, self.instance)

    async def _add_partition(self, where: TopicPartition) -> None:
        row = AddPartitionsToTxnRequestTopic(name=where.topic, partitions=[where.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[row],
        )
        await self._ask(
            request,
            3,
            lambda found: found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        self._added.add(where)

    async def _ask(
        self,
        request: Any,
        version: int,
        error_of: Callable[[Any], int],
        route: Callable[[], Awaitable[SimClient]] | None = None,
    ) -> Any:
        """The answer to a request without an error; Unanswered or ApiError if there is none.

        Without a route it goes to the coordinator of the transactional id.
        """
        for _ in range(self._attempts_max):
            try:
                async with asyncio.timeout(self._answer_within_s):
                    client = await (route or self._coordinator)()
                    answer = await client.call(request, version)
            except OSError:  # a timeout too
                self._routes.start_over()
                await asyncio.sleep(RECONNECT_S)
                continue
            except ApiError as nowhere:
                error = nowhere.error
            else:
                error = Error(error_of(answer))
            if error is Error.NONE:
                return answer
            if not (error.retriable or error in _WAITS):
                raise ApiError(error)
            if error in MOVED:
                self._routes.start_over()
            await asyncio.sleep(RECONNECT_S)
        raise Unanswered

    async def _coordinator(self) -> SimClient:
        return await self._routes.coordinator(self.transactional_id, TRANSACTION)


class Transforming:
    """The work of a transformer: each message that was read makes one message in the output, with the offsets."""

    def __init__(
        self, transactions: SimTransactions, output: str, partitions: int, chance: Callable[[], float]
    ) -> None:
        self.transactions = transactions
        self.sources: dict[bytes, bytes] = {}
        """The value of every message that was written, and of the one that it was made of."""
        self._output = output
        self._partitions = partitions
        self._chance = chance

    async def __call__(self, member: SimMember, read: Mapping[int, list[Record]]) -> None:
        transactions = self.transactions
        try:
            await transactions.begin()
            for records in read.values():
                for record in records:
                    assert record.value is not None
                    where = TopicPartition(self._output, hash_of(record.value) % self._partitions)
                    self.sources[await transactions.send(where)] = record.value
            if self._chance() < 0.1:
                await transactions.end(is_commit=False)
                member.go_back()
                return
            await transactions.send_offsets(member, {index: member.positions[index] for index in read})
            await transactions.end(is_commit=True)
        except asyncio.CancelledError:
            transactions.give_up()
            member.go_back()
            raise
        except (ApiError, Unanswered) as problem:
            await transactions.abandon()
            member.go_back()
            if isinstance(problem, ApiError):
                member.errors[problem.error] = member.errors.get(problem.error, 0) + 1


def hash_of(value: bytes) -> int:
    """The same in every run."""
    return sum(value)
