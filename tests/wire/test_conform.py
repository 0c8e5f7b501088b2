"""What a topic asks of the inside of a batch."""

from __future__ import annotations

import pytest

from penstock.base.errors import ApiError, Error
from penstock.wire.batch import check_produced_batch, read_header
from penstock.wire.compression import Compression
from penstock.wire.conform import InsideRules, conform
from penstock.wire.records import Record, build_batch, read_records

RECORDS = [Record(n, 1_700_000_000_000 + n, b"key-%d" % n, b"value " * 50, [("h", b"1")]) for n in range(20)]


def batch_of(codec: Compression, records: list[Record] = RECORDS) -> memoryview:
    built = build_batch(records, compression=codec, producer_id=7, producer_epoch=3, base_sequence=40)
    return memoryview(bytearray(built))


@pytest.mark.parametrize("sent", Compression)
@pytest.mark.parametrize("wanted", Compression)
def test_a_batch_gets_the_compression_of_its_topic(sent: Compression, wanted: Compression) -> None:
    batch = batch_of(sent)
    conformed = conform(batch, InsideRules(compression=wanted))
    header = check_produced_batch(conformed)
    assert header.compression == wanted
    assert read_records(conformed) == RECORDS
    before = read_header(batch)
    for field in ("producer_id", "producer_epoch", "base_sequence", "base_timestamp", "max_timestamp", "record_count"):
        assert getattr(header, field) == getattr(before, field)
    assert (conformed is batch) == (sent is wanted)


def test_the_level_is_the_topics() -> None:
    records = [Record(n, 0, b"k", bytes(range(256)) * 20 + b"%d" % n) for n in range(200)]
    fast = conform(batch_of(Compression.NONE, records), InsideRules(Compression.GZIP, level=1))
    small = conform(batch_of(Compression.NONE, records), InsideRules(Compression.GZIP, level=9))
    assert len(small) < len(fast)


def test_without_rules_a_batch_passes_as_it_is() -> None:
    batch = batch_of(Compression.LZ4)
    assert not InsideRules()
    assert conform(batch, InsideRules()) is batch


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_refuses_a_record_without_a_key(codec: Compression) -> None:
    rules = InsideRules(needs_keys=True)
    good = batch_of(codec)
    assert conform(good, rules) is good
    with pytest.raises(ApiError) as refused:
        conform(batch_of(codec, [*RECORDS, Record(20, 0, None, b"no key")]), rules)
    assert refused.value.error is Error.INVALID_RECORD


def test_a_batch_whose_inside_lies_is_refused() -> None:
    lying = memoryview(bytearray(build_batch(RECORDS[:2], compression=Compression.NONE)))
    rules = InsideRules(compression=Compression.ZSTD)
    broken = bytearray(build_batch([Record(0, 0, b"k", b"v")], compression=Compression.GZIP))
    broken[70] ^= 0xFF
    with pytest.raises(ApiError) as refused:
        conform(memoryview(broken), rules)
    assert refused.value.error is Error.CORRUPT_MESSAGE
    assert read_records(conform(lying, rules)) == RECORDS[:2]
