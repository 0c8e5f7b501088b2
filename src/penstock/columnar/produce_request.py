"""A Produce request as a list of buffers: the records stay where they are, only what stands between them is written.

A message object would be encoded into one fresh buffer; with a megabyte of records per partition, copying them is most
of the work of a request. So the request is written down here by hand, for versions 3 to 12. The buffers together are
what stands behind the request's header; a socket takes them in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.base.world import Buffer
from penstock.wire.varint import write_varint

VERSIONS = range(3, 13)  # before 3 there are no record batches, from 13 on topics have ids instead of names
FLEXIBLE_SINCE = 9

_ACKS_AND_TIMEOUT = Struct(">hi")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NULL = -1


class PartitionRecords(NamedTuple):
    """One batch for one partition: its header and its records."""

    partition: int
    header: bytes
    records: memoryview


def produce_parts(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Mapping[str, Sequence[PartitionRecords]],
) -> list[Buffer]:
    """The request's buffers, in order."""
    assert version in VERSIONS
    writer = _Writer(is_flexible=version >= FLEXIBLE_SINCE)
    writer.string(transactional_id)
    writer.between += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    writer.count(len(topics))
    for topic, rows in topics.items():
        writer.string(topic)
        writer.count(len(rows))
        writer.partitions(rows)
        writer.end_of_structure()
    writer.end_of_structure()
    return writer.finish()


class _Writer:
    """What stands between the records gathers in `between`, until records come."""

    def __init__(self, *, is_flexible: bool) -> None:
        self.between = bytearray()
        self._is_flexible = is_flexible
        self._parts: list[Buffer] = []

    def string(self, text: str | None) -> None:
        """May be null."""
        encoded = b"" if text is None else text.encode()
        if self._is_flexible:
            write_varint(self.between, 0 if text is None else len(encoded) + 1)
        else:
            self.between += _INT16.pack(_NULL if text is None else len(encoded))
        self.between += encoded

    def count(self, count: int) -> None:
        """Of an array, or of the bytes of a batch."""
        if self._is_flexible:
            write_varint(self.between, count + 1)
        else:
            self.between += _INT32.pack(count)

    def partitions(self, rows: Iterable[PartitionRecords]) -> None:
        for row in rows:
            self.between += _INT32.pack(row.partition)
            self.count(len(row.header) + len(row.records))
            self.between += row.header
            self._parts += (self.between, row.records)
            self.between = bytearray()
            self.end_of_structure()

    def end_of_structure(self) -> None:
        """No tagged fields."""
        if self._is_flexible:
            self.between.append(0)

    def finish(self) -> list[Buffer]:
        if self.between:
            self._parts.append(self.between)
        return self._parts
