"""Arrow into record batches: the reader of objects finds every row again, in its partition and in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columnar import encode, row_block
from penstock.columnar.encode import EncodedBatch, Encoder
from penstock.columnar.errors import ColumnarError, RecordTooLarge
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch, read_records, sealed_header

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encoder(
    partitions: int = 4,
    *,
    batch_bytes_max: int = 100_000,
    compression: Compression = Compression.NONE,
    record_bytes_max: int = 1_000_000,
    first_partition: int | None = 0,
) -> Encoder:
    return Encoder(
        "orders",
        partitions,
        batch_bytes_max=batch_bytes_max,
        compression=compression,
        record_bytes_max=record_bytes_max,
        now_ms=lambda: NOW_MS,
        first_partition=first_partition,
    )


def records_of(batch: EncodedBatch, compression: Compression = Compression.NONE) -> list[Record]:
    header = sealed_header(
        batch.records,
        batch.count,
        last_offset_delta=batch.count - 1,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        compression=compression,
    )
    records = read_records(memoryview(header + bytes(batch.records)))
    assert [record.offset for record in records] == list(range(batch.count))
    assert batch.base_timestamp == records[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in records)
    return records


def encoded(made: Encoder, batches: Iterable[pa.RecordBatch]) -> list[EncodedBatch]:
    found = [batch for rows in batches for batch in made.add(rows)]
    return [*found, *made.flush()]


def by_partition(
    batches: Iterable[EncodedBatch], compression: Compression = Compression.NONE
) -> dict[int, list[tuple[object, ...]]]:
    rows: dict[int, list[tuple[object, ...]]] = {}
    for batch in batches:
        rows.setdefault(batch.partition, []).extend(
            (record.timestamp, record.key, record.value, record.headers) for record in records_of(batch, compression)
        )
    return rows


def values_by_partition(made: Encoder, *batches: pa.RecordBatch) -> dict[int, list[bytes]]:
    return {
        partition: [value for _, _, value, _ in rows]  # type: ignore[misc]
        for partition, rows in by_partition(encoded(made, batches)).items()
    }


def rows_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


# ---- round trips

maybe_bytes = st.none() | st.binary(max_size=60)
maybe_text = st.none() | st.text(max_size=20)
maybe_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=8)), max_size=3)
partitions_given = st.none() | st.integers(0, 3)
times = st.none() | st.integers(-1, 10_000_000_000_000)
row = st.tuples(maybe_bytes, maybe_bytes, maybe_headers, partitions_given, times)
KEYS = [pa.binary(), pa.large_binary(), pa.binary_view()]


@settings(max_examples=150)
@given(
    rows=st.lists(row, max_size=40),
    compression=st.sampled_from(Compression),
    batch_bytes_max=st.integers(70, 600),
    key_type=st.sampled_from(KEYS),
    value_type=st.sampled_from(KEYS),
    unit=st.sampled_from(["ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
    cuts=st.tuples(st.integers(0, 45), st.integers(0, 45)),
)
def test_every_row_is_found_again(
    rows: list[tuple[object, ...]],
    compression: Compression,
    batch_bytes_max: int,
    key_type: pa.DataType,
    value_type: pa.DataType,
    unit: str,
    zone: str | None,
    cuts: tuple[int, int],
) -> None:
    factor = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    rows = [(*fields, None if time is None or time * factor >= 2**63 else time) for *fields, time in rows]
    whole = rows_of(
        key=pa.array([key for key, *_ in rows], key_type),
        value=pa.array([value for _, value, *_ in rows], value_type),
        headers=pa.array([row[2] and [{"key": key, "value": value} for key, value in row[2]] for row in rows], HEADERS),  # type: ignore[misc, attr-defined]
        partition=pa.array([row[3] for row in rows], pa.int32()),
        timestamp=pa.array(
            [None if row[4] is None else row[4] * factor for row in rows],  # type: ignore[operator]
            pa.timestamp(unit, zone),
        ),
    )
    first, last = sorted(cuts)
    pieces = [whole.slice(0, first), whole.slice(first, last - first), whole.slice(last)]
    batches = encoded(encoder(batch_bytes_max=batch_bytes_max, compression=compression), pieces)
    found = by_partition(batches, compression)
    in_order = [(NOW_MS if time is None else time, key, value, headers or []) for key, value, headers, _, time in rows]
    flat = [row for partition in sorted(found) for row in found[partition]]
    assert sorted(flat, key=repr) == sorted(in_order, key=repr)
    for partition, kept in found.items():
        remaining = iter(in_order)
        assert all(row in remaining for row in kept), "the order within a partition"
        if all(given is None for _, _, _, given, _ in rows):
            keys = [key for _, key, *_ in kept if key is not None]
            assert all((murmur2_of_aiokafka(key) & 0x7FFFFFFF) % 4 == partition for key in keys)
    for batch in batches:
        assert batch.count == 1 or len(build_batch(records_of(batch, compression))) <= batch_bytes_max


@pytest.mark.parametrize("compression", Compression, ids=lambda codec: codec.name.lower())
def test_batches_are_no_larger_than_asked_for_and_nearly_as_large(compression: Compression) -> None:
    values = pa.array([b"%07d" % number * 20 for number in range(20_000)])
    batches = encoded(encoder(1, batch_bytes_max=50_000, compression=compression), [rows_of(value=values)])
    found = [record.value for batch in batches for record in records_of(batch, compression)]
    assert found == values.to_pylist()
    sizes = [len(build_batch(records_of(batch, compression))) for batch in batches]
    assert all(49_800 < size <= 50_000 for size in sizes[:-1])
    if compression is Compression.NONE:
        assert [HEADER_SIZE + len(batch.records) for batch in batches] == sizes


@given(keys=st.lists(st.binary(max_size=40), min_size=1, max_size=50), partitions=st.integers(1, 50))
def test_keys_go_where_the_java_client_sends_them(keys: list[bytes], partitions: int) -> None:
    rows = rows_of(key=pa.array(keys, pa.binary()), value=pa.array(keys, pa.binary()))
    expected: dict[int, list[bytes]] = {}
    for key in keys:
        expected.setdefault((murmur2_of_aiokafka(key) & 0x7FFFFFFF) % partitions, []).append(key)
    assert values_by_partition(encoder(partitions), rows) == expected


def test_a_given_partition_is_stronger_than_a_key() -> None:
    rows = rows_of(
        key=pa.array([b"a", b"a", b"a"]),
        value=pa.array([b"0", b"1", b"2"]),
        partition=pa.array([3, None, 0], pa.int64()),
    )
    of_key = (murmur2_of_aiokafka(b"a") & 0x7FFFFFFF) % 4
    found = values_by_partition(encoder(), rows)
    assert found[3][0] == b"0" and b"1" in found[of_key] and b"2" in found[0]


def test_rows_without_a_key_go_in_whole_runs_to_one_partition_after_the_other() -> None:
    values = pa.array([b"%09d" % number for number in range(10_000)])
    batches = encoded(encoder(3, batch_bytes_max=10_000, first_partition=2), [rows_of(value=values)])
    where = {record.value: batch.partition for batch in batches for record in records_of(batch)}
    runs = [(partition, len(list(rows))) for partition, rows in groupby(where[value] for value in values.to_pylist())]
    assert [partition for partition, _ in runs[:4]] == [2, 0, 1, 2]
    assert all(500 < count < 600 for _, count in runs[:-1])
    assert all(9_900 < HEADER_SIZE + len(batch.records) <= 10_000 for batch in batches[:-3])


def test_a_run_goes_on_in_the_next_rows() -> None:
    made = encoder(3, first_partition=1)
    assert values_by_partition(made, *[rows_of(value=pa.array([b"%d" % number])) for number in range(4)]) == {
        1: [b"0", b"1", b"2", b"3"]
    }


def test_the_first_partition_without_a_key_is_any() -> None:
    rows = rows_of(value=pa.array([b"v"]))
    chosen = {batch.partition for _ in range(200) for batch in encoded(encoder(first_partition=None), [rows])}
    assert chosen == {0, 1, 2, 3}


# ---- types

TEXTS = ["abc", None, "", "ü"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS, pa.string()),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(["before", *TEXTS, "after"]).slice(1, 4),
        pa.array(["before", *TEXTS, "after"], pa.large_string()).slice(1, 4),
        pa.array([None if text is None else text.encode() for text in TEXTS], pa.binary()),
    ],
    ids=lambda column: f"{column.type}-{column.offset}",
)
def test_texts_are_written_as_utf_8(column: pa.Array) -> None:
    rows = by_partition(encoded(encoder(1), [rows_of(key=column, value=column)]))[0]
    expected = [None if text is None else text.encode() for text in TEXTS]
    assert [(key, value) for _, key, value, _ in rows] == list(zip(expected, expected, strict=True))


def test_bytes_of_one_size() -> None:
    column = pa.array([b"abc", None, b"def"], pa.binary(3))
    assert values_by_partition(encoder(1), rows_of(value=column)) == {0: [b"abc", None, b"def"]}


@pytest.mark.parametrize("type", [pa.null(), pa.binary(), pa.string()])
def test_values_may_all_be_null(type: pa.DataType) -> None:
    rows = rows_of(value=pa.nulls(3, type), key=pa.nulls(3, type), headers=pa.nulls(3), timestamp=pa.nulls(3))
    assert by_partition(encoded(encoder(1), [rows])) == {0: [(NOW_MS, None, None, [])] * 3}


@pytest.mark.parametrize(
    "type",
    [
        HEADERS,
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
    ],
    ids=str,
)
def test_headers_of_several_types(type: pa.DataType) -> None:
    made: list[object] = [[("a", b"1"), ("", None)], None, [], [("b", b"")]]
    if not pa.types.is_map(type):
        made = [row and [{"key": key, "value": value} for key, value in row] for row in made]  # type: ignore[misc, attr-defined]
    if not pa.types.is_map(type) and pa.types.is_string(type.value_type.field("value").type):
        made = [row and [pair | {"value": pair["value"] and pair["value"].decode()} for pair in row] for row in made]  # type: ignore[misc, attr-defined]
    column = pa.array([None, *made, None], type).slice(1, 4)
    rows = by_partition(encoded(encoder(1), [rows_of(value=pa.array([b"v"] * 4), headers=column)]))[0]
    assert [headers for *_, headers in rows] == [[("a", b"1"), ("", None)], [], [], [("b", b"")]]


def test_times_of_every_unit() -> None:
    when = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array([when, None], pa.timestamp(unit, "UTC"))
        batch = encoded(encoder(1), [rows_of(value=pa.array([b"a", b"b"]), timestamp=column)])[0]
        times_ms = [record.timestamp for record in records_of(batch)]
        assert times_ms == [(when - EPOCH) // timedelta(milliseconds=1), NOW_MS]
    parts = pa.array([1_999_999], pa.timestamp("us"))
    assert records_of(encoded(encoder(1), [rows_of(value=pa.array([b"a"]), timestamp=parts)])[0])[0].timestamp == 1999


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"key": pa.array([b"a"])}, "the column 'value' is missing"),
        ({"value": pa.array([1])}, "'value' must be binary or string, not int64"),
        ({"value": pa.array([b"a"]), "key": pa.array([1.5])}, "'key' must be binary or string, not double"),
        ({"value": pa.array([1]).dictionary_encode()}, "'value' must be binary or string, not dictionary"),
        ({"value": pa.array([b"a"]), "colour": pa.array([1])}, "there is no column 'colour' to write; there are key, "),
        ({"value": pa.array([b"a"]), "headers": pa.array(["x"])}, "'headers' must be list<struct<key: string, value"),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[{"name": "x"}]])},
            "'headers' must be list<struct<key: string, value",
        ),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[{"key": "x", "value": 1}]])},
            "'headers' must be list<struct<key: string, value",
        ),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)},
            "row 0: the column 'headers' has a header without a key",
        ),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[None]], HEADERS)},
            "row 0: the column 'headers' has a header without a key",
        ),
        ({"value": pa.array([b"a"]), "partition": pa.array(["0"])}, "'partition' must be a whole number"),
        ({"value": pa.array([b"a"]), "partition": pa.array([2**40])}, "'partition' must be a whole number"),
        (
            {"value": pa.array([b"a"]), "partition": pa.array([4])},
            "row 0: the column 'partition' says 4, the topic has 4",
        ),
        ({"value": pa.array([b"a"]), "partition": pa.array([-1])}, "row 0: the column 'partition' says -1"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([5])}, "'timestamp' must be a timestamp"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([-5], pa.timestamp("ms"))}, "'timestamp' has a time before"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([2**60], pa.timestamp("ms"))}, "'timestamp' has a time"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([2**60], pa.timestamp("s"))}, "'timestamp' must be"),
    ],
)
def test_columns_that_cannot_be(columns: dict[str, pa.Array], why: str) -> None:
    with pytest.raises(ColumnarError, match="topic orders.*" + why):
        list(encoder().add(rows_of(**columns)))


def test_a_column_that_is_there_twice() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(ColumnarError, match="there are several columns 'value'"):
        list(encoder().add(rows))


# ---- sizes


def test_a_row_that_is_too_large_is_named() -> None:
    made = encoder(1, record_bytes_max=1000)
    list(made.add(rows_of(value=pa.array([b"a"] * 5))))
    with pytest.raises(RecordTooLarge, match=r"topic orders, row 7: a record of 1103 bytes is larger than the 1000"):
        list(made.add(rows_of(value=pa.array([b"a", b"b", b"c" * 1000]), key=pa.array([b"k" * 33] * 3))))


def test_a_row_that_is_just_small_enough() -> None:
    size = len(build_batch([Record(0, NOW_MS, b"key", b"v" * 500, [("h", b"x")])]))
    rows = rows_of(
        key=pa.array([b"key"]), value=pa.array([b"v" * 500]), headers=pa.array([[{"key": "h", "value": b"x"}]], HEADERS)
    )
    assert len(encoded(encoder(1, record_bytes_max=size), [rows])[0].records) == size - HEADER_SIZE
    with pytest.raises(RecordTooLarge) as caught:
        encoded(encoder(1, record_bytes_max=size - 1), [rows])
    assert caught.value.size_bytes == size


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_row_larger_than_a_batch_is_a_batch_of_its_own(compression: Compression) -> None:
    values = [b"a", b"b" * 5000, b"c", b"d", b"e" * 900_000]
    made = encoder(1, batch_bytes_max=1000, compression=compression)
    batches = encoded(made, [rows_of(value=pa.array(values))])
    assert [[record.value for record in records_of(batch, compression)] for batch in batches] == [
        [b"a"],
        [b"b" * 5000],
        [b"c", b"d"],
        [b"e" * 900_000],
    ]


def test_batches_that_were_handed_out_do_not_change() -> None:
    values = pa.array([b"%05d" % number for number in range(5000)])
    batches = encoded(encoder(1, batch_bytes_max=5000), [rows_of(value=values)] * 2)
    assert [record.value for batch in batches for record in records_of(batch)] == values.to_pylist() * 2


def test_flushing_twice_gives_nothing_twice() -> None:
    made = encoder()
    assert list(made.add(rows_of(value=pa.array([b"a"])))) == []
    assert len(list(made.flush())) == 1
    assert list(made.flush()) == []
    assert encoded(made, [rows_of(value=pa.array([], pa.binary()))]) == []


def test_all_open_batches_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_OPEN_BYTES_MAX", 2000)
    rows = rows_of(value=pa.array([b"x" * 90] * 10), partition=pa.array(range(10)))
    made = encoder(10)
    assert [len(list(made.add(rows))) for _ in range(4)] == [0, 0, 10, 0]


def test_blocks_are_cut_where_their_bytes_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_block, "_BYTES_MAX", 100)
    values = [b"%03d" % number * 10 for number in range(50)]
    headers = pa.array([[{"key": "h", "value": value}] for value in values], HEADERS)
    rows = rows_of(value=pa.array(values, pa.large_binary()), headers=headers, key=pa.array(values))
    found = by_partition(encoded(encoder(3), [rows]))
    assert sorted(row[1:] for rows in found.values() for row in rows) == [  # type: ignore[type-var]
        (value, value, [("h", value)]) for value in values
    ]


def test_a_row_that_no_block_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_block, "_BYTES_MAX", 100)
    made = encoder(1, record_bytes_max=90)
    with pytest.raises(RecordTooLarge, match="topic orders, row 1: a record of 150 bytes is larger than the 90"):
        list(made.add(rows_of(value=pa.array([b"a", b"b" * 150, b"c"]))))


def test_many_rows_in_many_partitions() -> None:
    count = 100_000
    rows = rows_of(
        key=pa.array([b"%d" % (number % 997) for number in range(count)]),
        value=pa.array([b"%d" % number for number in range(count)]),
    )
    found = values_by_partition(encoder(37, batch_bytes_max=5000), rows.slice(0, 60_000), rows.slice(60_000))
    expected: dict[int, list[bytes]] = {}
    of_key = [(murmur2_of_aiokafka(b"%d" % key) & 0x7FFFFFFF) % 37 for key in range(997)]
    for number in range(count):
        expected.setdefault(of_key[number % 997], []).append(b"%d" % number)
    assert found == expected


@pytest.mark.parametrize(
    ("partitions", "batch_bytes_max", "record_bytes_max"), [(0, 100, 100), (1, 61, 100), (1, 100, 61), (1, 2**31, 100)]
)
def test_sizes_that_cannot_be_are_refused(partitions: int, batch_bytes_max: int, record_bytes_max: int) -> None:
    with pytest.raises(ValueError, match=r"cannot be|has partitions"):
        encoder(partitions, batch_bytes_max=batch_bytes_max, record_bytes_max=record_bytes_max)


def test_chunks_of_a_table_that_begin_in_the_middle() -> None:
    table = pa.table({"value": pa.chunked_array([[b"a", b"b"], [b"c"], [], [b"d", b"e"]])}).slice(1, 3)
    batches: Sequence[pa.RecordBatch] = table.to_batches()
    assert values_by_partition(encoder(1), *batches) == {0: [b"b", b"c", b"d"]}
