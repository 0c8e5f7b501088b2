"""What a scenario may ask of members of groups and of transactional producers, whichever client they are.

A `Member` is one real consumer that has subscribed; everything about it happens in the thread that polls it, except
where a client has threads of its own: its `Watcher` may be told from any. A `TransactionalProducer` is one real
producer with a transactional id. What a client cannot do is said in the attributes of its `GroupClient`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.base.identifiers import TopicPartition

from .client import DEADLINE_S, Client, Message, Producer

RANGE, ROUND_ROBIN, STICKY, COOPERATIVE = "range", "roundrobin", "sticky", "cooperative-sticky"
UNIFORM = "uniform"
FENCED_INSTANCE_ID = 82
#: The newer protocol refuses the second one instead of throwing out the first.
UNRELEASED_INSTANCE_ID = 111
#: Long enough for a machine that does other things, short enough to wait for.
SESSION_TIMEOUT_MS = 2_500
HEARTBEAT_INTERVAL_MS = 100
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How a consumer takes part in a group."""

    group: str
    topics: tuple[str, ...]
    #: A regular expression instead of the topics.
    pattern: str | None = None
    #: None: what the client does by itself.
    assignor: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    #: A member that is not polled for so long is thrown out.
    max_poll_interval_ms: int = 300_000
    reset: str = "earliest"
    committed_only: bool = False


class Watcher(Protocol):
    """Whoever wants to know what a member owns and is given. `generation` is None where the client does not say."""

    def assigned(self, partitions: Iterable[TopicPartition], generation: int | None) -> None: ...
    def revoked(self, partitions: Iterable[TopicPartition]) -> None: ...
    def lost(self, partitions: Iterable[TopicPartition]) -> None: ...
    def given(self, messages: Iterable[Message]) -> None: ...


class NobodyWatches:
    """For scenarios that look at the assignment and the messages alone."""

    def assigned(self, partitions: Iterable[TopicPartition], generation: int | None) -> None:
        pass

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def given(self, messages: Iterable[Message]) -> None:
        pass


class Member(ABC):
    """A consumer in a group. Calls raise Refused with the broker's error."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Message]:
        """What has come; waits for the first message at most this long. Rebalances happen meanwhile.

        The watcher is told of every message before it is told of the next change of ownership.
        """

    @abstractmethod
    def assignment(self) -> set[TopicPartition]: ...

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit and wait for the answer."""

    @abstractmethod
    def commit_later(self, offsets: Mapping[TopicPartition, int], on_done: Callable[[Exception | None], None]) -> None:
        """Commit without waiting; `on_done` is called during some later poll, or in another thread."""

    @abstractmethod
    def committed(self, where: TopicPartition) -> int | None:
        """The group's committed offset of a partition, asked of the broker."""

    @abstractmethod
    def seek(self, where: TopicPartition, offset: int) -> None: ...

    @abstractmethod
    def identity(self) -> Any:
        """Which member of the group it is at this moment, for `TransactionalProducer.send_offsets`."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group, unless the member is a static one."""


class TransactionalProducer(Producer):
    """A producer with a transactional id, initialised. Calls raise Refused with the broker's error."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send_offsets(
        self, offsets: Mapping[TopicPartition, int], identity: Any, group: str, timeout_s: float = DEADLINE_S
    ) -> None:
        """Commit a member's offsets with the transaction."""

    @abstractmethod
    def commit(self, timeout_s: float = DEADLINE_S) -> None: ...

    @abstractmethod
    def abort(self, timeout_s: float = DEADLINE_S) -> None: ...


class GroupClient(ABC):
    """One client library, and one way in which it takes part in groups."""

    name: str
    assignors: tuple[str, ...]
    #: Does it tell the coordinator which member's offsets a transaction commits, so that those of others are fenced?
    fences_offsets = True
    #: The error by which one of two members with the same instance id is refused; None if the client hides it.
    fencing_code: int | None = FENCED_INSTANCE_ID
    polls_tell_fencing = True
    #: Does it give messages of before to a member that lost a partition while it asked where that begins? Then a
    #: scenario in which members come and go has to commit the beginning first, so that nobody asks.
    stumbles_over_first_offsets = False

    def __init__(self, plain: Client) -> None:
        self.plain = plain

    @property
    def safe_assignors(self) -> tuple[str, ...]:
        """Those that give a partition to nobody before its owner has let go of it, whoever comes back meanwhile."""
        return self.assignors

    @abstractmethod
    def join(self, options: MemberOptions, watcher: Watcher) -> Member:
        """A new member; it joins when it is polled."""

    @abstractmethod
    def outsider(self, group: str, partitions: Iterable[TopicPartition]) -> AbstractContextManager[Member]:
        """A consumer that names the group and is no member of it: it has chosen its partitions by itself."""

    @abstractmethod
    def transactional_producer(
        self, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> AbstractContextManager[TransactionalProducer]: ...

    def close(self) -> None:
        self.plain.close()
