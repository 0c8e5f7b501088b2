"""What clients hear that come to the wrong broker, or ask for one that is away, in a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_cluster import SimCluster
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
)
from penstock.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from penstock.wire.messages.k60_describe_cluster import DescribeClusterRequest
from penstock.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from penstock.zookeeper.znodes import Endpoint

SETTINGS = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}
GROUPS = [f"g{number}" for number in range(20)]


class Bench:
    """Two brokers. Of `t` each leads one partition; the second leads `c`, of which the first has a copy."""

    def __init__(self) -> None:
        self.simulation = Simulation(4, limit_s=10_000)
        self.cluster = SimCluster(self.simulation, 2, SETTINGS)
        self.process = self.simulation.machine("client").process("client")
        self.clients: dict[int, SimClient] = {}
        self.topic_ids: dict[str, UUID] = {}

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            for broker in self.cluster.brokers:
                self.clients[broker.broker_id] = await broker.connect(self.process)
            await self.create("t", [[1], [2]])
            await self.create("c", [[2, 1]])
            await asyncio.wait_for(drive(), 600)

        self.simulation.run(main())

    async def create(self, name: str, replicas: list[list[int]]) -> None:
        rows = [
            CreateTopicsRequestReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ]
        topic = CreateTopicsRequestTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
        (made,) = (await self.clients[1].call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert made.error_code == Error.NONE
        self.topic_ids[name] = made.topic_id

    async def metadata(self, broker_id: int, version: int = 12) -> Any:
        topics = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name="c")]
        request = MetadataRequest(topics=topics)
        return await self.clients[broker_id].call(request, version)

    async def produce(self, broker_id: int, topic: str, index: int, version: int) -> Any:
        row = ProduceRequestTopic(partition_data=[ProduceRequestPartition(index=index, records=batch_of([b"x"]))])
        if version >= 13:
            row.topic_id = self.topic_ids[topic]
        else:
            row.name = topic
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[row])
        return await self.clients[broker_id].call(request, version)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_produce_hears_who_leads(bench: Bench, version: int) -> None:
    async def drive() -> None:
        for topic, index in (("t", 1), ("c", 0)):  # the broker has nothing of the first, and follows the second
            answer = await bench.produce(1, topic, index, version)
            (part,) = answer.responses[0].partition_responses
            assert part.error_code == Error.NOT_LEADER_OR_FOLLOWER
            if version >= 10:
                assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (2, 0)
                (node,) = answer.node_endpoints
                assert (node.node_id, node.host, node.port) == (2, "broker2", 9092)
        answer = await bench.produce(1, "t", 0, version)
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE
        assert answer.node_endpoints == []
        answer = await bench.produce(1, "t", 7, version)
        assert answer.responses[0].partition_responses[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION

    bench.run(drive)


def test_markers_are_refused(bench: Bench) -> None:
    async def drive() -> None:
        topics = [
            WriteTxnMarkersRequestTopic(name="t", partition_indexes=[0, 1, 2]),
            WriteTxnMarkersRequestTopic(name="c", partition_indexes=[0]),
            WriteTxnMarkersRequestTopic(name="other", partition_indexes=[0]),
        ]
        marker = WriteTxnMarkersRequestMarker(
            producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
        )
        answer = await bench.clients[1].call(WriteTxnMarkersRequest(markers=[marker]))
        errors = {
            (topic.name, part.partition_index): part.error_code
            for topic in answer.markers[0].topics
            for part in topic.partitions
        }
        assert errors == {
            ("t", 0): Error.NONE,
            ("t", 1): Error.NOT_LEADER_OR_FOLLOWER,
            ("t", 2): Error.UNKNOWN_TOPIC_OR_PARTITION,
            ("c", 0): Error.NOT_LEADER_OR_FOLLOWER,
            ("other", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        }

    bench.run(drive)


def test_a_partition_that_waits_for_its_replica_does_not_keep_the_others_from_being_told(bench: Bench) -> None:
    async def drive() -> None:
        leader = bench.cluster.broker(2)
        assert leader.running is not None
        partition = leader.running.broker.partitions.find("c", 0)
        await until(lambda: partition.leader is not None and len(partition.leader.membership.isr) == 2)
        bench.simulation.network.links.cut_both("broker1", "broker2")  # it is in sync until it lags behind for long
        topics = [
            WriteTxnMarkersRequestTopic(name="t", partition_indexes=[1]),
            WriteTxnMarkersRequestTopic(name="c", partition_indexes=[0]),
        ]
        marker = WriteTxnMarkersRequestMarker(
            producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
        )
        began = bench.simulation.loop.time()
        answer = await bench.clients[2].call(WriteTxnMarkersRequest(markers=[marker]))
        assert bench.simulation.loop.time() - began < 15
        errors = {topic.name: topic.partitions[0].error_code for topic in answer.markers[0].topics}
        assert errors == {"t": Error.NONE, "c": Error.REQUEST_TIMED_OUT}

    bench.run(drive)


def parts_of(answer: Any) -> list[Any]:
    return [part for topic in answer.topics for part in topic.partitions]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_all_brokers_tell_the_same_and_who_is_away(bench: Bench) -> None:
    async def drive() -> None:
        one, two = await bench.metadata(1), await bench.metadata(2)
        assert one.brokers == two.brokers and [node.node_id for node in one.brokers] == [1, 2]
        assert one.topics == two.topics
        assert [part.leader_id for part in parts_of(one)] == [1, 2, 2]
        cluster = await bench.clients[2].call(DescribeClusterRequest())
        assert [node.broker_id for node in cluster.brokers] == [1, 2]
        assert cluster.controller_id == one.controller_id

        bench.cluster.broker(2).kill()
        await asyncio.sleep(20)
        found = await bench.metadata(1)
        assert [node.node_id for node in found.brokers] == [1]
        parts = parts_of(found)
        assert [(part.leader_id, part.error_code) for part in parts] == [
            (1, Error.NONE),
            (-1, Error.LEADER_NOT_AVAILABLE),
            (1, Error.NONE),
        ]
        assert [part.offline_replicas for part in parts] == [[], [2], [2]]
        assert [part.replica_nodes for part in parts] == [[1], [2], [2, 1]]
        oldest = parts_of(await bench.metadata(1, 0))
        assert [(part.error_code, part.replica_nodes) for part in oldest] == [
            (Error.NONE, [1]),
            (Error.LEADER_NOT_AVAILABLE, []),
            (Error.REPLICA_NOT_AVAILABLE, [1]),
        ]
        asked = [DescribeTopicPartitionsRequestTopic(name=name) for name in ("c", "t")]
        described = parts_of(await bench.clients[1].call(DescribeTopicPartitionsRequest(topics=asked)))
        assert [(part.error_code, part.leader_id) for part in described] == [(0, 1), (0, 1), (0, -1)]
        assert [part.offline_replicas for part in described] == [[2], [], [2]]

    bench.run(drive)


def test_a_leader_without_this_listener_is_none_for_its_clients(bench: Bench) -> None:
    async def drive() -> None:
        broker = bench.cluster.broker(1)
        assert broker.running is not None
        view = broker.running.broker.view
        elsewhere = tuple(
            Endpoint(listener="OTHER", host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in view.brokers[2].endpoints
        )
        node = view.brokers[2]
        view.brokers[2] = type(node)(endpoints=elsewhere, host=node.host)
        for version, error in ((5, Error.LEADER_NOT_AVAILABLE), (6, Error.LISTENER_NOT_FOUND)):
            answer = await bench.metadata(1, version)
            assert [each.node_id for each in answer.brokers] == [1]
            parts = parts_of(answer)
            assert [(part.leader_id, part.error_code) for part in parts] == [(1, Error.NONE), (-1, error), (-1, error)]

    bench.run(drive)


def test_coordinators(bench: Bench) -> None:
    async def drive() -> None:
        homes: dict[str, int] = {}
        for broker_id in (1, 2):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
            found = (await bench.clients[broker_id].call(request, 6)).coordinators
            assert {each.error_code for each in found} == {Error.NONE}
            told = {each.key: each.node_id for each in found}
            assert homes in ({}, told)
            homes = told
        assert set(homes.values()) == {1, 2}
        heartbeat = HeartbeatRequest(group_id="g0", generation_id=1, member_id="m")
        wrong, right = 3 - homes["g0"], homes["g0"]
        assert (await bench.clients[wrong].call(heartbeat, 4)).error_code == Error.NOT_COORDINATOR
        assert (await bench.clients[right].call(heartbeat, 4)).error_code == Error.UNKNOWN_MEMBER_ID

        bench.cluster.broker(2).kill()
        await asyncio.sleep(20)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
        for each in (await bench.clients[1].call(request, 6)).coordinators:
            expected = (Error.NONE, 1) if homes[each.key] == 1 else (Error.COORDINATOR_NOT_AVAILABLE, -1)
            assert (each.error_code, each.node_id) == expected

    bench.run(drive)


def test_producer_ids_of_any_broker_are_given_once(bench: Bench) -> None:
    async def drive() -> None:
        ids = [await bench.clients[broker_id].init_producer_id() for broker_id in (1, 2, 1, 2, 2)]
        bench.cluster.broker(2).kill()
        await bench.cluster.broker(2).start()
        bench.clients[2] = await bench.cluster.broker(2).connect(bench.process)
        ids += [await bench.clients[broker_id].init_producer_id() for broker_id in (2, 1)]
        assert len(set(ids)) == len(ids)

    bench.run(drive)
