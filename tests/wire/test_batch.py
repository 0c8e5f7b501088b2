"""Batch headers: reading, verifying, what a producer may send, and what the leader fills in."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.wire.batch import (
    ATTRIBUTES_OFFSET,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    check_produced_batch,
    each_batch,
    problem_of_batch,
    read_header,
    stamp,
    stamp_append_time,
)
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch, read_records

RECORDS = [Record(0, 1000, b"k", b"v"), Record(1, 1005, None, b"w")]
BATCH = build_batch(RECORDS)


def forged(batch: bytes = BATCH, **fields: int) -> memoryview:
    """The batch with other header fields and, unless that is one of them, a checksum that matches."""
    header = HEADER.pack(*read_header(batch).replace(**fields))
    if "crc" not in fields:
        crc = crc32c(header[ATTRIBUTES_OFFSET:] + batch[HEADER_SIZE:])
        header = HEADER.pack(*read_header(header).replace(crc=crc))
    return memoryview(header + batch[HEADER_SIZE:])


def header_of(**fields: int) -> BatchHeader:
    return read_header(BATCH).replace(**fields)


def test_read_header_at_a_position() -> None:
    assert read_header(b"before" + BATCH, 6) == read_header(BATCH)
    assert read_header(BATCH).size_bytes == len(BATCH)


def test_offsets_of_a_header() -> None:
    header = header_of(base_offset=10, last_offset_delta=4)
    assert (header.last_offset, header.next_offset) == (14, 15)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last"),
    [(-1, 5, -1), (0, 0, 0), (7, 2, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 3, 1)],
)
def test_sequences_wrap(base_sequence: int, last_offset_delta: int, last: int) -> None:
    header = header_of(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("compression", Compression)
def test_flags_of_a_header(compression: Compression) -> None:
    header = read_header(build_batch(RECORDS, compression=compression, transactional=True, producer_id=4))
    assert (header.compression, header.is_transactional, header.is_control) == (compression, True, False)
    assert header.has_producer
    assert not read_header(BATCH).has_producer
    assert read_header(build_batch(RECORDS, control=True)).is_control


def test_a_sound_batch_has_no_problem() -> None:
    assert problem_of_batch(memoryview(BATCH), read_header(BATCH)) is None
    assert check_produced_batch(memoryview(BATCH)) == read_header(BATCH)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (forged(magic=1), "magic is 1"),
        (forged(length=9), "says it has 21 bytes"),
        (forged(record_count=-1), "negative count"),
        (forged(last_offset_delta=-1), "negative count"),
        (forged(crc=5), "checksum"),
        (memoryview(BATCH)[:-1], "says it has"),
        (memoryview(BATCH + b"x"), "says it has"),
    ],
)
def test_problems_of_a_batch(batch: memoryview, problem: str) -> None:
    found = problem_of_batch(batch, read_header(batch))
    assert found is not None
    assert problem in found


@given(position=st.integers(ATTRIBUTES_OFFSET, len(BATCH) - 1), flip=st.integers(1, 255))
def test_the_checksum_sees_every_changed_byte(position: int, flip: int) -> None:
    batch = bytearray(BATCH)
    batch[position] ^= flip
    assert problem_of_batch(memoryview(batch), read_header(batch)) is not None
    with pytest.raises(ApiError) as caught:
        check_produced_batch(memoryview(batch))
    assert caught.value.error is Error.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (memoryview(b""), Error.INVALID_RECORD),
        (memoryview(BATCH)[: HEADER_SIZE - 1], Error.INVALID_RECORD),
        (memoryview(bytes(16) + b"\1" + bytes(20)), Error.INVALID_RECORD),
        (forged(magic=0), Error.INVALID_RECORD),
        (forged(magic=1), Error.INVALID_RECORD),
        (forged(magic=3), Error.CORRUPT_MESSAGE),
        (forged(magic=-1), Error.CORRUPT_MESSAGE),
        (memoryview(BATCH)[:-1], Error.INVALID_RECORD),
        (memoryview(BATCH + BATCH), Error.INVALID_RECORD),
        (forged(length=-12), Error.CORRUPT_MESSAGE),
        (forged(length=-(2**31)), Error.CORRUPT_MESSAGE),
        (forged(length=2**31 - 1), Error.INVALID_RECORD),
        (forged(crc=1), Error.CORRUPT_MESSAGE),
        (forged(record_count=0), Error.INVALID_RECORD),
        (forged(record_count=0, last_offset_delta=-1), Error.INVALID_RECORD),
        (forged(record_count=-5, last_offset_delta=-6), Error.INVALID_RECORD),
        (forged(record_count=3), Error.INVALID_RECORD),
        (forged(last_offset_delta=2), Error.INVALID_RECORD),
        (forged(attributes=5), Error.UNSUPPORTED_COMPRESSION_TYPE),
        (forged(attributes=7), Error.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_what_a_producer_may_not_send(batch: memoryview, error: Error) -> None:
    with pytest.raises(ApiError) as caught:
        check_produced_batch(batch)
    assert caught.value.error is error


def test_stamping_offset_and_epoch_leaves_the_checksum_right() -> None:
    batch = memoryview(bytearray(BATCH))
    stamp(batch, 77, 5)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (77, 5)
    assert problem_of_batch(batch, header) is None
    assert [record.offset for record in read_records(batch)] == [77, 78]


def test_stamping_the_append_time() -> None:
    batch = memoryview(bytearray(BATCH))
    header = stamp_append_time(batch, read_header(batch), 9_999)
    assert header == read_header(batch)
    assert header.attributes == LOG_APPEND_TIME
    assert problem_of_batch(batch, header) is None
    assert [record.timestamp for record in read_records(batch)] == [9_999, 9_999]


def test_each_batch_stops_before_an_incomplete_one() -> None:
    second = build_batch([Record(2, 5, b"x", b"y")], base_offset=2)
    buffer = memoryview(BATCH + second)
    assert [bytes(batch) for _, batch in each_batch(buffer)] == [BATCH, second]
    for size in range(len(buffer)):
        whole = [bytes(batch) for _, batch in each_batch(buffer[:size])]
        assert whole == ([BATCH] if size >= len(BATCH) else [])


@pytest.mark.parametrize("length", [-(2**31), -12, 0, HEADER_SIZE - 13])
def test_each_batch_stops_at_an_impossible_length(length: int) -> None:
    assert list(each_batch(memoryview(bytes(forged(length=length)) * 2))) == []
