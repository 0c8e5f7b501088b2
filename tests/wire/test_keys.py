"""The map of keys: the last offset of each, in bounded memory; and copies of the records that stay."""

from __future__ import annotations

import random
from array import array

import pytest

from penstock.wire._keys import KeyMap, copy_kept, largest_kept, sip_hash
from penstock.wire.records import Record, RecordColumns, build_batch, read_columns

# from the reference implementation: the key is 00 01 … 0f, the message the first bytes of the same row
SIP_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    8: "3b62a9ba6258f5610f83e264f31497b4",
}


@pytest.mark.parametrize("length", SIP_VECTORS)
def test_the_hash_is_sip_hash(length: int) -> None:
    key = bytes(range(16))
    seeds = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    words = sip_hash(bytes(range(length)), *seeds)
    assert b"".join(word.to_bytes(8, "little") for word in words).hex() == SIP_VECTORS[length]


def columns_of(keys: list[bytes | None], tombstones: set[int] = frozenset()) -> tuple[memoryview, RecordColumns]:  # type: ignore[assignment]
    records = [Record(n, 100 + n % 7, key, None if n in tombstones else b"v%d" % n) for n, key in enumerate(keys)]
    batch = memoryview(build_batch(records))
    _, area, columns = read_columns(batch)
    return memoryview(area), columns


def put(keys: KeyMap, area: memoryview, columns: RecordColumns, base_offset: int = 0, from_offset: int = 0) -> int:
    count = len(columns.key_start)
    return keys.put(area, count, columns.key_start, columns.key_length, columns.offset_delta, base_offset, from_offset)


def select(
    keys: KeyMap, area: memoryview, columns: RecordColumns, *, base_offset: int = 0, keeps_tombstones: bool = True
) -> tuple[list[int], list[int]]:
    count = len(columns.key_start)
    kept, counts = bytearray(count), array("q", bytes(40))
    keys.select(
        area,
        count,
        columns.key_start,
        columns.key_length,
        columns.value_length,
        columns.offset_delta,
        base_offset,
        keeps_tombstones,
        kept,
        counts,
    )
    return [index for index in range(count) if kept[index]], list(counts)


@pytest.mark.parametrize("seed", range(5))
def test_the_last_record_of_every_key_is_selected(seed: int) -> None:
    chance = random.Random(seed)
    names = [chance.randbytes(chance.randrange(30)) for _ in range(chance.randrange(1, 60))]
    chosen = [chance.choice(names) for _ in range(500)]
    area, columns = columns_of(list(chosen))
    keys = KeyMap(100, 90, chance.getrandbits(64), chance.getrandbits(64))
    assert put(keys, area, columns) == 500
    keys.latest_offset = 499
    assert keys.entries == len(set(chosen))
    last = {key: index for index, key in enumerate(chosen)}
    kept, counts = select(keys, area, columns)
    assert kept == sorted(last.values())
    assert counts == [len(last), 0, 500 - len(last), 0, 0]


def test_a_full_map_says_how_far_it_came_and_takes_known_keys_on() -> None:
    area, columns = columns_of([b"a", b"b", b"a", b"c", b"a", b"b"])
    keys = KeyMap(8, 2, 1, 2)
    assert put(keys, area, columns) == 3  # c has no room
    assert keys.entries == 2
    keys.latest_offset = 2
    kept, _ = select(keys, area, columns)
    assert kept == [1, 2, 3, 4, 5]  # what lies beyond is not judged


def test_records_before_the_dirty_part_are_not_noted_but_judged() -> None:
    area, columns = columns_of([b"a", b"b", b"a", b"c"])
    keys = KeyMap(8, 7, 1, 2)
    assert put(keys, area, columns, base_offset=10, from_offset=12) == 4
    assert keys.entries == 2
    keys.latest_offset = 13
    kept, _ = select(keys, area, columns, base_offset=10)
    assert kept == [1, 2, 3]  # b is in the clean part alone


def test_tombstones_stay_until_their_time_and_records_without_a_key_go() -> None:
    area, columns = columns_of([b"a", None, b"b", b"a"], tombstones={2, 3})
    keys = KeyMap(8, 7, 1, 2)
    put(keys, area, columns)
    keys.latest_offset = 3
    assert select(keys, area, columns) == ([2, 3], [2, 2, 1, 0, 1])
    assert select(keys, area, columns, keeps_tombstones=False) == ([], [0, 0, 1, 2, 1])


def test_kept_records_are_copied_as_they_are() -> None:
    area, columns = columns_of([b"key%d" % n for n in range(50)])
    kept = bytearray(n % 3 == 0 for n in range(50))
    out = bytearray(len(area))
    size_bytes = copy_kept(out, area, 50, kept, columns.headers_end)
    ends = [0, *columns.headers_end]
    assert out[:size_bytes] == b"".join(bytes(area[ends[n] : ends[n + 1]]) for n in range(0, 50, 3))
    assert largest_kept(50, kept, columns.timestamp_delta) == 6


def test_too_little_room_is_refused() -> None:
    area, columns = columns_of([b"a", b"b"])
    with pytest.raises(ValueError, match="room"):
        copy_kept(bytearray(3), area, 2, bytearray(2), columns.headers_end)
    with pytest.raises(ValueError, match="do not fit"):
        KeyMap(4, 4, 1, 2)
