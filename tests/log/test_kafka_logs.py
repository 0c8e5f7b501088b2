"""Apache Kafka's tools read what we wrote, and our log opens what Apache Kafka wrote."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.base.identifiers import TopicPartition
from penstock.base.real_disk import RealDisk
from penstock.log.config import LogConfig
from penstock.log.inspect import Problem, partition_folders, verify_folder
from penstock.log.log_directory import LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_snapshot import decode_snapshot, encode_snapshot
from penstock.log.producers import ProducerState
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.log_machine import FixedClock, read_all
from penstock.wire.batch import read_header
from penstock.wire.compression import Compression
from penstock.wire.control import ControlType
from penstock.wire.records import Record, build_batch, read_records

pytestmark = pytest.mark.kafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STARTUP_S = 60


def run_java(libs: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["java", "-cp", f"{libs}/*", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def open_directory(path: Path, cluster_id: str = "c") -> LogDirectory:
    clock = FixedClock(int(time.time() * 1000))
    return LogDirectory.open(RealDisk(), clock, random.Random(1), str(path), node_id=1, cluster_id=cluster_id)


def write_log(path: Path) -> Path:
    """A few segments with everything in them; returns the partition's folder."""
    directory = open_directory(path)
    partition = TopicPartition("orders", 0)
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    log = directory.open_partition(partition, UUID(int=77), config)
    now_ms = int(time.time() * 1000)
    chance = random.Random(3)
    for number in range(300):
        records = [
            Record(n, now_ms + number * 10 - n, b"key%d" % n, chance.randbytes(60), [("h", b"1")]) for n in range(4)
        ]
        producer = {"producer_id": 40 + number % 2, "producer_epoch": 1, "base_sequence": number // 2 * 4}
        transactional = number >= 290
        encoded = build_batch(records, compression=Compression(number % 5), transactional=transactional, **producer)  # type: ignore[arg-type]
        batch = memoryview(bytearray(encoded))
        log.append_as_leader(batch, read_header(batch), number // 100, now_ms)
    for producer_id, kind in ((40, ControlType.ABORT), (41, ControlType.COMMIT)):
        log.append_marker(
            kind, producer_id=producer_id, producer_epoch=1, coordinator_epoch=3, leader_epoch=2, now_ms=now_ms
        )
    directory.close()
    return path / str(partition)


@pytest.fixture(scope="module")
def our_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("ours"))


def test_dump_log_segments_reads_our_files(kafka_libs: Path, our_folder: Path) -> None:
    files = [
        str(path)
        for path in sorted(our_folder.iterdir())
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    ]
    assert {Path(name).suffix for name in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    output = run_java(
        kafka_libs, "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files)
    )
    assert "isvalid: false" not in output
    assert "Mismatches" not in output and "Found" not in output, output[-2000:]
    offsets = [line for line in output.splitlines() if line.startswith("| offset:")]
    assert len(offsets) == 1202
    assert "producerId: 40 producerEpoch: 1" in output
    assert "endTxnMarker: ABORT" in output and "coordinatorEpoch: 3" in output


def test_its_index_sanity_check_passes(kafka_libs: Path, our_folder: Path) -> None:
    files = ",".join(str(path) for path in sorted(our_folder.iterdir()) if path.suffix.endswith("index"))
    output = run_java(kafka_libs, "org.apache.kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", files)
    assert "passed sanity check" in output
    assert "Found" not in output and "Mismatches" not in output


def apache_kafka(libs: Path, folder: Path) -> ApacheKafka:
    settings = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "512"}
    return ApacheKafka(libs, folder, settings=settings, node_id=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")


def produce_everything(kafka: ApacheKafka, topic: str) -> dict[int, list[bytes]]:
    """The values of each partition in order: every codec, idempotent, one transaction committed and one aborted."""
    bootstrap = kafka.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for number, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for index in range(400):
            value = b"%s-%d-" % (codec.encode(), index) + b"x" * (index % 300)
            producer.produce(topic, value, key=b"k", partition=index % 2, headers=[("codec", codec.encode())])
            sent[index % 2].append(value)
            if index % 50 == 49:
                producer.flush(30)
        assert producer.flush(30) == 0, number
    _produce_transactions(bootstrap, topic, sent)
    for partition, values in sent.items():
        wait_for_end(bootstrap, partition, len(values) + 2)
    return sent


def _produce_transactions(bootstrap: str, topic: str, sent: dict[int, list[bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"in a transaction", partition=partition)
            sent[partition].append(b"in a transaction")
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def wait_for_end(bootstrap: str, partition: int, end_offset: int) -> None:
    """A broker that has just started leads its partitions a moment later, and markers come after the transaction."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch", "log_level": 0})
    deadline = time.monotonic() + STARTUP_S
    found = (-1, -1)
    while found != (0, end_offset):
        assert time.monotonic() < deadline, found
        try:
            found = consumer.get_watermark_offsets(ClientPartition("events", partition), timeout=30)
        except KafkaException:
            continue
    consumer.close()


@pytest.fixture(scope="module")
def kafka_folder(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a broker left: after a kill, and after a clean stop."""
    kafka = apache_kafka(kafka_libs, tmp_path_factory.mktemp("kafka"))
    try:
        kafka.start()
        sent = produce_everything(kafka, "events")
        kafka.kill()
        shutil.copytree(kafka.data, kafka.folder / "killed")
        kafka.start()
        kafka.stop()
        shutil.copytree(kafka.data, kafka.folder / "clean")
        yield {"kafka": kafka, "sent": sent}
    finally:
        kafka.kill()


def values_of(log: PartitionLog) -> list[bytes | None]:
    batches = [memoryview(stored.content) for stored in read_all(log)]
    return [record.value for batch in batches if not read_header(batch).is_control for record in read_records(batch)]


@pytest.mark.parametrize("state", ["killed", "clean"])
def test_our_log_opens_what_kafka_wrote(kafka_folder: dict[str, Any], state: str, tmp_path: Path) -> None:
    kafka, sent = kafka_folder["kafka"], kafka_folder["sent"]
    path = tmp_path / state
    shutil.copytree(kafka.folder / state, path)
    directory = open_directory(path, kafka.cluster_id)
    assert directory.was_clean == (state == "clean")
    stored = {found.topic_partition: found.topic_id for found in directory.stored_partitions()}
    config = LogConfig(segment_bytes=1 << 20)
    for partition, values in sent.items():
        name = TopicPartition("events", partition)
        topic_id = stored[name]
        assert topic_id is not None
        log = directory.open_partition(name, topic_id, config)
        assert log.recovery.problem is None
        assert values_of(log) == values
        assert len(log.aborted_transactions(0, log.end_offset)) == 1
        assert len(log.producers) == len(CODECS) + 1
        found = log.read(0, 1 << 20, end_offset=log.end_offset)
        assert found.verify() is None
    directory.close()
    for folder in partition_folders(RealDisk(), str(path)):
        if "events" in folder:
            assert not [item for item in verify_folder(RealDisk(), folder) if isinstance(item, Problem)]


def test_producers_and_aborted_transactions_are_found_as_kafka_wrote_them_down(
    kafka_folder: dict[str, Any], tmp_path: Path
) -> None:
    """Everything that hangs on the log is taken away: what we find in the log itself is what Kafka's files say."""
    kafka, sent = kafka_folder["kafka"], kafka_folder["sent"]
    path = tmp_path / "bare"
    shutil.copytree(kafka.folder / "clean", path)
    theirs: dict[int, tuple[list[ProducerState], bytes]] = {}
    for partition in sent:
        folder = path / f"events-{partition}"
        snapshot = max(folder.glob("*.snapshot"))
        (aborted,) = [found.read_bytes() for found in folder.glob("*.txnindex") if found.stat().st_size]
        theirs[partition] = decode_snapshot(snapshot.read_bytes()), aborted
        for found in folder.iterdir():
            if found.suffix in (".snapshot", ".txnindex", ".index", ".timeindex"):
                found.unlink()
    (path / ".kafka_cleanshutdown").unlink()
    directory = open_directory(path, kafka.cluster_id)
    stored = {found.topic_partition: found.topic_id for found in directory.stored_partitions()}
    for partition, (states, aborted) in theirs.items():
        name = TopicPartition("events", partition)
        topic_id = stored[name]
        assert topic_id is not None
        log = directory.open_partition(name, topic_id, LogConfig(segment_bytes=1 << 20))
        assert {told(state) for state in log.producers} == {told(state) for state in states}
        assert {told(state) for state in decode_snapshot(encode_snapshot(log.producers))} == set(map(told, states))
        directory.close_partition(name)
        (ours,) = [found.read_bytes() for found in (path / str(name)).glob("*.txnindex") if found.stat().st_size]
        assert ours == aborted
    directory.close()


def told(state: ProducerState) -> tuple[int, ...]:
    """What Kafka's format says of a producer."""
    return (
        state.producer_id,
        state.epoch,
        state.last_sequence,
        state.last_offset,
        state.last_timestamp,
        state.coordinator_epoch,
        state.transaction_first_offset,
    )


def test_kafka_goes_on_with_a_folder_that_we_wrote_to(kafka_folder: dict[str, Any], tmp_path: Path) -> None:
    kafka, sent = kafka_folder["kafka"], kafka_folder["sent"]
    other = apache_kafka(kafka.jars, tmp_path)
    other.format()
    shutil.rmtree(other.data)
    shutil.copytree(kafka.folder / "clean", other.data)
    directory = open_directory(other.data, kafka.cluster_id)
    stored = {found.topic_partition: found.topic_id for found in directory.stored_partitions()}
    name = TopicPartition("events", 0)
    topic_id = stored[name]
    assert topic_id is not None
    log = directory.open_partition(name, topic_id, LogConfig(segment_bytes=1 << 20))
    ours = []
    for number in range(3000):
        ours.append(b"ours %d " % number + b"y" * 400)
        batch = memoryview(bytearray(build_batch([Record(0, int(time.time() * 1000), b"k", ours[-1])])))
        log.append_as_leader(batch, read_header(batch), log.epochs.latest, int(time.time() * 1000))
    end_offset = log.end_offset
    directory.close_partition(name)
    for other_name, other_id in stored.items():
        assert other_id is not None
        directory.open_partition(other_name, other_id, LogConfig())
    directory.close()
    try:
        other.start()
        consumer = Consumer({"bootstrap.servers": other.bootstrap, "group.id": "g", "log_level": 0})
        wait_for_end(other.bootstrap, 0, end_offset)
        consumer.assign([ClientPartition("events", 0, 0)])
        found: list[bytes | None] = []
        committed = sent[0][:-1]  # the last one was aborted
        deadline = time.monotonic() + 60
        while len(found) < len(committed) + len(ours):
            assert time.monotonic() < deadline
            found += [message.value() for message in consumer.consume(1000, 1) if message.error() is None]
        assert found == committed + ours
        consumer.close()
    finally:
        other.kill()
