"""Replicas of one topic without a cluster around them: their logs, leaders and followers are real, the test is the
controller.

Each node runs what a broker has for replication (partitions, Fetch and ListOffsets over the simulated network, the
fetchers), and learns of a decision when the test tells it, early, late or never. So histories can be made that a
controller seldom writes.

    replicas = SimReplicas(simulation, 3)
    await replicas.start()
    replicas.decide(0, leader=2)                  # a new epoch of partition 0
    await replicas.node(2).learn()                # only the new leader knows yet
    replicas.node(2).append(0, [b"a", b"b"])
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

from penstock.base.broker_settings import load_broker_settings
from penstock.base.settings import Settings
from penstock.base.world import SocketOptions, World
from penstock.broker.audit_log import AuditLog
from penstock.broker.broker import Broker
from penstock.broker.cluster_view import ClusterView
from penstock.broker.connection import Intake
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.followers import Followers
from penstock.broker.handlers import k02_list_offsets
from penstock.broker.handlers.fetch_by_follower import FollowerFetches
from penstock.broker.handlers.k01_fetch import Fetch
from penstock.broker.handlers.k18_api_versions import ApiVersions
from penstock.broker.lease import Lease
from penstock.broker.membership import Membership
from penstock.broker.partition import Partition
from penstock.broker.partition_config import PartitionConfig
from penstock.broker.partitions import Partitions
from penstock.broker.peer_log import PeerLog
from penstock.broker.replica_throttle import Limit, ReplicaThrottle, ThrottledPartitions
from penstock.broker.requests import Dispatcher
from penstock.broker.rights import Rights
from penstock.broker.server import ConnectionLimits, Server
from penstock.log.config import LogConfig
from penstock.testing.sim_client import batch_of
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.batch import each_batch, read_header
from penstock.wire.conform import InsideRules
from penstock.wire.messages.k01_fetch import API as FETCH
from penstock.wire.messages.k02_list_offsets import API as LIST_OFFSETS
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.records import read_records
from penstock.zookeeper.topic_znodes import PartitionState, Topic
from penstock.zookeeper.znodes import BrokerNode, Endpoint

PORT = 9092
TOPIC = "t"
TOPIC_ID = UUID(int=0xABC)
LISTENER = "PLAINTEXT"
BYTES_MAX = 50 << 20


class Stored(NamedTuple):
    """One record of a log."""

    offset: int
    epoch: int  # of its batch
    value: bytes


class View:
    """What a node believes, in the shape of a `ClusterView`."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.cluster_id = "sim-replicas"
        self.brokers = {
            node_id: BrokerNode(endpoints=(Endpoint(listener=LISTENER, host=f"node{node_id}", port=PORT),), host="")
            for node_id in nodes
        }
        self.broker_epochs = dict.fromkeys(self.brokers, 1)
        self.topics: dict[str, Topic] = {}

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self.topics.get(TOPIC) if topic_id == TOPIC_ID else None

    def on_change(self, _listener: object) -> None:
        """The nodes do not move."""


class SimReplica:
    """One node: a machine with its disk, and the program on it, which can be ended and started again."""

    def __init__(self, replicas: SimReplicas, node_id: int) -> None:
        self.node_id = node_id
        self.machine = replicas.simulation.machine(f"node{node_id}")
        self.process: Process | None = None
        self.epoch = 0  # of its registration
        self._replicas = replicas
        self.partitions: Partitions | None = None
        self.membership: Membership | None = None
        self.followers: Followers | None = None

    def __repr__(self) -> str:
        return self.machine.name

    async def start(self) -> None:
        if self.process is not None and not self.process.ended:
            self.process.kill()
        self.machine.disk.kill()
        self.epoch += 1
        self.process = self.machine.process("node")
        await self.process.start(self._start(self.process.world))
        await self.learn()

    async def _start(self, world: World) -> None:
        replicas = self._replicas
        self._view = view = View(node.node_id for node in replicas.nodes)
        settings = replicas.settings_of(self.node_id)
        lease = cast(Lease, SimpleNamespace(timeout_ms=4000, holds=lambda: True))
        world.disk.make_dirs("/data")
        world.disk.sync_dir("/")
        self.partitions = await Partitions.open(world, self.node_id, cast(ClusterView, view), lease, settings)
        membership = self.membership = cast(Membership, SimpleNamespace(broker_id=self.node_id, epoch=self.epoch))
        self.followers = Followers(
            world, cast(ClusterView, view), self.partitions, membership, settings, lambda: settings, LISTENER
        )
        await self._serve(world, settings, self.partitions)

    async def _serve(self, world: World, settings: Settings, partitions: Partitions) -> None:
        peer_log = PeerLog(world.clock)
        dispatcher = Dispatcher(peer_log, world.clock)
        rate = partial(settings.integer, "leader.replication.throttled.rate")
        followers = FollowerFetches(
            partitions,
            world.clock,
            world.disk,
            world.random,
            Limit(ReplicaThrottle.of(settings), rate),
            lambda _partition: None,
            dispatcher.counts_of(FETCH),
            bytes_max=BYTES_MAX,
            tells_committed_at_once=False,
        )
        sessions = FetchSessions(100, world.random)
        counts = dispatcher.counts_of(FETCH)
        nobody = cast(ClusterView, SimpleNamespace(configs={}, on_change=lambda _listener: None))
        rights = Rights(nobody, settings, AuditLog(world, settings))
        fetch = Fetch(partitions, sessions, followers, world.clock, world.disk, BYTES_MAX, None, None, counts, rights)
        broker = cast(Broker, SimpleNamespace(world=world, partitions=partitions, rights=rights))
        dispatcher.serve_hot(FETCH, fetch)
        dispatcher.serve(API_VERSIONS, ApiVersions(dispatcher))
        dispatcher.serve_async(LIST_OFFSETS, partial(k02_list_offsets.handle, broker))
        limits = ConnectionLimits(100, 100, {}, 1e9)
        server = Server(world.network, world.clock, Intake(1 << 30, 100 << 20), limits, dispatcher, peer_log)
        await server.listen(LISTENER, "0.0.0.0", PORT, SocketOptions())
        server.open()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        assert self.process is not None
        self.process.kill()

    def lose_power(self) -> None:
        """What was not synced is gone."""
        self.machine.lose_power("all")
        self.machine.power_on()

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.ended

    async def learn(self) -> None:
        """Take over what was decided."""
        assert self.process is not None and self.partitions is not None
        self._view.topics = {TOPIC: Topic(TOPIC, TOPIC_ID, tuple(self._replicas.states), (1,))}
        config = self._replicas.config
        await self.process.start(self.partitions.follow([TOPIC], lambda _topic: config, may_lead=True))

    def partition(self, index: int = 0) -> Partition:
        assert self.partitions is not None
        return self.partitions.find(TOPIC, index)

    def append(self, index: int, values: Sequence[bytes]) -> bool:
        """Append a batch, if this node believes to lead and its log can take one now."""
        partition = self.partition(index)
        if partition.leader is None or partition.is_syncing:
            return False
        batch = memoryview(bytearray(batch_of(values)))
        assert self.process is not None
        self.process.call(lambda: partition.append(batch, read_header(batch), self.machine.clock.wall_ms()))
        return True

    def stored(self, index: int = 0) -> list[Stored]:
        """Everything in the log."""
        return stored_in(self.partition(index))


def stored_in(partition: Partition) -> list[Stored]:
    found = []
    for segment in partition.log.segments:
        content = segment.open_file().read(segment.size_bytes, 0) if segment.size_bytes else b""
        for header, batch in each_batch(memoryview(content)):
            for record in read_records(batch):
                found.append(Stored(record.offset, header.leader_epoch, bytes(record.value or b"")))
    return [each for each in found if each.offset >= partition.log.start_offset]


class SimReplicas:
    """See the head of this file. Nodes have the ids 1, 2, …, and all are in sync for ever."""

    def __init__(
        self,
        simulation: Simulation,
        nodes: int = 3,
        *,
        partitions: int = 1,
        config: LogConfig | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.simulation = simulation
        self.config = PartitionConfig(config or LogConfig(), InsideRules())
        self.nodes = [SimReplica(self, number + 1) for number in range(nodes)]
        ids = tuple(node.node_id for node in self.nodes)
        self.states = [PartitionState(ids, ids) for _ in range(partitions)]
        self._settings = settings or {}

    def settings_of(self, node_id: int) -> Settings:
        fixed = {"node.id": str(node_id), "log.dirs": "/data/logs", "log.dirs.reserve.bytes": "0"}
        return load_broker_settings({**fixed, **self._settings})

    def throttle(self, *replicas: str) -> None:
        """Limit replicas, on both sides, from the next start of their nodes on."""
        limited = ThrottledPartitions.of(replicas, -1)
        self.config = replace(self.config, throttled_as_leader=limited, throttled_as_follower=limited)

    def node(self, node_id: int) -> SimReplica:
        return self.nodes[node_id - 1]

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    def decide(self, index: int, leader: int, **changes: Any) -> None:
        """A new leader, in a new epoch; nobody knows yet."""
        before = self.states[index]
        self.states[index] = PartitionState(
            changes.get("replicas", before.replicas),
            changes.get("isr", before.isr),
            leader,
            before.leader_epoch + 1,
            before.partition_epoch + 1,
        )

    async def all_learn(self) -> None:
        await asyncio.gather(*(node.learn() for node in self.nodes if node.is_running))

    async def lead(self, leader: int) -> None:
        """All partitions are led by one node, and everybody knows."""
        for index in range(len(self.states)):
            self.decide(index, leader)
        await self.all_learn()

    async def in_step(self, within_s: float = 60.0) -> None:
        """Returns when all nodes have the same, and know that it is committed."""
        deadline_s = self.simulation.loop.time() + within_s
        while not self._is_in_step():
            assert self.simulation.loop.time() < deadline_s, [self._positions(node) for node in self.nodes]
            await asyncio.sleep(0.05)

    def _is_in_step(self) -> bool:
        positions = [self._positions(node) for node in self.nodes]
        return all(each == positions[0] and all(end == mark for end, mark in each) for each in positions)

    def _positions(self, node: SimReplica) -> list[tuple[int, int]]:
        parts = [node.partition(index) for index in range(len(self.states))]
        return [(part.log.end_offset, part.high_watermark) for part in parts]
