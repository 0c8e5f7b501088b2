"""Control records: the markers that end transactions, and control records that are broken or newer than we."""

from __future__ import annotations

import pytest

from penstock.wire.batch import problem_of_batch, read_header
from penstock.wire.control import ControlRecord, ControlType, build_control_batch, read_control_record
from penstock.wire.records import Record, RecordError, build_batch, read_records


@pytest.mark.parametrize("type", [ControlType.COMMIT, ControlType.ABORT])
def test_control_records(type: ControlType) -> None:
    batch = memoryview(
        build_control_batch(
            type,
            timestamp=123,
            producer_id=9,
            producer_epoch=2,
            coordinator_epoch=31,
            base_offset=40,
            leader_epoch=3,
        )
    )
    header = read_header(batch)
    assert problem_of_batch(batch, header) is None
    assert header.is_control and header.is_transactional
    assert (header.base_sequence, header.producer_id, header.producer_epoch, header.leader_epoch) == (-1, 9, 2, 3)
    assert read_control_record(batch) == ControlRecord(40, 123, type, 31)
    assert read_records(batch)[0].key == bytes((0, 0, 0, type))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_broken_control_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordError):
        read_control_record(memoryview(build_batch([Record(0, 0, key, value)], control=True)))


def test_control_records_of_later_kinds_are_read() -> None:
    batch = build_batch([Record(3, 4, b"\0\0\0\5", b"")], base_offset=3, control=True)
    assert read_control_record(memoryview(batch)) == ControlRecord(3, 4, ControlType.UNKNOWN, -1)
    batch = build_batch([Record(3, 4, b"\0\1\0\1later", b"\0\1\0\0\0\7later")], base_offset=3, control=True)
    assert read_control_record(memoryview(batch)) == ControlRecord(3, 4, ControlType.COMMIT, 7)


def test_only_a_control_batch_with_one_record_is_one() -> None:
    with pytest.raises(RecordError):
        read_control_record(memoryview(build_batch([Record(0, 0)])))
    with pytest.raises(RecordError):
        read_control_record(memoryview(build_batch([Record(0, 0), Record(1, 0)], control=True)))
    with pytest.raises(RecordError):
        read_control_record(memoryview(b""))
    with pytest.raises(ValueError):
        build_control_batch(
            ControlType.UNKNOWN, timestamp=0, producer_id=0, producer_epoch=0, coordinator_epoch=0, base_offset=0
        )
