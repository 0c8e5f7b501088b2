"""The header of a record batch (format version 2), which is all that the broker looks at.

    base offset 8 | length 4 | partition leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | record count 4 | records…

The CRC (Castagnoli) covers everything from the attributes to the end; base offset and leader epoch lie before it, so
the broker fills them in without touching the rest. A batch whose inside lies harms only its readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from penstock.base.crc import crc32c
from penstock.wire._batch import ATTRIBUTES_OFFSET as ATTRIBUTES_OFFSET
from penstock.wire._batch import COMPRESSION_MASK as COMPRESSION_MASK
from penstock.wire._batch import COMPRESSION_MAX as COMPRESSION_MAX
from penstock.wire._batch import CONTROL as CONTROL
from penstock.wire._batch import HEADER as HEADER
from penstock.wire._batch import HEADER_SIZE as HEADER_SIZE
from penstock.wire._batch import LOG_OVERHEAD as LOG_OVERHEAD
from penstock.wire._batch import MAGIC as MAGIC
from penstock.wire._batch import NO_PRODUCER_ID as NO_PRODUCER_ID
from penstock.wire._batch import NO_SEQUENCE as NO_SEQUENCE
from penstock.wire._batch import TRANSACTIONAL as TRANSACTIONAL
from penstock.wire._batch import BatchHeader as BatchHeader
from penstock.wire._batch import check_produced_batch as check_produced_batch
from penstock.wire._batch import read_header as read_header
from penstock.wire._batch import stamp as stamp

LENGTH_OFFSET = 8  # the length field counts the bytes after itself
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
MAX_TIMESTAMP_OFFSET = 35

LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40
NO_TIMESTAMP = -1

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")


def problem_of_batch(batch: memoryview, header: BatchHeader) -> str | None:
    """What is wrong with one whole batch (its bytes and nothing after them), or None."""
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if header.length + LOG_OVERHEAD != len(batch):
        return f"the batch says it has {header.length + LOG_OVERHEAD} bytes, there are {len(batch)}"
    if header.record_count < 0 or header.last_offset_delta < 0:
        return f"negative count: {header.record_count} records, last offset delta {header.last_offset_delta}"
    if crc32c(batch[ATTRIBUTES_OFFSET:]) != header.crc:
        return "the checksum does not match"
    return None


def stamp_append_time(batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Mark the batch as having been given its time by the log (LogAppendTime), in place."""
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_OFFSET, attributes)
    _TIMESTAMP.pack_into(batch, MAX_TIMESTAMP_OFFSET, now_ms)
    crc = crc32c(batch[ATTRIBUTES_OFFSET:])
    _CRC.pack_into(batch, CRC_OFFSET, crc)
    return header.replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def each_batch(buffer: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches of a buffer, in order; stops before an incomplete one or one with an impossible length."""
    position = 0
    while len(buffer) - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        end = position + header.length + LOG_OVERHEAD
        if header.length + LOG_OVERHEAD < HEADER_SIZE or end > len(buffer):
            return
        yield header, buffer[position:end]
        position = end
