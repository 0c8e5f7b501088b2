"""Groups and transactions whose coordinator is killed, stopped, or left alone, in a simulated cluster of three."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_routes import GROUP, TRANSACTION
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from penstock.wire.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from penstock.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

G = "readers"
ID = "orders"
T0 = TopicPartition("t", 0)
NOBODY_YET = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.LEADER_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.NOT_ENOUGH_REPLICAS,
    Error.REQUEST_TIMED_OUT,
    Error.CONCURRENT_TRANSACTIONS,
)
SETTINGS = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


class Bench:
    """Three brokers, a topic on all of them, and a client who finds its way."""

    def __init__(self) -> None:
        self.simulation = Simulation(21, limit_s=10_000)
        self.cluster = SimCluster(self.simulation, 3, SETTINGS, has_watchers=True)
        self.process = self.simulation.machine("client").process("client")
        self.routes = ClusterClient(self.process, self.cluster.addresses, "client")
        self.sequence = 0

    @property
    def now(self) -> float:
        return self.simulation.loop.time()

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            topic = CreateTopicsRequestTopic(name="t", num_partitions=2, replication_factor=3)
            client = await self.routes.any()
            answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert answer.topics[0].error_code == Error.NONE
            await asyncio.wait_for(drive(), 600)

        self.simulation.run(main())

    async def ask(self, request: Any, version: int, kind: int, error_of: Callable[[Any], int]) -> Any:
        """Ask a coordinator, or the leader of T0, until there is one that answers."""
        while True:
            try:
                async with asyncio.timeout(5):
                    answer = await (await self.where(kind)).call(request, version)
                if error_of(answer) not in NOBODY_YET:
                    return answer
            except (ApiError, OSError, TimeoutError):
                pass
            self.routes.start_over()
            await asyncio.sleep(0.05)

    async def where(self, kind: int) -> SimClient:
        if kind == LEADER:
            return await self.routes.leader(T0)
        return await self.routes.coordinator(G if kind == GROUP else ID, kind)

    def leader_of(self, topic: str) -> SimClusterBroker:
        leading = [
            broker
            for broker in self.cluster.brokers
            if broker.running is not None
            and any(
                partition.name == TopicPartition(topic, 0) and partition.leader is not None
                for partition in broker.running.broker.partitions
            )
        ]
        return max(leading, key=lambda broker: self.epoch_at(broker, topic))

    def epoch_at(self, broker: SimClusterBroker, topic: str) -> int:
        assert broker.running is not None
        return broker.running.broker.partitions.find(topic, 0).epoch

    # ── a group ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def join(self) -> None:
        """Be the only member."""
        self.member_id, self.generation = "", -1
        while self.generation < 0:
            request = JoinGroupRequest(
                group_id=G,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            answer = await self.ask(request, 9, GROUP, lambda found: found.error_code)
            self.member_id, self.generation = answer.member_id, answer.generation_id
        sync = SyncGroupRequest(
            group_id=G,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")],
        )
        assert (await self.ask(sync, 5, GROUP, lambda found: found.error_code)).assignment == b"all"

    async def heartbeat(self) -> Error:
        request = HeartbeatRequest(group_id=G, generation_id=self.generation, member_id=self.member_id)
        return Error((await self.ask(request, 4, GROUP, lambda found: found.error_code)).error_code)

    def commit_request(self, offset: int) -> OffsetCommitRequest:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        return OffsetCommitRequest(
            group_id=G,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
        )

    async def commit(self, offset: int) -> Error:
        answer = await self.ask(
            self.commit_request(offset), 9, GROUP, lambda found: found.topics[0].partitions[0].error_code
        )
        return Error(answer.topics[0].partitions[0].error_code)

    async def committed(self) -> int:
        answer = await self.ask(OFFSETS, 9, GROUP, lambda found: found.groups[0].error_code)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    # ── a transaction ────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        answer = await self.ask(request, 5, TRANSACTION, lambda found: found.error_code)
        assert answer.error_code == Error.NONE
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        self.sequence = 0

    async def write(self) -> Error:
        batch = batch_of(
            [b"a"],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        topic = ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(index=0, records=batch)])
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = await self.ask(request, 12, LEADER, lambda found: found.responses[0].partition_responses[0].error_code)
        return Error(answer.responses[0].partition_responses[0].error_code)

    async def end(self) -> Error:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=True,
        )
        return Error((await self.ask(request, 5, TRANSACTION, lambda found: found.error_code)).error_code)

    async def until_complete(self) -> None:
        state = ""
        while not state.startswith("Complete"):
            request = DescribeTransactionsRequest(transactional_ids=[ID])
            answer = await self.ask(request, 0, TRANSACTION, lambda found: found.transaction_states[0].error_code)
            state = answer.transaction_states[0].transaction_state

    async def until_read(self, count: int) -> None:
        """Readers of committed messages see so many, and never more."""
        found = 0
        while found < count:
            try:
                async with asyncio.timeout(5):
                    found = len(await read_committed(await self.routes.leader(T0), "t", 0))
            except (ApiError, OSError, TimeoutError):
                self.routes.start_over()
            await asyncio.sleep(0.05)
        assert found == count


LEADER = 2
OFFSETS = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=G, topics=None)], require_stable=False)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


def test_a_group_goes_on_with_its_next_coordinator(bench: Bench) -> None:
    async def drive() -> None:
        await bench.join()
        for round in range(3):
            assert await bench.commit(10 + round) == Error.NONE
            old = bench.leader_of("__consumer_offsets")
            old.kill()
            began = bench.now
            assert await bench.committed() == 10 + round
            assert bench.now - began < 3
            assert await bench.heartbeat() == Error.NONE  # it is the same generation
            await old.start()

    bench.run(drive)


def test_a_coordinator_that_was_stopped_tells_nothing_old_when_it_goes_on(bench: Bench) -> None:
    async def drive() -> None:
        await bench.join()
        assert await bench.commit(10) == Error.NONE
        old = bench.leader_of("__consumer_offsets")
        client = await old.connect(bench.process)
        assert (await client.call(OFFSETS, 9)).groups[0].topics[0].partitions[0].committed_offset == 10
        assert old.process is not None
        old.process.pause()
        stale = [client.send(OFFSETS, 9), client.send(bench.commit_request(5), 9), client.send(OFFSETS, 9)]
        assert await bench.commit(20) == Error.NONE
        assert bench.leader_of("__consumer_offsets") is not old
        old.process.resume()
        fetched, committed, fetched_again = [await answer for answer in stale]
        assert fetched.groups[0].error_code == fetched_again.groups[0].error_code == Error.NOT_COORDINATOR
        assert committed.topics[0].partitions[0].error_code == Error.NOT_COORDINATOR
        assert await bench.committed() == 20

    bench.run(drive)


def test_a_coordinator_alone_waits_for_the_others(bench: Bench) -> None:
    async def drive() -> None:
        await bench.join()
        assert await bench.commit(10) == Error.NONE
        alone = bench.leader_of("__consumer_offsets")
        others = [broker for broker in bench.cluster.brokers if broker is not alone]
        for broker in others:
            broker.kill()
        client = await alone.connect(bench.process)
        while (error := await one_commit(bench, client, 11)) is Error.NONE:
            await asyncio.sleep(0.05)
        assert error in NOBODY_YET
        await asyncio.sleep(100)  # far more than the session of the member
        assert await one_commit(bench, client, 12) is Error.COORDINATOR_NOT_AVAILABLE
        await others[0].start()
        assert await bench.heartbeat() == Error.NONE
        assert await bench.commit(13) == Error.NONE
        assert await bench.committed() == 13

    bench.run(drive)


async def one_commit(bench: Bench, client: SimClient, offset: int) -> Error:
    answer = await client.call(bench.commit_request(offset), 9)
    return Error(answer.topics[0].partitions[0].error_code)


def test_a_transaction_goes_on_with_its_next_coordinator(bench: Bench) -> None:
    async def drive() -> None:
        await bench.begin()
        assert await bench.write() == Error.NONE
        bench.leader_of("__transaction_state").kill()
        assert await bench.write() == Error.NONE
        assert await bench.end() == Error.NONE
        await bench.until_complete()
        await bench.until_read(2)

    bench.run(drive)


def test_what_was_decided_is_carried_out_by_the_next_coordinator(bench: Bench) -> None:
    async def drive() -> None:
        for round in range(3):
            await bench.begin()
            assert await bench.write() == Error.NONE
            assert await bench.end() == Error.NONE
            old = bench.leader_of("__transaction_state")
            old.kill()
            await bench.until_complete()
            await bench.until_read(1 + round)
            await old.start()

    bench.run(drive)


def test_a_partition_knows_the_markers_of_an_old_coordinator(bench: Bench) -> None:
    async def drive() -> None:
        await bench.begin()
        assert await bench.write() == Error.NONE
        bench.leader_of("__transaction_state").kill()
        assert await bench.end() == Error.NONE
        await bench.until_complete()
        topics = [DescribeProducersRequestTopic(name="t", partition_indexes=[0])]
        await bench.until_read(1)
        leader = await bench.routes.leader(T0)
        described = await leader.call(DescribeProducersRequest(topics=topics))
        (known,) = described.topics[0].partitions[0].active_producers
        assert known.coordinator_epoch == bench.epoch_at(bench.leader_of("__transaction_state"), "__transaction_state")
        marker = WriteTxnMarkersRequestMarker(
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequestTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=known.coordinator_epoch - 1,
        )
        answer = await leader.call(WriteTxnMarkersRequest(markers=[marker]))
        error = answer.markers[0].topics[0].partitions[0].error_code
        assert error == Error.TRANSACTION_COORDINATOR_FENCED

    bench.run(drive)
