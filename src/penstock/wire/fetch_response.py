"""The Fetch response, written by hand: its records stay in their files and only their sizes are written here.

`encode_fetch_response` returns the parts of the frame in order, bytes and ranges, for the connection to send. A test
holds it equal, byte for byte, to what the declared `FetchResponse` encodes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.base.errors import Error
from penstock.wire.varint import write_varint

FLEXIBLE_SINCE = 12
TOPIC_IDS_SINCE = 13
ENDPOINTS_SINCE = 16

_I16 = Struct(">h")
_I32 = Struct(">i")
_V4 = Struct(">ihqq")
_V5 = Struct(">ihqqq")
_SESSION = Struct(">ihi")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")
_ABORTED = Struct(">qq")


class Sized(Protocol):
    """Records that are somewhere else."""

    @property
    def size_bytes(self) -> int: ...


R = TypeVar("R", bound=Sized)


@dataclass(slots=True)
class PartitionAnswer(Generic[R]):
    """What a fetch answers for one partition."""

    index: int
    error: Error = Error.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: tuple[int, int] | None = None  # (epoch, end offset)
    current_leader: tuple[int, int] | None = None  # (node, epoch)
    aborted: list[tuple[int, int]] | None = None  # (producer id, first offset)
    preferred_read_replica: int = -1
    records: R | None = None


class EndpointAnswer(NamedTuple):
    """Where a leader is that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class TopicAnswer(Generic[R]):
    """What a fetch answers for one topic: `name` up to version 12, `topic_id` from 13 on."""

    name: str
    topic_id: UUID
    partitions: list[PartitionAnswer[R]]


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicAnswer[R]],
    *,
    throttle_ms: int = 0,
    error: Error = Error.NONE,
    session_id: int = 0,
    endpoints: Sequence[EndpointAnswer] = (),
) -> list[bytearray | R]:
    """The whole frame, size prefix included, as the parts to send in order."""
    writer: _Writer[R] = _Writer(version, correlation_id)
    writer.head(throttle_ms, error, session_id, len(topics))
    for topic in topics:
        writer.topic(topic)
    return writer.finish(endpoints)


class _Writer(Generic[R]):
    """Collects the parts; a range of records begins a new one."""

    def __init__(self, version: int, correlation_id: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE_SINCE
        self.out = bytearray(4)
        self.parts: list[bytearray | R] = [self.out]
        self.record_bytes = 0
        self.out += _I32.pack(correlation_id)
        if self.flexible:
            self.out.append(0)

    def head(self, throttle_ms: int, error: Error, session_id: int, topic_count: int) -> None:
        if self.version >= 7:
            self.out += _SESSION.pack(throttle_ms, error, session_id)
        else:
            self.out += _I32.pack(throttle_ms)
        self.count(topic_count)

    def count(self, count: int) -> None:
        if self.flexible:
            self.varint(count + 1)
        else:
            self.out += _I32.pack(count)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def topic(self, topic: TopicAnswer[R]) -> None:
        if self.version >= TOPIC_IDS_SINCE:
            self.out += topic.topic_id.bytes
        else:
            name = topic.name.encode()
            if self.flexible:
                self.varint(len(name) + 1)
            else:
                self.out += _I16.pack(len(name))
            self.out += name
        self.count(len(topic.partitions))
        for partition in topic.partitions:
            self.partition(partition)
        if self.flexible:
            self.out.append(0)

    def partition(self, answer: PartitionAnswer[R]) -> None:
        high_watermark, stable = answer.high_watermark, answer.last_stable_offset
        if self.version >= 5:
            self.out += _V5.pack(answer.index, answer.error, high_watermark, stable, answer.log_start_offset)
        else:
            self.out += _V4.pack(answer.index, answer.error, high_watermark, stable)
        self.aborted(answer.aborted)
        if self.version >= 11:
            self.out += _I32.pack(answer.preferred_read_replica)
        self.records(answer.records)
        if self.flexible:
            self.tags(answer)

    def aborted(self, aborted: list[tuple[int, int]] | None) -> None:
        if aborted is None:
            self.out += b"\0" if self.flexible else b"\xff\xff\xff\xff"
            return
        self.count(len(aborted))
        for producer_id, first_offset in aborted:
            self.out += _ABORTED.pack(producer_id, first_offset)
            if self.flexible:
                self.out.append(0)

    def records(self, records: R | None) -> None:
        size_bytes = records.size_bytes if records is not None else 0
        if self.flexible:
            self.varint(size_bytes + 1)
        else:
            self.out += _I32.pack(size_bytes)
        if records is not None and size_bytes:
            self.record_bytes += size_bytes
            self.out = bytearray()
            self.parts += (records, self.out)

    def tags(self, answer: PartitionAnswer[R]) -> None:
        tagged = []
        if answer.diverging is not None:
            tagged.append((0, _EPOCH_END.pack(*answer.diverging) + b"\0"))
        if answer.current_leader is not None:
            tagged.append((1, _LEADER.pack(*answer.current_leader) + b"\0"))
        self.varint(len(tagged))
        for tag, content in tagged:
            self.varint(tag)
            self.varint(len(content))
            self.out += content

    def endpoints(self, endpoints: Sequence[EndpointAnswer]) -> None:
        """The one tagged field of the whole response."""
        rows = bytearray()
        write_varint(rows, len(endpoints) + 1)
        for endpoint in endpoints:
            rows += _I32.pack(endpoint.node_id) + _text(endpoint.host) + _I32.pack(endpoint.port)
            rows += b"\0" if endpoint.rack is None else _text(endpoint.rack)
            rows.append(0)
        self.out += b"\1\0"
        self.varint(len(rows))
        self.out += rows

    def finish(self, endpoints: Sequence[EndpointAnswer]) -> list[bytearray | R]:
        if endpoints and self.version >= ENDPOINTS_SINCE:
            self.endpoints(endpoints)
        elif self.flexible:
            self.out.append(0)
        size_bytes = sum(len(part) for part in self.parts if isinstance(part, bytearray)) + self.record_bytes - 4
        first = self.parts[0]
        assert isinstance(first, bytearray)
        _I32.pack_into(first, 0, size_bytes)
        if not self.out:
            self.parts.pop()
        return self.parts


def _text(text: str) -> bytearray:
    content = text.encode()
    out = bytearray()
    write_varint(out, len(content) + 1)
    return out + content
