"""We read the batches of other clients, and they read ours: kafka-python, aiokafka, Apache Kafka's own classes."""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.batch import HEADER_SIZE, problem_of_batch, read_header
from penstock.wire.compression import Compression
from penstock.wire.control import ControlType, build_control_batch, read_control_record
from penstock.wire.records import Record, build_batch, read_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, while it is imported
    import kafka.codec
    import kafka.record.default_records as kafka_python_records

HERE = Path(__file__).parent

# kafka-python brings none of its codecs along but gzip
KAFKA_PYTHON_HAS: dict[Compression, Callable[[], bool]] = {
    Compression.NONE: lambda: True,
    Compression.GZIP: kafka.codec.has_gzip,
    Compression.SNAPPY: kafka.codec.has_snappy,
    Compression.LZ4: kafka.codec.has_lz4,
    Compression.ZSTD: kafka.codec.has_zstd,
}
CLIENTS = [
    pytest.param(client, codec, id=f"{name} {codec.name.lower()}")
    for name, client in (("kafka-python", kafka_python_records), ("aiokafka", aiokafka_records))
    for codec in Compression
    if client is aiokafka_records or KAFKA_PYTHON_HAS[codec]()
]

rows = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=150),
        st.none() | st.binary(max_size=150),
        st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def records_of(drawn: list[tuple[Any, ...]]) -> list[Record]:
    return [Record(offset, *row) for offset, row in enumerate(drawn)]


def their_batch(client: Any, codec: Compression, records: list[Record]) -> bytes:
    builder = client.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=5,
        producer_epoch=3,
        base_sequence=8,
        batch_size=10_000_000,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def our_batch(codec: Compression, records: list[Record]) -> bytes:
    return build_batch(
        records,
        compression=codec,
        transactional=True,
        producer_id=5,
        producer_epoch=3,
        base_sequence=8,
    )


@pytest.mark.parametrize(("client", "codec"), CLIENTS)
@settings(max_examples=25)
@given(drawn=rows)
def test_python_clients_both_ways(client: Any, codec: Compression, drawn: list[tuple[Any, ...]]) -> None:
    records = records_of(drawn)
    theirs = memoryview(their_batch(client, codec, records))
    assert problem_of_batch(theirs, read_header(theirs)) is None
    assert read_records(theirs) == records

    ours = client.DefaultRecordBatch(our_batch(codec, records))
    assert ours.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, [*map(tuple, r.headers)]) for r in ours] == records
    assert (ours.is_transactional, ours.producer_id, ours.producer_epoch, ours.base_sequence) == (True, 5, 3, 8)


@pytest.mark.parametrize("client", [kafka_python_records, aiokafka_records], ids=["kafka-python", "aiokafka"])
@settings(max_examples=25)
@given(drawn=rows)
def test_uncompressed_batches_are_the_same_bytes(client: Any, drawn: list[tuple[Any, ...]]) -> None:
    """All but the leader epoch, which a producer may set as it likes."""
    records = records_of(drawn)
    theirs, ours = their_batch(client, Compression.NONE, records), our_batch(Compression.NONE, records)
    assert theirs[:12] + theirs[16:] == ours[:12] + ours[16:]


@pytest.mark.kafka
def test_apache_kafka_both_ways(tmp_path: Path, kafka_libs: Path) -> None:
    records = [
        Record(
            7 + number,
            1_700_000_000_000 + number * 37 % 1000,
            None if number % 5 == 0 else b"key %d" % number,
            None if number % 7 == 0 else b"value %d " % number * (number % 50),
            [("name é", b"%d" % number), ("null", None), ("", b"")] if number % 3 == 0 else [],
        )
        for number in range(3_000)
    ]
    for codec in Compression:
        (tmp_path / f"{codec.name}.in").write_bytes(build_batch(records, base_offset=7, compression=codec))
    marker = build_control_batch(
        ControlType.ABORT, timestamp=99, producer_id=6, producer_epoch=1, coordinator_epoch=13, base_offset=70
    )
    (tmp_path / "MARKER.in").write_bytes(marker)

    names = ",".join([codec.name for codec in Compression] + ["MARKER"])
    command = ["java", "-cp", f"{kafka_libs}/*", str(HERE / "BatchInterop.java"), str(tmp_path), names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    for codec in Compression:
        batch = memoryview((tmp_path / f"{codec.name}.out").read_bytes())
        assert problem_of_batch(batch, read_header(batch)) is None
        assert read_header(batch).compression == codec
        assert read_records(batch) == records
    assert (tmp_path / "NONE.out").read_bytes()[HEADER_SIZE:] == (tmp_path / "NONE.in").read_bytes()[HEADER_SIZE:]
    theirs = (tmp_path / "MARKER.out").read_bytes()
    assert theirs == marker
    assert read_control_record(memoryview(theirs)).coordinator_epoch == 13
