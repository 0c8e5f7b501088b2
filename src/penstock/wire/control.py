"""Control records: the markers that end a transaction in a partition, one in a batch of its own.

key:   version 2 | type 2        value: version 2 | coordinator epoch 4
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from penstock.wire.batch import CONTROL, HEADER_SIZE, read_header
from penstock.wire.records import Record, RecordError, build_batch, read_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """What a control record says; readers pass over types that they do not know."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1

    @classmethod
    def _missing_(cls, value: object) -> ControlType:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """The end of a transaction, as the coordinator of this epoch decided it (-1 where the type is unknown)."""

    offset: int
    timestamp: int
    type: ControlType
    coordinator_epoch: int


def build_control_batch(
    type: ControlType,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The batch with the marker that ends a producer's transaction."""
    if type is ControlType.UNKNOWN:
        raise ValueError("a marker is a commit or an abort")
    key = _KEY.pack(_VERSION, type)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_control_record(batch: memoryview) -> ControlRecord:
    """The one record of a control batch. Later versions may add fields behind those that we know."""
    if len(batch) < HEADER_SIZE or not read_header(batch).attributes & CONTROL:
        raise RecordError("not a control batch")
    records = read_records(batch)
    if len(records) != 1:
        raise RecordError(f"a control batch with {len(records)} records")
    record = records[0]
    if record.key is None or len(record.key) < _KEY.size:
        raise RecordError("a control record without a whole key")
    version, type_number = _KEY.unpack_from(record.key)
    if version < 0:
        raise RecordError(f"a control record of version {version}")
    type = ControlType(type_number)
    if type is ControlType.UNKNOWN:
        return ControlRecord(record.offset, record.timestamp, type, -1)
    if record.value is None or len(record.value) < _VALUE.size:
        raise RecordError("a control record without a whole value")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise RecordError(f"a control record of version {version}")
    return ControlRecord(record.offset, record.timestamp, type, coordinator_epoch)
