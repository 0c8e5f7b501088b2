"""Record batches into Arrow: the rows that the reader of objects finds, and nothing but clean errors for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.crc import crc32c
from penstock.base.identifiers import TopicPartition
from penstock.columnar import decode, row_buffers
from penstock.columnar.decode import SCHEMA, SCHEMA_WITH_HEADERS, ColumnChoice, Decoder
from penstock.columnar.errors import ColumnarError
from penstock.wire.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER_SIZE
from penstock.wire.compression import Compression
from penstock.wire.control import ControlType, build_control_batch
from penstock.wire.records import Record, build_batch, read_records, seal_batch

WHERE = TopicPartition("orders", 3)
ALL = ColumnChoice(headers=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

maybe_bytes = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=10)), max_size=3)
timestamps = st.integers(-1, 10_000_000_000_000) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def decoded(
    data: bytes,
    *,
    start: int = 0,
    end: int = 2**62,
    aborted: Sequence[tuple[int, int]] | None = None,
    columns: ColumnChoice = ALL,
    rows_max: int = 1000,
    bytes_max: int = 1_000_000,
) -> tuple[list[pa.RecordBatch], int]:
    decoder = Decoder(WHERE, columns, rows_max=rows_max, bytes_max=bytes_max)
    following = decoder.add(memoryview(data), start=start, end=end, aborted=aborted)
    batches = [*decoder.take(), *decoder.take(all=True)]
    for batch in batches:
        batch.validate(full=True)
    return batches, following


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def row_of(record: Record, timestamp_type: int = 0) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": timestamp_type,
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def numbered(first: int, count: int) -> list[Record]:
    return [Record(first + index, 1000 + index, b"k%d" % index, b"v%d" % index) for index in range(count)]


def batch_of(first: int, count: int, **options: object) -> bytes:
    return build_batch(numbered(first, count), base_offset=first, **options)  # type: ignore[arg-type]


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches as a broker has them: any codec, gaps between and within them, times of records or of the log."""
    offset = draw(st.integers(0, 2**40))
    made = []
    for rows in draw(
        st.lists(st.lists(st.tuples(timestamps, maybe_bytes, maybe_bytes, headers), max_size=8), max_size=4)
    ):
        offset += draw(st.integers(0, 5))
        base = offset
        records = []
        for row in rows:
            offset += draw(st.integers(0, 3))
            records.append(Record(offset, *row))
            offset += 1
        offset += draw(st.integers(0, 2))
        made.append(
            build_batch(
                records,
                base_offset=base,
                last_offset_delta=max(0, offset - 1 - base),
                compression=draw(st.sampled_from(Compression)),
                log_append_time=draw(st.none() | st.integers(0, 10_000_000_000_000)),
            )
        )
        offset = max(offset, base + 1)
    return made


def expected_rows(batches: Sequence[bytes]) -> list[dict[str, object]]:
    return [
        row_of(record, 1 if batch[ATTRIBUTES_OFFSET + 1] & 0x08 else 0)
        for batch in batches
        for record in read_records(memoryview(batch))
    ]


@given(log=logs(), rows_max=st.integers(1, 30), bytes_max=st.integers(1, 2000), data=st.data())
def test_the_same_rows_as_the_reader_of_objects(
    log: list[bytes], rows_max: int, bytes_max: int, data: st.DataObject
) -> None:
    every = expected_rows(log)
    offsets = [row["offset"] for row in every] or [0]
    start = data.draw(st.sampled_from(offsets) | st.just(0))
    end = data.draw(st.sampled_from(offsets) | st.just(2**62))
    batches, following = decoded(b"".join(log), start=start, end=end, rows_max=rows_max, bytes_max=bytes_max)
    wanted = [row for row in every if start <= row["offset"] < end]  # type: ignore[operator]
    assert rows_of(batches) == wanted
    assert following >= max([start, *(row["offset"] + 1 for row in wanted)])  # type: ignore[operator]
    for batch in batches:
        assert batch.schema == SCHEMA_WITH_HEADERS
        assert 0 < batch.num_rows <= rows_max
        size = sum(len(row["key"] or b"") + len(row["value"] or b"") for row in batch.to_pylist())
        assert batch.num_rows == 1 or size <= bytes_max


@given(log=logs(), key=st.booleans(), value=st.booleans(), with_headers=st.booleans())
def test_columns_that_are_not_chosen_are_not_there(
    log: list[bytes], key: bool, value: bool, with_headers: bool
) -> None:
    choice = ColumnChoice(key=key, value=value, headers=with_headers)
    left_out = {name for name, chosen in (("key", key), ("value", value), ("headers", with_headers)) if not chosen}
    batches, _ = decoded(b"".join(log), columns=choice)
    wanted = [{name: row[name] for name in row.keys() - left_out} for row in expected_rows(log)]
    assert rows_of(batches) == wanted
    assert all(batch.schema == choice.schema for batch in batches)


def test_the_usual_choice_has_the_usual_schema() -> None:
    assert ColumnChoice().schema == SCHEMA
    assert ALL.schema == SCHEMA_WITH_HEADERS


def test_rows_of_several_answers_go_into_one_batch() -> None:
    decoder = Decoder(WHERE, ALL, rows_max=4, bytes_max=1000)
    assert decoder.add(memoryview(batch_of(0, 3)), start=0, end=100, aborted=[]) == 3
    assert list(decoder.take()) == []
    assert decoder.add(memoryview(batch_of(3, 3)), start=3, end=100, aborted=[]) == 6
    assert [batch.num_rows for batch in decoder.take()] == [4]
    assert [batch.num_rows for batch in decoder.take(all=True)] == [2]
    assert list(decoder.take(all=True)) == []


def test_taking_may_be_left_and_begun_anew() -> None:
    decoder = Decoder(WHERE, ALL, rows_max=2, bytes_max=1000)
    decoder.add(memoryview(batch_of(0, 3) + batch_of(3, 4)), start=0, end=100, aborted=None)
    taken = []
    for _ in range(4):
        taken += [next(decoder.take(all=True))]
    assert [row["offset"] for row in rows_of(taken)] == list(range(7))
    assert list(decoder.take(all=True)) == []


def test_batches_that_were_taken_do_not_change() -> None:
    decoder = Decoder(WHERE, ALL, rows_max=3, bytes_max=1000)
    decoder.add(memoryview(batch_of(0, 9)), start=0, end=100, aborted=None)
    assert [row["value"] for row in rows_of(list(decoder.take(all=True)))] == [b"v%d" % index for index in range(9)]


def test_rows_outside_the_range_are_left_out_and_what_is_behind_it_is_not_looked_at() -> None:
    batches, following = decoded(batch_of(0, 5) + batch_of(5, 5) + spoilt(batch_of(20, 5)), start=7, end=20)
    assert [row["offset"] for row in rows_of(batches)] == [7, 8, 9]
    assert following == 20  # the gap before it is skipped, too
    batches, following = decoded(batch_of(0, 5), start=2, end=4)
    assert [row["offset"] for row in rows_of(batches)] == [2, 3]
    assert following == 5


def test_gaps_of_compaction_are_skipped() -> None:
    empty = build_batch([], base_offset=10, last_offset_delta=9, compression=Compression.LZ4)
    batches, following = decoded(batch_of(2, 2) + empty + batch_of(30, 1))
    assert [row["offset"] for row in rows_of(batches)] == [2, 3, 30]
    assert following == 31
    assert decoded(batch_of(2, 2) + empty)[1] == 20


def test_an_incomplete_batch_is_left_for_the_next_fetch() -> None:
    whole, cut = batch_of(0, 3), batch_of(3, 3)
    for size in range(len(cut)):
        batches, following = decoded(whole + cut[:size])
        assert (len(rows_of(batches)), following) == (3, 3)
        assert decoded(cut[:size], start=3) == ([], 3)


def test_no_records_is_no_rows() -> None:
    assert decoded(b"", start=17) == ([], 17)


def marker(offset: int, producer_id: int, type: ControlType) -> bytes:
    return build_control_batch(
        type, timestamp=5, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, base_offset=offset
    )


def test_rows_of_aborted_transactions_are_not_seen() -> None:
    log = (
        batch_of(0, 2, producer_id=7, transactional=True)
        + batch_of(2, 2, producer_id=8, transactional=True)
        + batch_of(4, 1)
        + marker(5, 7, ControlType.ABORT)
        + batch_of(6, 2, producer_id=7, transactional=True)
        + marker(8, 8, ControlType.COMMIT)
        + marker(9, 7, ControlType.COMMIT)
        + batch_of(10, 1, producer_id=7, transactional=True)
        + batch_of(11, 1, producer_id=7)
        + marker(12, 7, ControlType.ABORT)
    )
    seen = lambda aborted, start=0: [row["offset"] for row in rows_of(decoded(log, aborted=aborted, start=start)[0])]  # noqa: E731
    assert seen([(7, 0), (7, 10)]) == [2, 3, 4, 6, 7, 11]
    assert seen([(7, 10), (7, 0)]) == [2, 3, 4, 6, 7, 11]
    assert seen([(7, 0), (7, 10)], start=1) == [2, 3, 4, 6, 7, 11]
    assert seen([]) == [0, 1, 2, 3, 4, 6, 7, 10, 11]
    assert seen(None) == [0, 1, 2, 3, 4, 6, 7, 10, 11]
    assert decoded(log, aborted=[(7, 0)])[1] == 13


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    emptied = build_batch([], base_offset=2, producer_id=7, transactional=True, control=True)
    log = (
        batch_of(0, 2, producer_id=7, transactional=True) + emptied + batch_of(3, 1, producer_id=7, transactional=True)
    )
    assert rows_of(decoded(log, aborted=[(7, 0)])[0]) == []


def test_big_rows() -> None:
    made = [
        Record(index, 1, b"k" * 70_000, bytes([index]) * 3_000_000, [("h" * 300, b"x" * 20_000)]) for index in range(3)
    ]
    for compression in Compression:
        batches, _ = decoded(build_batch(made, compression=compression), bytes_max=100_000)
        assert [batch.num_rows for batch in batches] == [1, 1, 1]
        assert rows_of(batches) == [row_of(record) for record in made]


def test_many_rows_in_small_and_large_batches() -> None:
    made = [
        Record(index, index, b"%d" % index, b"v" * (index % 50), [("h", None)] * (index % 3)) for index in range(30_000)
    ]
    data = b"".join(
        build_batch(made[first : first + 7000], base_offset=first, compression=Compression.ZSTD)
        for first in range(0, 30_000, 7000)
    )
    batches, following = decoded(data, rows_max=4096)
    assert [batch.num_rows for batch in batches] == [4096] * 7 + [30_000 - 7 * 4096]
    assert rows_of(batches) == [row_of(record) for record in made]
    assert following == 30_000


@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
def test_small_batches_are_looked_at_in_runs(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_RUN_ROWS_MAX", rows_at_once)
    kinds: list[dict[str, object]] = [
        {},
        {"log_append_time": 7},
        {"compression": Compression.SNAPPY},
        {"control": True},
    ]
    log = [batch_of(2 * number, 2, **kinds[number * number % 11 % 4]) for number in range(300)]
    seen = [batch for batch in log if not batch[ATTRIBUTES_OFFSET + 1] & 0x20]
    for rows_max in (7, 10_000):
        batches, following = decoded(b"".join(log), rows_max=rows_max)
        assert rows_of(batches) == expected_rows(seen)
        assert following == 600


def test_nothing_to_be_seen_for_a_long_time() -> None:
    hidden = b"".join(batch_of(5 * number, 5, control=True) for number in range(5000))
    batches, following = decoded(hidden + batch_of(25_000, 1))
    assert [row["offset"] for row in rows_of(batches)] == [25_000]
    assert following == 25_001


def test_memory_stays_flat() -> None:
    """However many answers there are: as much as one of them and one Arrow batch take."""
    decoder = Decoder(WHERE, ColumnChoice(), rows_max=1000, bytes_max=200_000)
    before = pa.total_allocated_bytes()
    for number in range(200):
        decoder.add(memoryview(batch_of(1000 * number, 1000)), start=0, end=2**62, aborted=[])
        assert sum(batch.num_rows for batch in decoder.take()) == 1000
        assert pa.total_allocated_bytes() - before < 500_000


def test_names_of_headers_that_are_no_text_are_replaced() -> None:
    area = bytes.fromhex("18 00 00 00 01 01 02 06 61 ff 62 02 78")
    batch = seal_batch(area, 1, last_offset_delta=0, base_timestamp=0, max_timestamp=0)
    assert rows_of(decoded(batch)[0])[0]["headers"] == [{"key": "a\ufffdb", "value": b"x"}]


# ---- what is wrong


def sealed_again(batch: bytearray) -> bytes:
    batch[CRC_OFFSET : CRC_OFFSET + 4] = crc32c(bytes(batch[ATTRIBUTES_OFFSET:])).to_bytes(4, "big")
    return bytes(batch)


def changed(batch: bytes, at: int, new: bytes) -> bytes:
    return batch[:at] + new + batch[at + len(new) :]


def spoilt(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def test_a_bad_checksum_names_the_place() -> None:
    with pytest.raises(ColumnarError, match="topic orders, partition 3, offset 5: bad records: the checksum"):
        decoded(batch_of(0, 5) + spoilt(batch_of(5, 3)))


def test_rows_before_a_bad_batch_can_be_had() -> None:
    decoder = Decoder(WHERE, ALL, rows_max=5, bytes_max=1000)
    decoder.add(memoryview(batch_of(0, 5) + spoilt(batch_of(5, 3))), start=0, end=100, aborted=None)
    taking = decoder.take()
    assert next(taking).num_rows == 5
    with pytest.raises(ColumnarError):
        next(taking)


@pytest.mark.parametrize(
    ("at", "new", "why"),
    [
        (16, b"\x01", "message format 1"),
        (0, b"\xff", "a batch that ends"),  # a negative offset
        (0, b"\x7f" + b"\xff" * 7, "a batch that ends"),
        (8, b"\x00\x00\x00\x30", "a batch of 48 bytes"),
        (8, b"\xff\xff\xff\xff", "a batch of -1 bytes"),
        (23, b"\xff\xff\xff\xff", "a batch that ends -1 offsets later"),
        (23, b"\x00\x00\x00\x01", "an offset delta of 4 after the last, 1"),
        (57, b"\xff\xff\xff\xff", "negative count"),
        (57, b"\x7f\xff\xff\xff", "cannot hold 2147483647 records"),
        (57, b"\x00\x00\x00\x06", "record 5"),
        (57, b"\x00\x00\x00\x04", "bytes are left"),
        (22, b"\x01", "gzip"),
        (22, b"\x02", "snappy"),
        (22, b"\x03", "lz4"),
        (22, b"\x04", "zstd"),
        (22, b"\x05", "unknown compression 5"),
        (27, b"\x7f" + b"\xff" * 7, "a timestamp"),
        (27, b"\x80" + b"\x00" * 7, "a timestamp"),
    ],
)
def test_lies_are_errors(at: int, new: bytes, why: str) -> None:
    lie = sealed_again(bytearray(changed(batch_of(0, 5), at, new)))
    with pytest.raises(ColumnarError, match=f"topic orders, partition 3, offset -?\\d+: bad records: .*{why}"):
        decoded(lie, aborted=[])


def test_times_of_the_log_that_no_column_can_hold() -> None:
    with pytest.raises(ColumnarError, match="a timestamp of"):
        decoded(batch_of(0, 2, log_append_time=2**62))


def test_offsets_that_go_back_are_an_error() -> None:
    with pytest.raises(ColumnarError, match="offset 4: bad records: a batch that follows offset 4"):
        decoded(batch_of(0, 5) + batch_of(4, 5))


def test_old_message_formats_are_named() -> None:
    old = bytes(8) + (20).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(15)
    with pytest.raises(ColumnarError, match="message format 1 is not read"):
        decoded(old)


def test_sizes_that_cannot_be_are_refused() -> None:
    for rows_max, bytes_max in ((0, 1), (1, 0), (2**31, 1), (1, 2**31)):
        with pytest.raises(ValueError, match="cannot be"):
            Decoder(WHERE, ALL, rows_max=rows_max, bytes_max=bytes_max)


@settings(max_examples=150)
@given(log=logs(), seal=st.booleans(), data=st.data())
def test_damage_gives_an_error_or_rows(log: list[bytes], seal: bool, data: st.DataObject) -> None:
    """Where the checksum is made to fit again, the inside is what is looked at."""
    damaged = []
    for batch in log:
        changing = bytearray(batch)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(ATTRIBUTES_OFFSET if seal else 0, len(changing) - 1))
            changing[at] = data.draw(st.sampled_from([0, 1, 2, 0x20, 0x7F, 0x80, 0xFF]))
        damaged.append(sealed_again(changing) if seal else bytes(changing))
    aborted = data.draw(st.none() | st.just([(-1, 0), (0, 0)]))
    try:
        batches, following = decoded(b"".join(damaged), aborted=aborted, rows_max=5)
    except ColumnarError as error:
        assert "topic orders, partition 3" in str(error)
    else:
        assert following >= 0
        assert all(batch.num_rows <= 5 for batch in batches)


@given(data=st.binary(max_size=200))
def test_garbage_gives_an_error_or_rows(data: bytes) -> None:
    try:
        decoded(data)
        decoded(bytes(16) + b"\x02" + data)
    except ColumnarError as error:
        assert "topic orders, partition 3" in str(error)


def test_buffers_grow_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_buffers, "_ITEMS_MIN", 1)
    made = [
        Record(index, 5, b"k" * index, None if index % 3 else b"v", [("h", b"w")] * (index % 4)) for index in range(200)
    ]
    data = b"".join(build_batch([record], base_offset=record.offset) for record in made)
    assert rows_of(decoded(data)[0]) == [row_of(record) for record in made]


def test_a_header_is_as_long_as_this_test_believes() -> None:
    assert len(build_batch([])) == HEADER_SIZE == 61
