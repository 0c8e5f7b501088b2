"""The loops over records: compiled and plain agree on everything, and neither steps outside its buffers."""

from __future__ import annotations

import importlib.util
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import _records, records
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.records import Record, RecordColumns, RecordError, build_batch, scan_area, seal_batch


def load_plain() -> ModuleType:
    """The record loops as plain Python, even where they are compiled."""
    source = Path(records.__file__).with_name("_records.py")
    spec = importlib.util.spec_from_file_location("penstock_plain_records", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = load_plain()

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


def column_list(columns: RecordColumns) -> list[array[int]]:
    return [getattr(columns, name) for name in RecordColumns.__slots__]


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except (ValueError, PLAIN.RecordError) as error:
        return type(error).__name__, str(error)


def scan_outcome(loops: ModuleType, area: bytes, count: int) -> object:
    columns = column_list(RecordColumns.allocate(max(count, 0)))
    return outcome(lambda: loops.scan(area, count, *columns)), columns


def test_the_plain_loops_are_plain() -> None:
    assert not PLAIN.is_compiled()


@pytest.mark.skipif(not _records.is_compiled(), reason="no compiler was here")
def test_the_compiled_loops_are_not_older_than_their_source() -> None:
    built = Path(_records.__file__)
    for source in (built.with_name("_records.py"), built.with_name("_records.pxd")):
        assert source.stat().st_mtime <= built.stat().st_mtime, "build again: python setup.py build_ext --inplace"


@given(made=record_lists())
def test_scan_agrees_on_records(made: list[Record]) -> None:
    area = build_batch(made, base_offset=made[0].offset)[HEADER_SIZE:]
    assert scan_outcome(_records, area, len(made)) == scan_outcome(PLAIN, area, len(made))


@settings(max_examples=150)
@given(made=record_lists(), data=st.data())
def test_scan_agrees_on_damage(made: list[Record], data: st.DataObject) -> None:
    area = bytearray(build_batch(made, base_offset=made[0].offset)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        area[data.draw(st.integers(0, len(area) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    assert scan_outcome(_records, bytes(area), len(made)) == scan_outcome(PLAIN, bytes(area), len(made))


@given(area=st.binary(max_size=80), count=st.integers(-1, 12))
def test_scan_agrees_on_garbage(area: bytes, count: int) -> None:
    assert scan_outcome(_records, area, count) == scan_outcome(PLAIN, area, count)


@given(prefix=st.binary(min_size=9, max_size=9), last=st.integers(0, 127))
def test_scan_agrees_on_numbers_of_ten_bytes(prefix: bytes, last: int) -> None:
    timestamp = bytes(byte | 0x80 for byte in prefix) + bytes([last])
    area = bytes([30, 0]) + timestamp + bytes.fromhex("00 01 01 00")
    built, plain = (scan_outcome(loops, area, 1) for loops in (_records, PLAIN))
    assert built == plain
    assert built[0] is None  # type: ignore[index]


int32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 40)
int64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(int64, *[int32] * 7), max_size=5),
    data=st.tuples(*[st.binary(max_size=30)] * 3),
    room=st.integers(0, 300),
)
def test_encode_agrees_on_anything(rows: list[tuple[int, ...]], data: tuple[bytes, ...], room: int) -> None:
    columns = [array("q" if index == 0 else "i", [row[index] for row in rows]) for index in range(8)]

    def encoded(loops: ModuleType) -> object:
        out = bytearray(room)
        keys, values, heads = data
        result = outcome(
            lambda: loops.encode(
                out, len(rows), *columns[:2], keys, *columns[2:4], values, *columns[4:6], heads, *columns[6:]
            )
        )
        return result, out

    assert encoded(_records) == encoded(PLAIN)


@pytest.mark.parametrize("loops", [_records, PLAIN], ids=["built", "plain"])
@given(made=record_lists())
def test_encode_of_a_scan_gives_the_same_area(loops: ModuleType, made: list[Record]) -> None:
    area = build_batch(made, base_offset=made[0].offset)[HEADER_SIZE:]
    found = scan_area(area, len(made))
    out = bytearray(len(area) + 5)
    size = loops.encode(
        out,
        len(made),
        found.timestamp_delta,
        found.offset_delta,
        area,
        found.key_start,
        found.key_length,
        area,
        found.value_start,
        found.value_length,
        area,
        found.headers_start,
        found.headers_end,
    )
    assert out[:size] == area


@pytest.mark.parametrize("loops", [_records, PLAIN], ids=["built", "plain"])
def test_a_short_column_is_refused(loops: ModuleType) -> None:
    area = build_batch(numbered(b"a", b"b"))[HEADER_SIZE:]
    for short in range(8):
        columns = column_list(RecordColumns.allocate(2))
        columns[short] = columns[short][:1]
        with pytest.raises(ValueError, match="a column is shorter"):
            loops.scan(area, 2, *columns)
        with pytest.raises(ValueError, match="a column is shorter"):
            loops.encode(bytearray(99), 2, *columns[:2], area, *columns[2:4], area, *columns[4:6], area, *columns[6:])


def test_columns_can_be_any_writable_buffers() -> None:
    area = build_batch(numbered(b"a", b"b"))[HEADER_SIZE:]
    columns = [memoryview(bytearray(16)).cast("q" if index == 0 else "i") for index in range(8)]
    _records.scan(memoryview(area), 2, *columns)
    assert columns[0].tolist() == [0, 1]
    assert columns[5].tolist()[:2] == [1, 1]


def test_an_area_can_be_sealed_without_record_objects() -> None:
    area = build_batch(numbered(b"a", b"b"))[HEADER_SIZE:]
    batch = seal_batch(area, 2, last_offset_delta=1, base_timestamp=1000, max_timestamp=1001)
    assert batch == build_batch(numbered(b"a", b"b"))


@pytest.mark.parametrize(
    ("area", "why"),
    [
        ("", "cannot hold"),
        ("0e 00 00 00 01 01 00", "a length of 7"),  # one byte more than there is
        ("0a 00 00 00 01 01 00", "a length of 5"),  # too short for any record
        ("01 00 00 00 01 01 00", "a length of -1"),
        ("80 80 80 80 80 00 00", "bad length"),  # more than five bytes
        ("ff ff ff ff ff ff ff", "bad length"),
        ("16 00 80 80 80 80 80 80 80 80 80 80", "bad timestamp"),
        ("0c 00 00 80 80 80 80", "bad offset"),
        ("0c 00 00 01 01 01 00", "an offset delta of -1"),
        ("14 00 00 80 80 80 80 10 01 01 00", "an offset delta of 2147483648"),
        ("0c 00 00 00 03 01 00", "a key of -2"),
        ("0c 00 00 00 06 01 00", "a key of 3"),
        ("0c 00 00 00 80 80 80", "bad key length"),
        ("0c 00 00 00 04 61 61", "bad value length"),
        ("0c 00 00 00 01 03 00", "a value of -2"),
        ("0c 00 00 00 01 04 00", "a value of 2"),
        ("0c 00 00 00 01 02 00", "bad headers"),  # no room for their count
        ("0c 00 00 00 01 01 01", "bad headers"),  # -1 of them
        ("0c 00 00 00 01 01 02", "bad headers"),  # one, and no bytes
        ("0e 00 00 00 01 01 00 00", "bad headers"),  # none, and a byte
        ("10 00 00 00 01 01 02 01 01", "bad headers"),  # a null name
        ("10 00 00 00 01 01 02 00 03", "bad headers"),  # a value of -2
        ("10 00 00 00 01 01 02 00 02", "bad headers"),  # a value without its byte
        ("0c 00 00 00 01 01 00 00", "1 bytes are left"),
    ],
)
@pytest.mark.parametrize("loops", [_records, PLAIN], ids=["built", "plain"])
def test_bad_areas(loops: ModuleType, area: str, why: str) -> None:
    columns = RecordColumns.allocate(1)
    with pytest.raises((RecordError, PLAIN.RecordError), match=why):
        loops.scan(bytes.fromhex(area), 1, *column_list(columns))
