"""Offsets committed in a transaction, in the simulator, with a coordinator that says what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

VERIFIES, ADDS = 4, 5
GROUP = "g"


class Coordinator:
    """Answers as it is told, and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.error = Error.NONE
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def add_or_verify(
        self,
        broker: Broker,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        is_add: bool,
    ) -> Mapping[TopicPartition, Error]:
        self.asked.append(is_add)
        if self.meanwhile is not None:
            await self.meanwhile()
        return dict.fromkeys(partitions, self.error)


class Bench:
    """A broker with one partition of offsets."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.simulation = Simulation(6, limit_s=10_000)
        self._world = self.simulation.machine("client").process("client").world
        self.broker: Broker
        self.client: SimClient

    def run(self, drive: Callable[[], Awaitable[None]], settings: dict[str, str] | None = None) -> None:
        async def main() -> None:
            sim_broker = SimBroker(
                self.simulation.machine("broker"), {"offsets.topic.num.partitions": "1", **(settings or {})}
            )
            self.broker = (await sim_broker.start()).broker
            self.client = await SimClient.connect(self._world, "broker", PORT)
            await self.client.create_topic("t", 2)
            await self.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
            while await self.commit(VERIFIES, producer=99) == [Error.COORDINATOR_LOAD_IN_PROGRESS]:
                await asyncio.sleep(0.01)
            self.coordinator.asked.clear()
            await drive()

        self.simulation.run(main())

    @property
    def partition(self) -> Partition:
        return self.broker.partitions.find("__consumer_offsets", 0)

    async def commit(self, version: int, offset: int = 5, *, producer: int = 1, epoch: int = 0) -> list[Error]:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=GROUP,
            producer_id=producer,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        answer = await self.client.call(request, version)
        return [Error(part.error_code) for topic in answer.topics for part in topic.partitions]

    async def end(self, producer: int = 1, epoch: int = 0, *, is_commit: bool = True) -> None:
        await self.broker.groups.at(0).append_marker(
            ProducerEpoch(producer, epoch), is_commit=is_commit, coordinator_epoch=0, transaction_version=1
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(Coordinator())
    monkeypatch.setattr("penstock.broker.handlers.k28_txn_offset_commit.add_or_verify", made.coordinator.add_or_verify)
    yield made
    made.simulation.close()


@pytest.mark.parametrize("version", [0, VERIFIES, ADDS])
def test_the_coordinator_is_asked_before_the_first_offsets_of_a_transaction(bench: Bench, version: int) -> None:
    async def drive() -> None:
        for _ in range(3):
            assert await bench.commit(version) == [Error.NONE]
        assert bench.coordinator.asked == [version >= ADDS]
        assert bench.partition.log.producers.is_open(1, 0)
        await bench.end()
        assert await bench.commit(version) == [Error.NONE]
        assert len(bench.coordinator.asked) == 2
        assert len(bench.partition.verifications) == 0

    bench.run(drive)


def test_verification_can_be_turned_off(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.commit(VERIFIES) == [Error.NONE]
        assert bench.coordinator.asked == []
        assert await bench.commit(ADDS, producer=2) == [Error.NONE]
        assert bench.coordinator.asked == [True]

    bench.run(drive, {"transaction.partition.verification.enable": "false"})


def test_a_marker_between_question_and_append_makes_the_commit_late(bench: Bench) -> None:
    async def drive() -> None:
        bench.coordinator.meanwhile = bench.end
        end_offset = bench.partition.log.end_offset
        assert await bench.commit(VERIFIES) == [Error.INVALID_TXN_STATE]
        assert bench.partition.log.end_offset == end_offset + 1  # the marker
        bench.coordinator.meanwhile = None
        assert await bench.commit(VERIFIES) == [Error.NONE]

    bench.run(drive)


def test_a_newer_epoch_fences(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.commit(ADDS) == [Error.NONE]
        await bench.end(epoch=1)
        assert await bench.commit(ADDS) == [Error.INVALID_PRODUCER_EPOCH]
        assert len(bench.coordinator.asked) == 1
        assert await bench.commit(ADDS, epoch=1) == [Error.NONE]

    bench.run(drive)


@pytest.mark.parametrize(
    ("version", "error", "heard"),
    [
        (3, Error.TRANSACTION_ABORTABLE, Error.INVALID_TXN_STATE),
        (VERIFIES, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (ADDS, Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS),
        (ADDS, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING),
        (VERIFIES, Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS),
        (ADDS, Error.NETWORK_EXCEPTION, Error.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_the_coordinator_says(bench: Bench, version: int, error: Error, heard: Error) -> None:
    async def drive() -> None:
        bench.coordinator.error = error
        assert await bench.commit(version) == [heard]
        assert not bench.partition.log.producers.is_open(1, 0)
        bench.coordinator.error = Error.NONE
        assert await bench.commit(version) == [Error.NONE]

    bench.run(drive)
