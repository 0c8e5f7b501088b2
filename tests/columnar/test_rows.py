"""The loops from columns to records: compiled and plain agree, and neither steps outside its buffers."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columnar import _rows
from penstock.columnar._rows import NO_ROW
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.records import Record, build_batch, encode_headers

from .loop_pairs import (
    Pair,
    int32,
    int32_columns,
    int64,
    int64_columns,
    ints,
    is_as_new_as_its_source,
    longs,
    small,
    some_bytes,
)

PAIR = Pair(_rows)
agree = PAIR.agree
both = pytest.mark.parametrize("loops", [PAIR.built, PAIR.plain], ids=["built", "plain"])


def test_the_plain_loops_are_plain() -> None:
    assert not PAIR.plain.is_compiled()


@pytest.mark.skipif(not _rows.is_compiled(), reason="no compiler was here")
def test_the_compiled_loops_are_not_older_than_their_source() -> None:
    assert is_as_new_as_its_source(_rows), "build again: python setup.py build_ext --inplace"


@settings(max_examples=200)
@given(
    offsets=st.lists(st.integers(0, 12) | int64, max_size=6),
    first=small,
    count=small,
    data_start=small | st.integers(-(2**62), 2**62),
    data_size=small | int32,
    validity=some_bytes,
    validity_first=small,
)
def test_locate_agrees_on_anything(
    offsets: list[int], first: int, count: int, data_start: int, data_size: int, validity: bytes, validity_first: int
) -> None:
    offsets = [min(max(offset, -(2**62)), 2**62) for offset in offsets]  # Arrow's are not negative
    agree(
        "locate",
        lambda: [
            longs(offsets),
            first,
            count,
            data_start,
            data_size,
            validity,
            validity_first,
            ints([9] * 5),
            ints([9] * 5),
        ],
    )


@given(data=st.binary(max_size=40), start=small, length=small)
def test_murmur2_agrees_on_anything(data: bytes, start: int, length: int) -> None:
    agree("murmur2", lambda: [data, start, length])
    agree("murmur2", lambda: [data, 0, len(data)])


@both
@pytest.mark.parametrize(  # the values of Kafka's own test of its hash
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(loops: ModuleType, key: bytes, expected: int) -> None:
    assert loops.murmur2(key, 0, len(key)) == expected % 2**32
    assert loops.murmur2(b"xx" + key + b"yy", 2, len(key)) == expected % 2**32


@settings(max_examples=200)
@given(
    count=small,
    partitions=st.integers(-1, 5) | int64,
    keys=some_bytes,
    columns=st.tuples(*[int32_columns] * 3),
    given_partitions=st.lists(st.integers(-1, 5), max_size=6),
    given_first=small,
    validity=st.binary(max_size=2),
    run=st.lists(small, max_size=4),
)
def test_choose_partitions_agrees_on_anything(
    count: int,
    partitions: int,
    keys: bytes,
    columns: tuple[list[int], ...],
    given_partitions: list[int],
    given_first: int,
    validity: bytes,
    run: list[int],
) -> None:
    agree(
        "choose_partitions",
        lambda: [
            count,
            partitions,
            keys,
            *map(ints, columns),
            ints(given_partitions),
            given_first,
            validity,
            longs(run),
            ints([9] * 5),
        ],
    )


@given(chosen=st.lists(st.integers(-1, 4), max_size=6), count=small, partitions=st.integers(-1, 5), room=small)
def test_sort_by_partition_agrees_on_anything(chosen: list[int], count: int, partitions: int, room: int) -> None:
    agree(
        "sort_by_partition",
        lambda: [ints(chosen), count, partitions, ints([9] * max(0, room)), ints([9] * 5)],
    )


@both
@given(chosen=st.lists(st.integers(0, 4), max_size=30))
def test_sorting_keeps_the_order_within_a_partition(loops: ModuleType, chosen: list[int]) -> None:
    ends, order = ints([0] * 6), ints([0] * len(chosen))
    loops.sort_by_partition(ints(chosen), len(chosen), 5, ends, order)
    assert list(order) == sorted(range(len(chosen)), key=lambda row: chosen[row])
    assert list(ends[:5]) == [sum(each <= partition for each in chosen) for partition in range(5)]


@given(source=int32_columns, order=int32_columns, count=small)
def test_arrange_agrees_on_anything(source: list[int], order: list[int], count: int) -> None:
    agree("arrange", lambda: [ints(source), ints(order), count, ints([9] * 5)])
    agree("arrange_long", lambda: [longs(source), ints(order), count, longs([9] * 5)])


@given(columns=st.tuples(*[st.lists(st.integers(-1, 2**30), max_size=6)] * 4), count=small, size_max=int64)
def test_first_too_large_agrees_on_anything(columns: tuple[list[int], ...], count: int, size_max: int) -> None:
    agree("first_too_large", lambda: [*map(ints, columns), count, size_max])


@settings(max_examples=200)
@given(
    timestamps=int64_columns | st.lists(st.integers(0, 2**41), max_size=6),
    base=int64 | st.integers(0, 2**41),
    numbers=st.tuples(small, small, small | int32),
    columns=st.tuples(*[st.lists(st.integers(-1, 2**30), max_size=6)] * 4),
    room=int64 | st.integers(0, 1000),
    rooms=st.tuples(small, small),
)
def test_fit_agrees_on_anything(
    timestamps: list[int],
    base: int,
    numbers: tuple[int, int, int],
    columns: tuple[list[int], ...],
    room: int,
    rooms: tuple[int, int],
) -> None:
    agree(
        "fit",
        lambda: [
            longs(timestamps),
            base,
            *numbers,
            *map(ints, columns),
            room,
            longs([9] * max(0, rooms[0])),
            longs([9] * max(0, rooms[1])),
        ],
    )


maybe_bytes = st.none() | st.binary(max_size=300)


@both
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2**50), maybe_bytes, maybe_bytes, st.text(max_size=3)), min_size=1, max_size=8
    ),
    spare=st.integers(-1, 3),
)
def test_what_fits_is_what_a_batch_takes(
    loops: ModuleType, rows: list[tuple[int, bytes | None, bytes | None, str]], spare: int
) -> None:
    made = [
        Record(index, timestamp, key, value, [("h", name.encode())] if name else [])
        for index, (timestamp, key, value, name) in enumerate(rows)
    ]
    size = len(build_batch(made)) - HEADER_SIZE
    header_sizes = [len(encode_headers(record.headers)) for record in made]
    deltas, found = longs([0] * len(made)), longs([0, 0])
    count = loops.fit(
        longs([record.timestamp for record in made]),
        made[0].timestamp,
        0,
        len(made),
        0,
        ints([-1 if record.key is None else len(record.key) for record in made]),
        ints([-1 if record.value is None else len(record.value) for record in made]),
        ints([0] * len(made)),
        ints(header_sizes),
        size + spare,
        deltas,
        found,
    )
    if spare < 0:
        assert count == len(made) - 1
    else:
        assert (count, found[0], found[1]) == (len(made), size, max(record.timestamp for record in made))
        assert list(deltas) == [record.timestamp - made[0].timestamp for record in made]
    key, value = made[0].key, made[0].value
    alone = len(build_batch(made[:1])) - HEADER_SIZE
    lengths = (-1 if key is None else len(key), -1 if value is None else len(value), header_sizes[0])
    assert loops.size_alone(*lengths) == alone
    too_large = [ints([number]) for number in (lengths[0], lengths[1], 0, lengths[2])]
    assert loops.first_too_large(*too_large, 1, alone) == NO_ROW
    assert loops.first_too_large(*too_large, 1, alone - 1) == 0


@settings(max_examples=300)
@given(
    count=st.integers(-1, 4),
    columns=st.tuples(*[st.tuples(st.lists(small, max_size=6), small, st.binary(max_size=1))] * 3),
    data=st.tuples(some_bytes, some_bytes),
    room=st.integers(0, 60),
)
def test_write_headers_agrees_on_anything(
    count: int, columns: tuple[tuple[list[int], int, bytes], ...], data: tuple[bytes, bytes], room: int
) -> None:
    (lists, keys, values) = columns
    agree(
        "write_headers",
        lambda: [
            count,
            ints(lists[0]),
            *lists[1:],
            ints(keys[0]),
            *keys[1:],
            data[0],
            ints(values[0]),
            *values[1:],
            data[1],
            bytearray(room),
            ints([9] * 4),
            ints([9] * 4),
        ],
    )
