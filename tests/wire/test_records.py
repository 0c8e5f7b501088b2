"""Records inside batches: round trips, hostile insides, times."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.batch import HEADER, HEADER_SIZE, BatchHeader, problem_of_batch, read_header
from penstock.wire.compression import Compression
from penstock.wire.control import read_control_record
from penstock.wire.records import (
    Record,
    RecordError,
    TimedOffset,
    build_batch,
    encode_headers,
    first_record_since,
    read_headers,
    read_records,
    record_with_max_timestamp,
    scan_area,
)

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=4)
timestamps = st.integers(0, 2**62) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=20))
    offset = draw(st.integers(0, 2**60))
    made = []
    for timestamp, key, value, record_headers in rows:
        made.append(Record(offset, timestamp, key, value, record_headers))
        offset += draw(st.integers(1, 3) | st.integers(1, 1_000_000))
    return made


def numbered(*values: bytes, timestamp: int = 1000) -> list[Record]:
    return [Record(offset, timestamp + offset, None, value) for offset, value in enumerate(values)]


# Round trips


@given(
    made=record_lists(),
    before=st.integers(0, 100),
    compression=st.sampled_from(Compression),
    transactional=st.booleans(),
    producer_id=st.integers(-1, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
)
def test_round_trip(
    made: list[Record],
    before: int,
    compression: Compression,
    transactional: bool,
    producer_id: int,
    leader_epoch: int,
) -> None:
    base_offset = max(0, made[0].offset - before)
    batch = memoryview(
        build_batch(
            made,
            base_offset=base_offset,
            compression=compression,
            transactional=transactional,
            producer_id=producer_id,
            producer_epoch=7,
            base_sequence=12,
            leader_epoch=leader_epoch,
        )
    )
    header = read_header(batch)
    assert problem_of_batch(batch, header) is None
    assert read_records(batch) == made
    assert (header.base_offset, header.last_offset) == (base_offset, made[-1].offset)
    assert (header.base_timestamp, header.max_timestamp) == (made[0].timestamp, max(r.timestamp for r in made))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, 7, 12)
    assert (header.leader_epoch, header.compression) == (leader_epoch, compression)
    assert (header.is_transactional, header.is_control) == (transactional, False)


def test_what_is_left_out_is_that_of_a_plain_producer() -> None:
    header = read_header(build_batch(numbered(b"a", b"b")))
    assert header.replace(crc=0) == BatchHeader(
        0, len(build_batch(numbered(b"a", b"b"))) - 12, -1, 2, 0, 0, 1, 1000, 1001, -1, -1, -1, 2
    )


@given(made=record_lists())
def test_log_append_time_is_the_time_of_all_records(made: list[Record]) -> None:
    batch = memoryview(build_batch(made, base_offset=made[0].offset, log_append_time=55))
    assert problem_of_batch(batch, read_header(batch)) is None
    assert read_records(batch) == [replace(record, timestamp=55) for record in made]


def test_a_batch_without_records_keeps_its_range() -> None:
    for compression in Compression:
        batch = memoryview(build_batch([], base_offset=10, last_offset_delta=4, compression=compression))
        assert (len(batch), read_header(batch).last_offset) == (HEADER_SIZE, 14)
        assert problem_of_batch(batch, read_header(batch)) is None
        assert read_records(batch) == []
        assert record_with_max_timestamp(batch) is None
        assert first_record_since(batch, 0) is None


def test_a_batch_keeps_its_range_when_its_last_records_go() -> None:
    batch = memoryview(build_batch(numbered(b"a", b"b"), last_offset_delta=9))
    assert read_header(batch).next_offset == 10
    assert read_records(batch) == numbered(b"a", b"b")


@pytest.mark.parametrize(
    ("made", "last_offset_delta"),
    [
        ([Record(1, 0), Record(1, 0)], None),
        ([Record(2, 0), Record(1, 0)], None),
        ([Record(-1, 0)], None),
        ([Record(5, 0)], 4),
        ([Record(0, 0), Record(2**31, 0)], None),
        ([Record(0, 2**63)], None),
        ([Record(0, -5), Record(1, 2**63 - 1)], None),
    ],
)
def test_records_that_fit_no_batch_are_refused(made: list[Record], last_offset_delta: int | None) -> None:
    with pytest.raises(RecordError):
        build_batch(made, last_offset_delta=last_offset_delta)


def test_extreme_numbers() -> None:
    for last in (Record(2**31 - 1, 2**63 - 1, b"", b""), Record(2**31 - 1, -(2**63))):
        assert read_records(memoryview(build_batch([Record(0, 0), last]))) == [Record(0, 0), last]


def test_large_values() -> None:
    made = [Record(0, 1, b"k" * 70_000, b"v" * 3_000_000, [("h" * 300, b"x" * 20_000)])]
    for compression in Compression:
        assert read_records(memoryview(build_batch(made, compression=compression))) == made


@given(headers)
def test_headers_round_trip(made: list[tuple[str, bytes | None]]) -> None:
    encoded = encode_headers(made)
    assert read_headers(encoded or b"\0", 0) == made
    assert read_headers(memoryview(b"junk" + (encoded or b"\0")), 4) == made


def test_a_header_name_that_is_not_utf8_is_read_with_marks_in_it() -> None:
    batch = build_batch([Record(0, 0, headers=[("name", b"x")])]).replace(b"name", b"na\xffe")
    assert read_records(memoryview(batch))[0].headers == [("na\ufffde", b"x")]


# Times


def test_first_record_since_and_the_newest() -> None:
    made = [Record(10, 500), Record(11, 300), Record(14, 900), Record(15, 900), Record(16, 100)]
    for compression in Compression:
        batch = memoryview(build_batch(made, base_offset=10, compression=compression))
        assert first_record_since(batch, 0) == TimedOffset(10, 500)
        assert first_record_since(batch, 501) == TimedOffset(14, 900)
        assert first_record_since(batch, 900) == TimedOffset(14, 900)
        assert first_record_since(batch, 901) is None
        assert record_with_max_timestamp(batch) == TimedOffset(14, 900)


def test_times_of_a_log_append_time_batch() -> None:
    batch = memoryview(build_batch(numbered(b"a", b"b"), log_append_time=77))
    assert first_record_since(batch, 77) == TimedOffset(0, 77)
    assert first_record_since(batch, 78) is None
    assert record_with_max_timestamp(batch) == TimedOffset(0, 77)


@given(made=record_lists(), timestamp=timestamps)
def test_times_agree_with_a_search_over_records(made: list[Record], timestamp: int) -> None:
    batch = memoryview(build_batch(made, base_offset=made[0].offset))
    found = next((TimedOffset(r.offset, r.timestamp) for r in made if r.timestamp >= timestamp), None)
    assert first_record_since(batch, timestamp) == found
    newest = max(made, key=lambda record: record.timestamp)
    assert record_with_max_timestamp(batch) == TimedOffset(newest.offset, newest.timestamp)


# Hostile insides


def with_header(batch: bytes, **fields: int) -> memoryview:
    return memoryview(HEADER.pack(*read_header(batch).replace(**fields)) + batch[HEADER_SIZE:])


def test_a_lying_count_is_refused_and_takes_no_memory() -> None:
    batch = build_batch(numbered(b"a", b"b", b"c"))
    for count in (-1, 0, 1, 2, 4, 1000, 2**31 - 1):
        tracemalloc.start()
        with pytest.raises(RecordError):
            read_records(with_header(batch, record_count=count))
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 1},
        {"length": 10},
        {"length": 1_000_000},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"attributes": 5},
        {"attributes": 7},
        {"attributes": 1},
        {"base_timestamp": 2**63 - 2},
    ],
    ids=str,
)
def test_a_lying_header_is_refused(fields: dict[str, int]) -> None:
    made = [Record(offset, offset, None, b"x") for offset in range(3)]
    with pytest.raises(RecordError):
        read_records(with_header(build_batch(made), **fields))


@pytest.mark.parametrize("count", [-1, 2, 2**40])
def test_a_count_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(RecordError, match="cannot hold"):
        scan_area(bytes.fromhex("0c 00 00 00 01 01 00"), count)


def test_offsets_that_do_not_ascend_are_refused() -> None:
    area = bytes.fromhex("0c 00 00 04 01 01 00") * 2
    with pytest.raises(RecordError, match="an offset delta of 2 after 2"):
        scan_area(area, 2)


@pytest.mark.parametrize("compression", Compression)
def test_every_truncation_is_refused(compression: Compression) -> None:
    made = [Record(offset, 0, b"key", b"value", [("h", b"v"), ("n", None)]) for offset in range(3)]
    whole = build_batch(made, compression=compression)
    for size in range(len(whole)):
        with pytest.raises(RecordError):
            read_records(memoryview(whole)[:size])
        if size >= HEADER_SIZE:
            with pytest.raises(RecordError):
                read_records(with_header(whole[:size], length=size - 12))


@settings(max_examples=150)
@given(made=record_lists(), compression=st.sampled_from(Compression), data=st.data())
def test_damage_is_refused_or_read(made: list[Record], compression: Compression, data: st.DataObject) -> None:
    batch = bytearray(build_batch(made, base_offset=made[0].offset, compression=compression))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for read in (read_records, record_with_max_timestamp, read_control_record):
        try:
            read(memoryview(batch))
        except RecordError:
            pass


def test_a_bomb_inside_a_batch_is_refused() -> None:
    for compression in list(Compression)[1:]:
        batch = memoryview(build_batch([Record(0, 0, None, bytes(5_000_000))], compression=compression))
        assert len(batch) < 300_000
        with pytest.raises(RecordError):
            read_records(batch, size_bytes_max=1_000_000)
