"""The shards of one internal topic that are here: which of them looks after a key, and following the partitions.

A key (a group id, a transactional id) belongs to a partition of the topic by a hash, and to the broker that leads it.
There is one shard for each partition that is led here, and for each epoch in which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, Step, Token
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView
from penstock.broker.lease import Lease
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.state_log import M, Shape, StateLog
from penstock.zookeeper.topic_znodes import NO_LEADER


class StateLogs(Generic[M]):
    """See the head of this file. `placed_by` gives the part of a key that decides where it belongs."""

    def __init__(
        self,
        topic: str,
        shape: Shape[M],
        world: World,
        view: ClusterView,
        partitions: Partitions,
        lease: Lease,
        placed_by: Callable[[str], str] = str,
    ) -> None:
        self.topic = topic
        self._shape = shape
        self._world = world
        self._view = view
        self._partitions = partitions
        self._lease = lease
        self._placed_by = placed_by
        self._logs: dict[int, StateLog[M]] = {}
        self._is_stopped = False
        partitions.on_roles(self._roles_changed)

    def _roles_changed(self, changed: list[Partition]) -> None:
        if any(partition.name.topic == self.topic for partition in changed):
            self.follow()

    def follow(self) -> None:
        """Make the shards what the partitions are: one for each that is led here."""
        if self._is_stopped:
            return
        topic = self._view.topics.get(self.topic)
        count = len(topic.partitions) if topic is not None else 0
        for index in range(count):
            partition = self._partitions.get(TopicPartition(self.topic, index))
            log = self._logs.get(index)
            if log is not None and (log.partition is not partition or log.is_over):
                log.end()
                del self._logs[index]
                log = None
            if log is None and partition is not None and partition.leader is not None and not partition.is_gone:
                self._logs[index] = StateLog(partition, self._shape, self._world, self._lease)
        for index in [index for index in self._logs if index >= count]:
            self._logs.pop(index).end()

    def index_of(self, key: str) -> int:
        """The partition that a key belongs to; ApiError while there is no such topic."""
        topic = self._view.topics.get(self.topic)
        if topic is None:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, f"there is no {self.topic} yet")
        return java_hash(self._placed_by(key)) % len(topic.partitions)

    def leader_of(self, key: str) -> int:
        """The broker that looks after a key; ApiError while there is none."""
        index = self.index_of(key)
        leader_id = self._view.topics[self.topic].partitions[index].leader
        if leader_id == NO_LEADER or leader_id not in self._view.brokers:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, f"nobody looks after {key!r} at the moment")
        return leader_id

    def of_key(self, key: str) -> StateLog[M]:
        """The shard that looks after a key; ApiError if it is not here, or not ready."""
        return self.at(self.index_of(key))

    def at(self, index: int) -> StateLog[M]:
        """The shard of one partition; ApiError if it is not here, or not ready."""
        log = self._logs.get(index)
        if log is None:
            raise ApiError(Error.NOT_COORDINATOR)
        log.check()
        return log

    async def ask_all(self, decide: Callable[[M, Token, Moment], Step]) -> list[Any]:
        """What every shard that is here answers; ApiError if one of them cannot, so that the list would lack it."""
        if self.is_loading:
            raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        answers = []
        for log in self:
            try:
                answers.append(await log.ask(decide))
            except ApiError as refused:
                if log.is_over:
                    continue  # another broker is asked for what it has
                is_away = refused.error is Error.NOT_COORDINATOR
                raise ApiError(Error.COORDINATOR_NOT_AVAILABLE if is_away else refused.error) from refused
        return answers

    def __iter__(self) -> Iterator[StateLog[M]]:
        """Those that can be asked."""
        return iter([log for log in self._logs.values() if log.is_loaded and not log.is_over])

    @property
    def is_loading(self) -> bool:
        """Whether some of them are not read yet, so that a list of all would lack something."""
        return any(not log.is_loaded and not log.is_over for log in self._logs.values())

    def stop(self) -> None:
        """Whoever waits is told to look elsewhere."""
        self._is_stopped = True
        for log in self._logs.values():
            log.end()
        self._logs.clear()


def java_hash(text: str) -> int:
    """Java's hash of a string, made positive: where Kafka's own tools look for a key as well."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[position : position + 2], "big")) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
