"""The loops from records to columns: compiled and plain agree, and neither steps outside its buffers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columnar import _columns

from .loop_pairs import (
    Pair,
    int32_columns,
    int64,
    int64_columns,
    ints,
    is_as_new_as_its_source,
    longs,
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


@given(
    deltas=int32_columns,
    base=st.integers(0, 2**62),
    numbers=st.tuples(small, small, small),
    offsets=int64_columns,
)
def test_gather_offsets_agrees_on_anything(
    deltas: list[int], base: int, numbers: tuple[int, int, int], offsets: list[int]
) -> None:
    agree("gather_offsets", lambda: [ints(deltas), base, *numbers, longs(offsets)])


@given(deltas=int64_columns, base=int64, numbers=st.tuples(small, small, small), timestamps=int64_columns)
def test_gather_timestamps_agrees_on_anything(
    deltas: list[int], base: int, numbers: tuple[int, int, int], timestamps: list[int]
) -> None:
    agree("gather_timestamps", lambda: [longs(deltas), base, *numbers, longs(timestamps)])


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
