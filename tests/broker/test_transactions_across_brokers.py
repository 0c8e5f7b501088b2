"""A transaction whose partitions, whose group and whose coordinator are on different brokers, in the simulator."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch
from penstock.broker.peers import PeerError, Peers
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_cluster import SimCluster
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.api_declaration import Api
from penstock.wire.batch import CONTROL
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
)
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

ID = "orders"
GROUPS = [f"g{number}" for number in range(20)]
TRANSACTION, GROUP = 1, 0
ADDS, VERIFIES = 12, 11
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}


class Bench:
    """Three brokers; the topic `t` has two partitions on each, without copies: broker n % 3 + 1 leads partition n."""

    def __init__(self) -> None:
        self.simulation = Simulation(11, limit_s=10_000)
        self.cluster = SimCluster(self.simulation, 3, SETTINGS)
        self.process: Process = self.simulation.machine("client").process("client")
        self.clients: dict[int, SimClient] = {}
        self.coordinator_id = 0
        self.sequence = 0

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            for broker in self.cluster.brokers:
                self.clients[broker.broker_id] = await broker.connect(self.process)
            rows = [CreateTopicsRequestReplicaAssignment(partition_index=n, broker_ids=[n % 3 + 1]) for n in range(6)]
            topic = CreateTopicsRequestTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows)
            answer = await self.clients[1].call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert answer.topics[0].error_code == Error.NONE
            self.coordinator_id = await self.find(ID, TRANSACTION)
            await self.initialise()
            await asyncio.wait_for(drive(), 600)

        self.simulation.run(main())

    async def find(self, key: str, kind: int) -> int:
        while True:
            answer = await self.clients[1].call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6)
            if answer.coordinators[0].error_code == Error.NONE:
                node_id: int = answer.coordinators[0].node_id
                return node_id
            await asyncio.sleep(0.1)

    @property
    def coordinator(self) -> SimClient:
        return self.clients[self.coordinator_id]

    async def initialise(self) -> None:
        while True:
            request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
            answer = await self.coordinator.call(request, 5)
            if answer.error_code == Error.NONE:
                break
            await asyncio.sleep(0.05)
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        self.sequence = 0

    async def write(self, index: int, version: int) -> Error:
        batch = batch_of(
            [b"a"],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        topic = ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(index=index, records=batch)])
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = await self.clients[index % 3 + 1].call(request, version)
        return Error(answer.responses[0].partition_responses[0].error_code)

    async def add(self, indexes: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name="t", partitions=indexes)],
        )
        answer = await self.coordinator.call(request, 3)
        assert not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def commit_offset(self, group: str, group_broker: int, version: int = 5) -> Error:
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
        request = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id=group,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        answer = await self.clients[group_broker].call(request, version)
        return Error(answer.topics[0].partitions[0].error_code)

    async def committed_offset(self, group: str, group_broker: int) -> int:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        answer = await self.clients[group_broker].call(request, 9)
        topics = answer.groups[0].topics
        return topics[0].partitions[0].committed_offset if topics else -1

    async def end(self, *, commit: bool = True) -> Any:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=commit,
        )
        return await self.coordinator.call(request, 5)

    async def state(self) -> str:
        answer = await self.coordinator.call(DescribeTransactionsRequest(transactional_ids=[ID]))
        state: str = answer.transaction_states[0].transaction_state
        return state

    async def until_complete(self) -> None:
        while not (await self.state()).startswith("Complete"):
            await asyncio.sleep(0.01)

    async def markers(self, index: int) -> int:
        batches = await self.clients[index % 3 + 1].read_all("t", index)
        return sum(bool(batch.header.attributes & CONTROL) for batch in batches)

    async def committed(self, index: int) -> int:
        return len(await read_committed(self.clients[index % 3 + 1], "t", index))

    @property
    def elsewhere(self) -> int:
        """A partition of a broker that is not the coordinator."""
        return next(index for index in range(3) if index + 1 != self.coordinator_id)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, int]]:
    """How often brokers asked what of whom."""
    counted: Counter[tuple[str, int]] = Counter()
    ask = Peers.ask

    async def ask_counted(self: Peers, node_id: int, api: Api, *arguments: Any, **options: Any) -> Any:
        counted[api.name, node_id] += 1
        return await ask(self, node_id, api, *arguments, **options)

    monkeypatch.setattr(Peers, "ask", ask_counted)
    return counted


@pytest.mark.parametrize("version", [ADDS, VERIFIES])
def test_a_transaction_on_all_brokers(bench: Bench, asked: Counter[tuple[str, int]], version: int) -> None:
    async def drive() -> None:
        if version == VERIFIES:
            await bench.add([*range(6)])
        for index in range(6):
            assert await bench.write(index, version) == Error.NONE
        assert asked["AddPartitionsToTxn", bench.coordinator_id] == 4
        assert [await bench.committed(index) for index in range(6)] == [0] * 6
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        assert [await bench.markers(index) for index in range(6)] == [1] * 6
        assert [await bench.committed(index) for index in range(6)] == [1] * 6
        others = {broker_id for broker_id in (1, 2, 3) if broker_id != bench.coordinator_id}
        sent = {node_id: count for (name, node_id), count in asked.items() if name == "WriteTxnMarkers"}
        assert sent == dict.fromkeys(others, 1)  # one request for both partitions of a broker

    bench.run(drive)


def test_a_batch_that_belongs_to_no_transaction_is_refused_by_the_coordinator_elsewhere(bench: Bench) -> None:
    async def drive() -> None:
        await bench.add([bench.coordinator_id - 1])
        assert await bench.write(bench.elsewhere, VERIFIES) == Error.TRANSACTION_ABORTABLE
        assert await bench.markers(bench.elsewhere) == 0
        await bench.add([bench.elsewhere])
        assert await bench.write(bench.elsewhere, VERIFIES) == Error.NONE
        assert (await bench.end(commit=False)).error_code == Error.NONE
        await bench.until_complete()
        assert await bench.committed(bench.elsewhere) == 0
        assert await bench.write(bench.elsewhere, ADDS) in (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED)

    bench.run(drive)


def test_offsets_of_groups_on_all_brokers(bench: Bench) -> None:
    async def drive() -> None:
        homes = {group: await bench.find(group, GROUP) for group in GROUPS}
        chosen = {home: group for group, home in homes.items()}
        assert set(chosen) == {1, 2, 3}
        for home, group in chosen.items():
            while (error := await bench.commit_offset(group, home)) is Error.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.01)
            assert error == Error.NONE
            assert await bench.committed_offset(group, home) == -1
        wrong_home = next(home for home in (1, 2, 3) if home != homes["g0"])
        assert await bench.commit_offset("g0", wrong_home) == Error.NOT_COORDINATOR
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        for home, group in chosen.items():
            assert await bench.committed_offset(group, home) == 7

    bench.run(drive)


def test_a_leader_that_is_away_gets_its_marker_when_it_is_back(bench: Bench) -> None:
    async def drive() -> None:
        for index in range(3):
            assert await bench.write(index, ADDS) == Error.NONE
        away = bench.cluster.broker(bench.elsewhere + 1)
        away.kill()
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(20)
        assert await bench.state() == "PrepareCommit"
        for index in range(3):
            if index != bench.elsewhere:
                assert await bench.committed(index) == 1
        began = bench.simulation.loop.time()
        await away.start()
        bench.clients[away.broker_id] = await away.connect(bench.process)
        await bench.until_complete()
        assert bench.simulation.loop.time() - began < 2
        assert await bench.committed(bench.elsewhere) == 1

    bench.run(drive)


def test_a_coordinator_that_is_away_is_waited_for(bench: Bench) -> None:
    async def drive() -> None:
        index = bench.elsewhere
        assert await bench.write(index, ADDS) == Error.NONE
        bench.cluster.broker(bench.coordinator_id).kill()
        await asyncio.sleep(20)
        other = next(n for n in range(3, 6) if n % 3 == index)
        assert await bench.write(other, ADDS) == Error.NOT_ENOUGH_REPLICAS
        coordinator = bench.cluster.broker(bench.coordinator_id)
        await coordinator.start()
        bench.clients[bench.coordinator_id] = await coordinator.connect(bench.process)
        while (error := await bench.write(other, ADDS)) is Error.NOT_ENOUGH_REPLICAS:
            await asyncio.sleep(0.1)
        assert error == Error.NONE
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        assert [await bench.committed(index), await bench.committed(other)] == [1, 1]

    bench.run(drive)


def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.write(bench.elsewhere, ADDS) == Error.NONE
        bench.cluster.broker(bench.elsewhere + 1).kill()
        await asyncio.sleep(10)
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(5)
        assert await bench.state() == "PrepareCommit"
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
        await bench.coordinator.call(request)
        await bench.until_complete()

    bench.run(drive)


def test_an_answer_that_is_lost_makes_no_difference(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The markers are written, and nobody hears of it: they are written again, and readers see one transaction."""
    lost: list[int] = []
    ask = Peers.ask

    async def ask_and_lose(self: Peers, node_id: int, api: Api, *arguments: Any, **options: Any) -> Any:
        answer = await ask(self, node_id, api, *arguments, **options)
        if api.name == "WriteTxnMarkers" and len(lost) < 2:
            lost.append(node_id)
            raise PeerError("lost")
        return answer

    monkeypatch.setattr(Peers, "ask", ask_and_lose)

    async def drive() -> None:
        for index in range(3):
            assert await bench.write(index, ADDS) == Error.NONE
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        assert len(lost) == 2
        assert [await bench.committed(index) for index in range(3)] == [1, 1, 1]
        assert sorted([await bench.markers(index) for index in range(3)]) == [1, 2, 2]
        await bench.initialise()
        assert await bench.write(bench.elsewhere, ADDS) == Error.NONE
        assert (await bench.end(commit=False)).error_code == Error.NONE
        await bench.until_complete()
        assert [await bench.committed(index) for index in range(3)] == [1, 1, 1]

    bench.run(drive)
