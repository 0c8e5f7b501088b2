"""A whole cluster, asked directly: each question goes to the broker that must answer it.

Groups and transactional ids have a coordinator, partitions have a leader, and some questions go to every broker. A
`Cluster` finds out who it is, keeps one `DirectClient` per broker, and asks again for a while where the answer is only
that somebody else is responsible by now, or not ready yet. Answers come with their error code: (code, answer) per key.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from penstock.base.errors import Error
from penstock.cli.connection import ANSWER_TIMEOUT_S, Connection
from penstock.cli.direct import TIMEOUT_S, DirectClient, check_error, connect_directly
from penstock.cli.direct_security import parse_security
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.offsets import ask_offsets
from penstock.cli.places import Place, place_text
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k10_find_coordinator as k10

PAUSE_S = 0.1
SETTLES_SOON = {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.LEADER_NOT_AVAILABLE,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.OFFSET_NOT_AVAILABLE,
    Error.CONCURRENT_TRANSACTIONS,
}
#: A broker forwards what only the controller may do; while nobody is the controller, it says so.
NO_CONTROLLER_NOW = {Error.NOT_CONTROLLER, Error.REQUEST_TIMED_OUT}

Key = TypeVar("Key")
Result = TypeVar("Result")
Answers = Mapping[Key, tuple[int, Any]]


class CoordinatorKind(IntEnum):
    """What a coordinator looks after; the numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class BrokerAddress(NamedTuple):
    """A broker, and where it is reached."""

    id: int
    host: str
    port: int


class Cluster:
    """The brokers behind a connection. Use it in a `with`: it holds open sockets."""

    def __init__(self, connection: Connection, timeout_s: float = TIMEOUT_S) -> None:
        self._first = connect_directly(connection, timeout_s)
        self._timeout_s = timeout_s
        self._security = parse_security(connection.settings)
        self._clients: dict[BrokerAddress, DirectClient] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        for client in (self._first, *self._clients.values()):
            client.__exit__(kind, value, tb)

    # Who there is

    def on(self, broker: BrokerAddress) -> DirectClient:
        """The connection to one broker."""
        if broker not in self._clients:
            self._clients[broker] = DirectClient((broker.host, broker.port), self._timeout_s, self._security)
        return self._clients[broker]

    @property
    def anyone(self) -> DirectClient:
        """The connection to the first broker that answered."""
        return self._first

    def brokers(self) -> list[BrokerAddress]:
        """Every broker of the cluster."""
        answer = self.metadata([])
        return sorted(BrokerAddress(each.node_id, each.host, each.port) for each in answer.brokers)

    def partitions_of(self, topics: Collection[str] | None) -> dict[str, list[int]]:
        """The partitions of topics, of all if None; a topic that does not exist is left out."""
        answer = self.metadata(topics)
        return {
            str(topic.name): sorted(partition.partition_index for partition in topic.partitions)
            for topic in answer.topics
            if topic.error_code != Error.UNKNOWN_TOPIC_OR_PARTITION
        }

    def existing_partitions_of(self, topics: Collection[str]) -> dict[str, list[int]]:
        """The partitions of topics; fails, with close names, where one does not exist."""
        known = self.partitions_of(topics)
        for topic in topics:
            if topic not in known:
                hint = did_you_mean(topic, self.partitions_of(None)) or " ('penstock topic list' shows what there is)"
                raise Failure(f"there is no topic '{topic}'{hint}", ExitCode.NOT_FOUND)
        return known

    def metadata(self, topics: Collection[str] | None) -> k03.MetadataResponse:
        """Brokers and topics, of all topics if None."""
        wanted = None if topics is None else [k03.MetadataRequestTopic(name=name) for name in topics]
        request = k03.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self._first.ask(k03.API.key, request, k03.MetadataResponse, lowest=4)

    # Who must be asked

    def ask_all(self, ask: Callable[[DirectClient], Any]) -> list[tuple[BrokerAddress, Any]]:
        """The answer of every broker."""
        return [(broker, ask(self.on(broker))) for broker in self.brokers()]

    def ask_controller(
        self,
        ask: Callable[[DirectClient], Result],
        code_of: Callable[[Result], int],
        *,
        patience_s: float = ANSWER_TIMEOUT_S,
    ) -> Result:
        """The controller's answer, through whichever broker; asks again while there is no controller."""
        deadline = time.monotonic() + patience_s
        while True:
            answer = ask(self._first)
            if code_of(answer) not in NO_CONTROLLER_NOW or time.monotonic() > deadline:
                return answer
            time.sleep(PAUSE_S)

    def coordinators(
        self, kind: CoordinatorKind, keys: Sequence[str]
    ) -> tuple[dict[str, BrokerAddress], dict[str, tuple[int, Any]]]:
        """Who looks after each key, and (code, message) for those where nobody can say."""
        request = k10.FindCoordinatorRequest(key_type=int(kind), coordinator_keys=list(keys))
        answer = self._first.ask(k10.API.key, request, k10.FindCoordinatorResponse, lowest=4)
        found = {c.key: BrokerAddress(c.node_id, c.host, c.port) for c in answer.coordinators if not c.error_code}
        return found, {c.key: (c.error_code, c.error_message) for c in answer.coordinators if c.error_code}

    def ask_coordinators(
        self, kind: CoordinatorKind, keys: Iterable[str], ask: Callable[[DirectClient, list[str]], Answers[str]]
    ) -> dict[str, tuple[int, Any]]:
        """Asks about each key at its coordinator."""
        return self._ask(list(keys), lambda left: self.coordinators(kind, left), ask)

    def ask_leaders(
        self, places: Iterable[Place], ask: Callable[[DirectClient, list[Place]], Answers[Place]]
    ) -> dict[Place, tuple[int, Any]]:
        """Asks about each partition at its leader."""
        return self._ask(list(places), self._leaders, ask)

    def _leaders(self, places: Sequence[Place]) -> tuple[dict[Place, BrokerAddress], dict[Place, tuple[int, Any]]]:
        answer = self.metadata(list(dict.fromkeys(topic for topic, _ in places)))
        brokers = {each.node_id: BrokerAddress(each.node_id, each.host, each.port) for each in answer.brokers}
        leaders = {
            (str(topic.name), partition.partition_index): brokers.get(partition.leader_id)
            for topic in answer.topics
            for partition in topic.partitions
        }
        found = {place: leader for place in places if (leader := leaders.get(place)) is not None}
        missing: dict[Place, tuple[int, Any]] = {
            place: (Error.LEADER_NOT_AVAILABLE if place in leaders else Error.UNKNOWN_TOPIC_OR_PARTITION, None)
            for place in places
            if place not in found
        }
        return found, missing

    def _ask(
        self,
        keys: list[Key],
        find: Callable[[list[Key]], tuple[dict[Key, BrokerAddress], dict[Key, tuple[int, Any]]]],
        ask: Callable[[DirectClient, list[Key]], Answers[Key]],
    ) -> dict[Key, tuple[int, Any]]:
        answers: dict[Key, tuple[int, Any]] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        left = keys
        while left:
            found, missing = find(left)
            answers.update(missing)
            by_broker: dict[BrokerAddress, list[Key]] = defaultdict(list)
            for key, broker in found.items():
                by_broker[broker].append(key)
            gone: set[Key] = set()
            for broker, its in by_broker.items():
                try:
                    answers.update(ask(self.on(broker), its))
                except Failure as failure:
                    # A broker that died a moment ago: soon another one is responsible.
                    if failure.code != ExitCode.UNREACHABLE or time.monotonic() > deadline:
                        raise
                    self._forget(broker)
                    gone.update(its)
            left = [key for key in left if key in gone or answers[key][0] in SETTLES_SOON]
            if left and time.monotonic() > deadline:
                break
            if left:
                time.sleep(PAUSE_S)
        return answers

    def _forget(self, broker: BrokerAddress) -> None:
        client = self._clients.pop(broker, None)
        if client is not None:
            client.__exit__(None, None, None)

    # Offsets

    def list_offsets(self, places: Iterable[Place], timestamp_ms: int, *, committed: bool = False) -> dict[Place, int]:
        """The offset that a time means in each partition (-1: none); partitions that do not exist are left out."""

        def ask(client: DirectClient, its: list[Place]) -> Answers[Place]:
            return ask_offsets(client, its, timestamp_ms, committed=committed)

        answers = self.ask_leaders(places, ask)
        offsets: dict[Place, int] = {}
        for place, (code, offset) in answers.items():
            if code != Error.UNKNOWN_TOPIC_OR_PARTITION:
                check_error(code, None, place_text(place))
                offsets[place] = offset
        return offsets
