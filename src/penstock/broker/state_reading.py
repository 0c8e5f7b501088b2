"""What the log of a shard says, for replaying it: the records of its batches, and the ends of transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.steps import ProducerEpoch, StateRecord
from penstock.log.partition_log import PartitionLog
from penstock.log.scan import walk_batches
from penstock.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.records import RecordError, read_records
from penstock.wire.schema import ProtocolError
from penstock.wire.state_records import StateCodec

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20  # read and decoded at a time


class StoredMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer: ProducerEpoch
    is_commit: bool


class Stored(NamedTuple):
    """One thing to replay: a record, possibly of an open transaction, or the end of one."""

    offset: int
    content: StateRecord | StoredMarker
    producer: ProducerEpoch | None


def read_stored(log: PartitionLog, offset: int, end_offset: int, codec: StateCodec) -> tuple[int, list[Stored]]:
    """What some batches say, and the offset after them. Blocks; runs in another thread."""
    found = log.read(offset, READ_BYTES, end_offset=end_offset)
    if not found.size_bytes:
        return end_offset, []
    stored: list[Stored] = []
    for _, header, batch in walk_batches(found.file, found.position, found.position + found.size_bytes):
        offset = max(offset, header.next_offset)
        try:
            stored += _contents(header, batch, codec)
        except (RecordError, ProtocolError) as problem:
            logger.error("%s: the batch at offset %d is passed over: %s", found.file.path, header.base_offset, problem)
    return offset, stored


def _contents(header: BatchHeader, batch: memoryview, codec: StateCodec) -> Iterator[Stored]:
    producer = ProducerEpoch(header.producer_id, header.producer_epoch)
    if header.attributes & CONTROL:
        control = read_control_record(batch)
        if control.type is not ControlType.UNKNOWN:
            yield Stored(control.offset, StoredMarker(producer, control.type is ControlType.COMMIT), None)
        return
    for record in read_records(batch):
        decoded = codec.decode(record.key, record.value)
        if decoded is not None:
            yield Stored(record.offset, decoded, producer if header.attributes & TRANSACTIONAL else None)
