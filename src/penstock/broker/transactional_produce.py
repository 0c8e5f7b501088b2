"""Writing to partitions in a transaction: a produce request with a transactional id.

A partition that is new to the transaction is first verified with the transaction's coordinator, or, for clients of the
second protocol (Produce 12 and newer), added to it. Meanwhile the connection is held, so that the producer's later
batches come behind this one. What the coordinator says is told to the client in words that its version understands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.broker.transaction_links import PRODUCE_ADDS_SINCE, add_or_verify, error_for_producer
from penstock.broker.verification import Verification, Verifications
from penstock.log.partition_log import Appended
from penstock.wire.batch import ATTRIBUTES_OFFSET, CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader, read_header
from penstock.wire.messages.k00_produce import ProduceRequest

LOW_ATTRIBUTES_AT = ATTRIBUTES_OFFSET + 1


def has_transactional_batch(request: ProduceRequest) -> bool:
    """Whether some batch of a request says that it belongs to a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and len(records) >= HEADER_SIZE and records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
    return False


class TransactionalProduce:
    """One request, as far as it has to do with its transaction."""

    def __init__(self, broker: Broker, transactional_id: str, version: int) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._version = version
        self._is_add = version >= PRODUCE_ADDS_SINCE
        self._needs_verification = broker.settings.flag("transaction.partition.verification.enable")
        self._producer: ProducerEpoch | None = None
        self._batches: dict[TopicPartition, tuple[Partition, BatchHeader]] = {}
        self._verifications: dict[TopicPartition, Verification] = {}
        self._begun_with: dict[TopicPartition, Verifications] = {}
        self._errors: dict[TopicPartition, Error] = {}

    def take(self, partition: Partition, records: memoryview) -> None:
        """One batch of the request; ApiError for the whole of it if it has batches of several producers."""
        if len(records) < HEADER_SIZE:
            return  # the append will say so
        header = read_header(records)
        if not _belongs_to_transaction(header):
            return
        producer = ProducerEpoch(header.producer_id, header.producer_epoch)
        if self._producer not in (None, producer):
            raise ApiError(Error.INVALID_PRODUCER_ID_MAPPING, "the records of a transaction have one producer")
        self._producer = producer
        self._batches.setdefault(partition.name, (partition, header))

    def must_ask(self) -> bool:
        """Whether the coordinator has to be asked before anything is appended."""
        if self._producer is None or not (self._is_add or self._needs_verification):
            return False
        self._begin(self._producer)
        return bool(self._verifications)

    def _begin(self, producer: ProducerEpoch) -> None:
        self._verifications.clear()
        self._errors.clear()
        for name, (partition, header) in self._batches.items():
            self._begun_with[name] = partition.verifications
            try:
                verification = partition.verifications.begin(
                    partition.log.producers, producer, header.base_sequence, is_add=self._is_add
                )
            except ApiError as error:
                self._errors[name] = error.error
            else:
                if verification is not None:
                    self._verifications[name] = verification

    async def ask(self) -> None:
        """Ask the coordinator. While it finishes the transaction before, it is asked again for a moment."""
        assert self._producer is not None
        clock, settings = self._broker.world.clock, self._broker.settings
        give_up_at = clock.monotonic() + settings.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        while self._verifications:
            errors = await self._ask_once(self._producer)
            is_finishing = self._is_add and Error.CONCURRENT_TRANSACTIONS in errors.values()
            if not is_finishing or clock.monotonic() >= give_up_at:
                self._take_errors(self._producer, errors)
                return
            await asyncio.sleep(settings.integer("add.partitions.to.txn.retry.backoff.ms") / 1000)
            self._begin(self._producer)  # the marker that was being written took the others away

    async def _ask_once(self, producer: ProducerEpoch) -> Mapping[TopicPartition, Error]:
        names = list(self._verifications)
        return await add_or_verify(self._broker, self._transactional_id, producer, names, is_add=self._is_add)

    def _take_errors(self, producer: ProducerEpoch, errors: Mapping[TopicPartition, Error]) -> None:
        for name, error in errors.items():
            if error is not Error.NONE:
                self._errors[name] = error
                if not error.retriable:
                    partition, _ = self._batches[name]
                    partition.verifications.refuse(producer)

    def error_of(self, partition: Partition) -> ApiError | None:
        """Why nothing is appended to a partition, in words that the client understands."""
        error = self._errors.get(partition.name)
        if error is None:
            return None
        told = error_for_producer(error, self._version)
        message = None if told is error else f"the partition could not be verified: {error.name}"
        return ApiError(told, message)

    def append(self, partition: Partition, records: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append one checked batch."""
        if not _belongs_to_transaction(header):
            return partition.append(records, header, now_ms)
        partition.require_leader()
        if self._begun_with.get(partition.name, partition.verifications) is not partition.verifications:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)  # it has another leader epoch, in which nothing was verified
        producers = partition.log.producers
        if producers.repeated(header) is None:
            producer = ProducerEpoch(header.producer_id, header.producer_epoch)
            verification = self._verifications.get(partition.name)
            partition.verifications.check(producers, producer, verification, is_needed=self._needs_verification)
            partition.verifications.check_sequence(producers, header)
        appended = partition.append(records, header, now_ms)
        if not appended.duplicate:
            partition.verifications.forget(header.producer_id)
        return appended


def _belongs_to_transaction(header: BatchHeader) -> bool:
    return header.producer_id >= 0 and header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
