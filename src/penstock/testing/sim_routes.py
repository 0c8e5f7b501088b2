"""Where simulated clients send their requests: to the leader of a partition, to the coordinator of a group or of a
transactional id. `OneBroker` knows one place for everything; in a cluster it is a `ClusterClient`.
"""

from __future__ import annotations

from typing import Protocol

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import World
from penstock.testing.sim_client import SimClient
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION = 0, 1  # the kinds of coordinators

#: What a client hears that looks for a leader or a coordinator at the wrong place or at a bad moment.
MOVED = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.LEADER_NOT_AVAILABLE,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.REPLICA_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_NOT_AVAILABLE,
    }
)


class Routes(Protocol):
    """What a client knows of where to send its requests."""

    @property
    def world(self) -> World: ...

    async def leader(self, where: TopicPartition) -> SimClient:
        """A connection to the leader; ApiError if none is known now, OSError if it cannot be reached."""
        ...

    async def coordinator(self, key: str, kind: int) -> SimClient:
        """A connection to the coordinator of a group or of a transactional id; errors as above."""
        ...

    def start_over(self) -> None:
        """What is known does not help: break all connections and look for everybody again."""
        ...


class OneBroker:
    """There is one broker, and one connection to it."""

    def __init__(self, world: World, host: str, port: int, name: str) -> None:
        self.world = world
        self._host, self._port = host, port
        self._name = name
        self._client: SimClient | None = None

    async def leader(self, where: TopicPartition) -> SimClient:
        return await self._connected()

    async def coordinator(self, key: str, kind: int) -> SimClient:
        if self._client is not None and not self._client.is_closed:
            return self._client
        client = await self._connected()
        answer = await client.call(FindCoordinatorRequest(key=key, key_type=kind), 2)
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        return client

    async def _connected(self) -> SimClient:
        if self._client is None or self._client.is_closed:
            self._client = await SimClient.connect(self.world, self._host, self._port, self._name)
        return self._client

    def start_over(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
