"""The loops from records to columns: compiled and plain agree, and neither steps outside its buffers."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.crc import crc32c
from penstock.columnar import _columns
from penstock.wire.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER_SIZE, read_header
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch

from .loop_pairs import (
    Pair,
    int32_columns,
    int64,
    ints,
    is_as_new_as_its_source,
    longs,
    outcome,
    small,
    some_bytes,
)

PAIR = Pair(_columns)
agree = PAIR.agree


def test_the_plain_loops_are_plain() -> None:
    assert not PAIR.plain.is_compiled()


@pytest.mark.skipif(not _columns.is_compiled(), reason="no compiler was here")
def test_the_compiled_loops_are_not_older_than_their_source() -> None:
    assert is_as_new_as_its_source(_columns), "build again: python setup.py build_ext --inplace"


@settings(max_examples=200)
@given(
    area=some_bytes,
    start=int32_columns,
    length=int32_columns,
    numbers=st.tuples(small, small, small),
    offsets=int32_columns,
    data=some_bytes,
    validity=some_bytes,
)
def test_gather_agrees_on_anything(
    area: bytes,
    start: list[int],
    length: list[int],
    numbers: tuple[int, int, int],
    offsets: list[int],
    data: bytes,
    validity: bytes,
) -> None:
    agree(
        "gather",
        lambda: [area, ints(start), ints(length), *numbers, ints(offsets), bytearray(data), bytearray(validity)],
    )


@given(length=int32_columns, first=small, last=small)
def test_total_length_agrees_on_anything(length: list[int], first: int, last: int) -> None:
    agree("total_length", lambda: [ints(length), first, last])


@given(
    columns=st.tuples(*[int32_columns] * 4),
    first=small,
    last=small,
    chosen=st.tuples(*[st.booleans()] * 3),
    room=int64,
)
def test_rows_within_agrees_on_anything(
    columns: tuple[list[int], ...], first: int, last: int, chosen: tuple[bool, ...], room: int
) -> None:
    room = max(room, -(2**62))  # so that nothing overflows
    agree("rows_within", lambda: [*map(ints, columns), first, last, *chosen, room])


def row_columns(rows: int) -> list[memoryview]:
    longs_of_rows = [memoryview(longs([9] * rows)) for _ in range(2)]
    return [*longs_of_rows, *(memoryview(ints([9] * rows)) for _ in range(8))]


timestamps = st.integers(-1, 2**41) | int64


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Some batches, sound and not."""
    made = bytearray()
    for count in draw(st.lists(st.integers(0, 4), max_size=4)):
        offset = draw(st.integers(0, 50))
        base = draw(st.integers(0, 2**41))
        rows = [Record(offset + index, base + draw(small), b"k" * index, None, [("h", b"x")]) for index in range(count)]
        batch = bytearray(
            build_batch(
                rows,
                base_offset=offset,
                compression=draw(st.sampled_from([Compression.NONE] * 9 + [Compression.LZ4])),
                transactional=draw(st.booleans()),
                control=draw(st.booleans()),
                log_append_time=draw(st.none() | timestamps),
            )
        )
        if draw(st.booleans()):
            batch[draw(st.integers(0, len(batch) - 1))] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            if draw(st.booleans()):
                checksum = crc32c(bytes(batch[ATTRIBUTES_OFFSET:]))
                batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = checksum.to_bytes(4, "big")
        made += batch
    return bytes(made)


@settings(max_examples=200)
@given(
    data=batches(),
    position=st.just(0) | small,
    start=st.integers(-1, 60),
    end=st.integers(-1, 60),
    look=st.booleans(),
    rows=st.integers(0, 16),
)
def test_scan_batches_agrees_on_anything(
    data: bytes, position: int, start: int, end: int, look: bool, rows: int
) -> None:
    results = []
    for loops in (PAIR.built, PAIR.plain):
        reached, columns = longs([0, 0]), row_columns(rows)
        call = partial(loops.scan_batches, memoryview(data), data, position, start, end, look, reached, *columns)
        found = outcome(call)
        results.append((found, reached, [list(column[: reached[1]]) for column in columns]))
    assert results[0] == results[1]


@given(
    data=batches(), begin=st.just(HEADER_SIZE) | small, beyond=st.just(0) | small, row=small, rows=st.integers(0, 16)
)
def test_scan_batch_agrees_on_anything(data: bytes, begin: int, beyond: int, row: int, rows: int) -> None:
    if len(data) >= HEADER_SIZE:
        header = read_header(data)
        limit = min(len(data), max(header.size_bytes, 0)) + beyond
        agree("scan_batch", lambda: [data, begin, limit, header, row, *row_columns(rows)])


header_bytes = st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 0x61, 0x80, 0xFF]), max_size=16).map(bytes)


@settings(max_examples=200)
@given(area=header_bytes, start=int32_columns, end=int32_columns, first=small, last=small)
def test_measure_headers_agrees_on_anything(
    area: bytes, start: list[int], end: list[int], first: int, last: int
) -> None:
    agree("measure_headers", lambda: [area, ints(start), ints(end), first, last, longs([0, 0])])


@settings(max_examples=300)
@given(
    area=header_bytes,
    bounds=st.lists(st.tuples(st.integers(-1, 16), st.integers(-1, 17)), max_size=4),
    numbers=st.tuples(small, small, small),
    list_offsets=int32_columns,
    key_offsets=int32_columns,
    value_offsets=int32_columns,
    rooms=st.tuples(*[st.integers(0, 12)] * 4),
)
def test_gather_headers_agrees_on_anything(
    area: bytes,
    bounds: list[tuple[int, int]],
    numbers: tuple[int, int, int],
    list_offsets: list[int],
    key_offsets: list[int],
    value_offsets: list[int],
    rooms: tuple[int, ...],
) -> None:
    agree(
        "gather_headers",
        lambda: [
            area,
            ints([start for start, _ in bounds]),
            ints([end for _, end in bounds]),
            *numbers,
            ints(list_offsets),
            bytearray(b"\xff" * rooms[0]),
            ints(key_offsets),
            bytearray(rooms[1]),
            ints(value_offsets),
            bytearray(rooms[2]),
            bytearray(b"\xff" * rooms[3]),
        ],
    )
