"""How a simulated client finds its way in a cluster (its `Routes`): metadata, connections, coordinators.

It does what real clients do: it asks any broker for metadata, sends to the leader that it read of, and looks again when
it is refused. It never believes metadata with an older leader epoch than it knows. Nothing is retried here: whoever
uses it decides. Every wait has a limit, for a connection to a machine without power is never answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Address
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_world import Process
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest

CONNECT_WITHIN_S = 1.0
METADATA_WITHIN_S = 1.5
METADATA_VERSION = 12


class KnownLeader(NamedTuple):
    """Who leads a partition, as far as metadata says."""

    node_id: int
    epoch: int


class ClusterClient:
    """One client process's view of the cluster."""

    def __init__(self, process: Process, bootstrap: Sequence[Address], name: str) -> None:
        self.process = process
        self.world = process.world
        self.name = name
        self.topic_ids: dict[str, UUID] = {}
        self._bootstrap = list(bootstrap)
        self._addresses: dict[int, Address] = {}
        self._connections: dict[Address, SimClient] = {}
        self._leaders: dict[TopicPartition, KnownLeader] = {}
        self._stale: set[TopicPartition] = set()
        self._coordinators: dict[tuple[str, int], Address] = {}

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _connected(self, address: Address) -> SimClient:
        client = self._connections.get(address)
        if client is None or client.is_closed:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                client = await SimClient.connect(self.world, address.host, address.port, self.name)
            self._connections[address] = client
        return client

    async def any(self) -> SimClient:
        """A connection to some broker."""
        known = list(self._addresses.values()) or self._bootstrap
        return await self._connected(known[self.world.random.randrange(len(known))])

    def start_over(self) -> None:
        """Break every connection (what is under way on them may still arrive), and look for everybody again."""
        for client in self._connections.values():
            client.close()
        self._connections.clear()
        self._coordinators.clear()
        self._stale.update(self._leaders)

    # ── leaders ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def leader(self, where: TopicPartition) -> SimClient:
        """A connection to the leader; ApiError if none is known now, OSError if it cannot be reached."""
        if where not in self._leaders or where in self._stale:
            await self.look(where.topic)
        known = self._leaders.get(where)
        if known is None or known.node_id not in self._addresses:
            raise ApiError(Error.LEADER_NOT_AVAILABLE)
        return await self._connected(self._addresses[known.node_id])

    async def node(self, node_id: int) -> SimClient:
        """A connection to a broker by its id."""
        if node_id not in self._addresses:
            raise ApiError(Error.BROKER_NOT_AVAILABLE)
        return await self._connected(self._addresses[node_id])

    def epoch_of(self, where: TopicPartition) -> int:
        """The newest leader epoch that is known, -1 if none is."""
        known = self._leaders.get(where)
        return -1 if known is None else known.epoch

    def look_again(self, where: TopicPartition) -> None:
        """What is known of its leader does not help: look before the next request."""
        self._stale.add(where)

    async def look(self, topic: str | None = None) -> MetadataResponse:
        """Read metadata of one topic, or of all, from any broker."""
        asked = None if topic is None else [MetadataRequestTopic(name=topic)]
        client = await self.any()
        try:
            async with asyncio.timeout(METADATA_WITHIN_S):
                request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
                answer: MetadataResponse = await client.call(request, METADATA_VERSION)
        except OSError:
            client.close()
            raise
        self._addresses = {node.node_id: Address(node.host, node.port) for node in answer.brokers}
        for row in answer.topics:
            if row.name is not None and not row.error_code:
                self.topic_ids[row.name] = row.topic_id
            for part in row.partitions:
                self._note(TopicPartition(row.name or "", part.partition_index), part.leader_id, part.leader_epoch)
        return answer

    def _note(self, where: TopicPartition, leader_id: int, epoch: int) -> None:
        known = self._leaders.get(where)
        if known is None or epoch >= known.epoch:
            self._stale.discard(where)
            self._leaders[where] = KnownLeader(leader_id, epoch)

    # ── coordinators ─────────────────────────────────────────────────────────────────────────────────────────────

    async def coordinator(self, key: str, kind: int) -> SimClient:
        """A connection to the coordinator of a group or of a transactional id."""
        address = self._coordinators.get((key, kind))
        if address is None:
            client = await self.any()
            try:
                async with asyncio.timeout(METADATA_WITHIN_S):
                    answer = await client.call(FindCoordinatorRequest(key=key, key_type=kind), 2)
            except OSError:
                client.close()
                raise
            if answer.error_code:
                raise ApiError(Error(answer.error_code))
            address = self._coordinators[key, kind] = Address(answer.host, answer.port)
        return await self._connected(address)
