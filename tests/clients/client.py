"""What a scenario may ask of a client, whichever it is. One adapter per client translates; what a client cannot do is
said in its attributes, and the scenario is skipped for it.

`Producer` and `Reader` are one real producer and one real consumer with partitions assigned by hand. Waiting has a
deadline everywhere, and nothing sleeps.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

DEADLINE_S = 40.0
BEGINNING = "beginning"
END = "end"
#: Larger than any message here, so that the broker's limit is met and not the client's.
MESSAGE_BYTES_MAX = 16_000_000
#: As many as the broker makes by default: one where it is alone.
DEFAULT_REPLICAS = -1

Start = int | str | Mapping[int, int]
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One message, to be sent or as it was read."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    offset: int = field(default=-1, compare=False)
    topic: str = field(default="", compare=False)
    #: 0: the producer's time, 1: the broker's, None: the client does not say.
    timestamp_type: int | None = field(default=None, compare=False)

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


class Refused(Exception):
    """The broker refused; `code` is Kafka's error code, -1 where the client does not say which."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code


#: Called once per message: with its partition and offset (-1 where the client does not know), or with what went wrong.
OnDone = Callable[[int, int, Exception | None], None]


class Producer(ABC):
    """A producer that stays connected."""

    @abstractmethod
    def send(self, topic: str, message: Message, on_done: OnDone) -> None:
        """Hand over one message; `on_done` may be called from another thread."""

    @abstractmethod
    def flush(self, timeout_s: float = DEADLINE_S) -> None:
        """Wait until every message has been answered."""


class Reader(ABC):
    """A consumer of chosen partitions of one topic."""

    def __init__(self) -> None:
        self._kept: list[Message] = []

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Message]:
        """What has come; waits for the first message at most this long."""

    @abstractmethod
    def seek(self, partition: int, offset: int) -> None:
        """Go on reading a partition from this offset."""

    def read(self, count: int, timeout_s: float = DEADLINE_S) -> list[Message]:
        """The next `count` messages; fails if they have not come in time. More than that are kept for the next call."""
        deadline_s = time.monotonic() + timeout_s
        while len(self._kept) < count:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{len(self._kept)} of {count} messages came within {timeout_s} s"
            self._kept += self.poll(left_s)
        messages, self._kept = self._kept[:count], self._kept[count:]
        return messages

    def drop_kept(self) -> None:
        """Forget what came and was not asked for yet; after a seek."""
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What a consumer may set about its fetches; None leaves the client's default."""

    min_bytes: int | None = None
    max_wait_ms: int | None = None
    max_partition_bytes: int | None = None


DEFAULT_FETCH = FetchOptions()


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """What a client says about the cluster."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, tuple[str, int]]


class Admin(ABC):
    """The admin calls; each raises Refused with the broker's error."""

    @abstractmethod
    def create_topics(self, topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> None:
        """Create topics with these numbers of partitions, all with the same settings."""

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def list_topics(self) -> set[str]: ...

    @abstractmethod
    def partitions_of(self, name: str) -> dict[int, tuple[int, list[int], list[int]]]:
        """Describe a topic: partition to (leader, replicas, ISR)."""

    @abstractmethod
    def create_partitions(self, name: str, total: int) -> None: ...

    @abstractmethod
    def topic_configs(self, name: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_topic_config(self, name: str, config: str, value: str) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete what lies before the offset; gives the partition's new first offset."""

    @abstractmethod
    def describe_cluster(self) -> ClusterSeen: ...


class Client(ABC):
    """One client library (or program) with a broker to talk to."""

    name: str
    compressions: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    sets_timestamps = True
    writes_null_headers = True
    reads_null_headers = True
    has_admin = True
    #: Does a reader that knew a topic find the one that was created later with the same name?
    follows_new_topics = True
    knows_offsets = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def producer(
        self, *, acks: str = "all", compression: str = "none", idempotent: bool = False, **options: Any
    ) -> AbstractContextManager[Producer]:
        """A connected producer; keys choose partitions by murmur2."""

    @abstractmethod
    def reader(
        self,
        topic: str,
        partitions: Sequence[int] = (0,),
        start: Start = BEGINNING,
        *,
        reset: str = "earliest",
        committed_only: bool = False,
        fetch: FetchOptions = DEFAULT_FETCH,
    ) -> AbstractContextManager[Reader]:
        """A consumer of these partitions that reads from `start`, and from `reset` if that offset does not exist."""

    @abstractmethod
    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset, and the one after the last."""

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this timestamp or a later one; None if there is none."""

    def admin(self) -> AbstractContextManager[Admin]:
        raise NotImplementedError(f"{self.name} has no admin calls")

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
        **options: Any,
    ) -> list[tuple[int, int]]:
        """Send messages and wait for all the answers: (partition, offset) of each. Raises the first error."""
        answers: dict[int, tuple[int, int]] = {}
        errors: list[Exception] = []

        def done(number: int, partition: int, offset: int, error: Exception | None) -> None:
            if error is not None:
                errors.append(error)
            answers[number] = (partition, offset)

        number = -1
        with self.producer(acks=acks, compression=compression, idempotent=idempotent, **options) as producer:
            for number, message in enumerate(messages):
                producer.send(topic, message, lambda *answer, number=number: done(number, *answer))
            producer.flush()
        if errors:
            raise errors[0]
        return [answers[index] for index in range(number + 1)]

    def consume(
        self, topic: str, count: int, partitions: Sequence[int] = (0,), start: Start = BEGINNING, **options: Any
    ) -> list[Message]:
        """Read this many messages and leave."""
        with self.reader(topic, partitions, start, **options) as reader:
            return reader.read(count)

    def close(self) -> None:  # noqa: B027
        """Give back what the client holds; most hold nothing."""
