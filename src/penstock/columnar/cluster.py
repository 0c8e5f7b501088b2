"""The cluster as a client sees it: who leads a partition, who coordinates a group, and a connection to each.

What is known is used until it does not help (`stale`), and then looked up again. Leader epochs only grow: what a broker
tells that lags behind is not believed. Connections are made on demand, one for each address.

`retry` is the one place that waits and tries again. What is tried inside it fails at once with an `ApiError` or an
`OSError`; only the outermost `retry` decides whether there is time for another attempt.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.base.world import Address
from penstock.columnar.connecting import connect
from penstock.columnar.connection import Connection
from penstock.columnar.errors import BrokerAway, UnknownTopic, check, error_of, refused
from penstock.columnar.settings import ClientSettings
from penstock.columnar.tls import tls_context
from penstock.wire.messages import k03_metadata, k10_find_coordinator
from penstock.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

GROUP = 0
TRANSACTION = 1

#: For so long a topic that nobody knows is taken for one that is new.
UNKNOWN_GRACE_S = 3.0
NO_LEADER = -1
_NO_AUTO_CREATION_SINCE = 4
_MANY_COORDINATORS_SINCE = 4

T = TypeVar("T")


class TopicInfo(NamedTuple):
    """A topic as it is now; `topic_id` is zero where brokers have none."""

    name: str
    topic_id: UUID
    partitions: int
    is_internal: bool = False


class _Leader(NamedTuple):
    node_id: int
    epoch: int
    topic_id: UUID


class Cluster:
    """See the head of this file. For one thread at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._tls = None if settings.tls is None else tls_context(settings.tls)
        self._connections: dict[Address, Connection] = {}
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, _Leader] = {}
        self._doubted: set[TopicPartition] = set()
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._looks_elsewhere = False  # whoever was asked before may be the one that lags behind
        self._is_retrying = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────────────

    def topics(self, names: Sequence[str] | None = None) -> dict[str, TopicInfo]:
        """These topics, or all, as a broker knows them now; those that do not exist are left out."""
        listed = "all topics" if names is None else ", ".join(names)
        return self.retry(lambda: self._topics_once(names), f"look up {listed}")

    def _topics_once(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        found = {}
        for topic in self._metadata(names).topics:
            if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION or topic.name is None:
                continue
            if topic.error_code:
                error = error_of(topic.error_code)
                raise ApiError(error, f"topic {topic.name}: {error.text}")
            found[topic.name] = TopicInfo(topic.name, topic.topic_id, len(topic.partitions), topic.is_internal)
        return found

    def _metadata(self, names: Iterable[str] | None) -> MetadataResponse:
        connection = self._any()
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in dict.fromkeys(names)]
        version = connection.version_of(k03_metadata.API)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < _NO_AUTO_CREATION_SINCE)
        answer: MetadataResponse = connection.ask(request, version)
        check(answer.error_code)
        self._nodes = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            self._learn_leaders(topic)
        return answer

    def _learn_leaders(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code or topic.name is None:
            return
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            known = self._leaders.get(where)
            is_older = known is not None and known.topic_id == topic.topic_id and partition.leader_epoch < known.epoch
            if is_older and partition.leader_epoch >= 0:
                continue
            self._leaders[where] = _Leader(partition.leader_id, partition.leader_epoch, topic.topic_id)
            if partition.leader_id != NO_LEADER:
                self._doubted.discard(where)

    # ── who does what ────────────────────────────────────────────────────────────────────────────────────────────

    def leader(self, where: TopicPartition) -> Connection:
        """A connection to the leader of a partition."""
        return self.retry(lambda: self._connect(self._leader_address(where)), f"reach the leader of {where}")

    def leader_epoch(self, where: TopicPartition) -> int:
        """Of the leader that is known; -1 if that is not known."""
        known = self._leaders.get(where)
        return -1 if known is None else known.epoch

    def topic_id(self, where: TopicPartition) -> UUID:
        """Of the topic whose leaders are known; zero if that is not known."""
        known = self._leaders.get(where)
        return NO_ID if known is None else known.topic_id

    def _leader_address(self, where: TopicPartition) -> Address:
        if where not in self._leaders or where in self._doubted:
            self._look_for_leader(where)
        leader = self._leaders[where]
        if where in self._doubted or leader.node_id not in self._nodes:
            self._doubted.add(where)
            raise ApiError(Error.LEADER_NOT_AVAILABLE, f"{where} has no leader at the moment")
        return self._nodes[leader.node_id]

    def _look_for_leader(self, where: TopicPartition) -> None:
        topics = self._metadata([where.topic]).topics
        topic = next((topic for topic in topics if topic.name == where.topic), None)
        if topic is None or topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(where.topic)
        check(topic.error_code)
        if all(partition.partition_index != where.partition for partition in topic.partitions):
            raise UnknownTopic(where.topic, f"it has {len(topic.partitions)} partitions, and none is {where.partition}")

    def learn_leader(self, where: TopicPartition, node_id: int, epoch: int) -> None:
        """What a broker said, while refusing, of who leads now; not believed if it is not news."""
        known = self._leaders.get(where)
        if known is not None and epoch > known.epoch and node_id in self._nodes:
            self._leaders[where] = _Leader(node_id, epoch, known.topic_id)
            self._doubted.discard(where)

    def coordinator(self, key: str, kind: int) -> Connection:
        """A connection to the broker that looks after a group (0) or a transactional id (1)."""
        thing = "group" if kind == GROUP else "transactional id"
        return self.retry(
            lambda: self._connect(self._coordinator_address(key, kind)), f"reach the coordinator of {thing} {key}"
        )

    def _coordinator_address(self, key: str, kind: int) -> Address:
        if (kind, key) not in self._coordinators:
            found = self._find_coordinator(key, kind)
            check(found.error_code, found.error_message)
            self._coordinators[kind, key] = Address(found.host, found.port)
        return self._coordinators[kind, key]

    def _find_coordinator(self, key: str, kind: int) -> FindCoordinatorResponse | FindCoordinatorResponseCoordinator:
        connection = self._any()
        version = connection.version_of(k10_find_coordinator.API)
        is_one_of_many = version >= _MANY_COORDINATORS_SINCE
        asked = {"coordinator_keys": [key]} if is_one_of_many else {"key": key}
        answer: FindCoordinatorResponse = connection.ask(FindCoordinatorRequest(key_type=kind, **asked), version)
        if not is_one_of_many:
            return answer
        if not answer.coordinators:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
        return answer.coordinators[0]

    def stale(self, where: TopicPartition | None = None) -> None:
        """What is known of a partition, or of everything, did not help: look again before the next use."""
        if where is not None:
            self._doubted.add(where)
            return
        self._doubted.update(self._leaders)
        self._coordinators.clear()
        self._looks_elsewhere = True

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def any(self) -> Connection:
        """A connection to some broker."""
        return self.retry(self._any, "reach a broker")

    def _any(self) -> Connection:
        for connection in [] if self._looks_elsewhere else list(self._connections.values()):
            if self._is_usable(connection):
                return connection
        self._looks_elsewhere = False
        addresses = list(dict.fromkeys((*self._nodes.values(), *self.settings.bootstrap)))
        random.shuffle(addresses)
        last: OSError = ConnectionError("there is no address")
        for address in addresses:
            try:
                return self._connect(address)
            except OSError as error:
                last = error
        raise last

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and self._is_usable(connection):
            return connection
        self._connections[address] = made = connect(address, self.settings, self._tls)
        return made

    def _is_usable(self, connection: Connection) -> bool:
        """One whose login is nearly over is given up when nothing is under way on it."""
        is_idle = connection.is_alive() and not connection.in_flight
        if is_idle and connection.renew_s is not None and time.monotonic() >= connection.renew_s:
            connection.close()
        if not connection.is_open:
            self._connections.pop(connection.address, None)
        return connection.is_open

    # ── trying again ─────────────────────────────────────────────────────────────────────────────────────────────

    def retry(self, attempt: Callable[[], T], what: str, deadline_s: float | None = None) -> T:
        """The result of `attempt`, which is called again after an OSError and after a retriable ApiError, until the
        deadline (of the settings, unless one is given; in seconds from now).

        `what` completes "could not …". BrokerAway when the time is over; TopicGone for a topic that stays unknown;
        Refused or NotAllowed for what will not change. Inside another `retry` it is one attempt of that.
        """
        if self._is_retrying:
            return attempt()
        return self.once(
            lambda: self._retry(attempt, what, self.settings.deadline_s if deadline_s is None else deadline_s)
        )

    def once(self, attempt: Callable[[], T]) -> T:
        """The result of one attempt, within which nothing is tried again either: ApiError, OSError."""
        was_retrying, self._is_retrying = self._is_retrying, True
        try:
            return attempt()
        finally:
            self._is_retrying = was_retrying

    def _retry(self, attempt: Callable[[], T], what: str, deadline_s: float) -> T:
        started_s = time.monotonic()
        unknown_since_s: float | None = None
        pause_s = self.settings.backoff_s
        while True:
            try:
                return attempt()
            except ApiError as error:
                now_s = time.monotonic()
                unknown_since_s = (unknown_since_s or now_s) if isinstance(error, UnknownTopic) else None
                is_gone = unknown_since_s is not None and now_s - unknown_since_s > UNKNOWN_GRACE_S
                if not error.error.retriable or is_gone:
                    raise refused(f"could not {what}", error) from error
                reason: Exception = error
            except OSError as error:
                reason = error
            self.stale()
            if time.monotonic() - started_s + pause_s >= deadline_s:
                raise self._given_up(what, deadline_s, reason) from reason
            time.sleep(pause_s * random.uniform(0.8, 1.2))
            pause_s = min(2 * pause_s, self.settings.backoff_max_s)

    def _given_up(self, what: str, deadline_s: float, reason: Exception) -> Exception:
        if isinstance(reason, UnknownTopic):
            return refused(what, reason)
        if isinstance(reason, ApiError):
            text = f"{reason.message} ({reason.error.name})"
            return BrokerAway(f"could not {what} within {deadline_s:g} s: {text}")
        addresses = ", ".join(
            str(address) for address in dict.fromkeys((*self.settings.bootstrap, *self._nodes.values()))
        )
        return BrokerAway(f"could not {what} within {deadline_s:g} s; tried {addresses}; the last reason: {reason}")
