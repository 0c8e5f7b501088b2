"""Apache Kafka and we compact the same log: the same is left, and each reads what the other left."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from penstock.base.identifiers import TopicPartition as Name
from penstock.base.real_disk import RealDisk
from penstock.log.checkpoints import DamagedCheckpoint, read_offsets
from penstock.log.config import LogConfig
from penstock.log.inspect import Problem, verify_folder
from penstock.log.log_directory import CLEANED_FILE, LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.log_compaction import compact
from penstock.testing.log_machine import FixedClock, read_all
from penstock.wire.batch import read_header
from penstock.wire.control import read_control_record
from penstock.wire.records import Record, read_records

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC = Name("events", 0)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIG = LogConfig(segment_bytes=1 << 20, cleanup_policy=frozenset({"compact"}))
WAIT_S = 90


def apache_kafka(libs: Path, folder: Path) -> ApacheKafka:
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    return ApacheKafka(libs, folder, settings=settings, node_id=1, cluster_id=CLUSTER_ID)


def write_workload(bootstrap: str) -> None:
    """Some megabytes: every codec, tombstones, committed and aborted transactions, several segments."""
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "1.0"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC.topic, 1, config=config)])[TOPIC.topic].result(30)
    chance = random.Random(5)

    def send(producer: Producer, count: int) -> None:
        for _ in range(count):
            value = None if chance.random() < 0.15 else chance.randbytes(chance.randrange(600)).hex()
            key = b"key %d" % chance.randrange(150)
            producer.produce(TOPIC.topic, value, key=key, partition=0, headers=[("h", b"1")])
        assert producer.flush(30) == 0

    for _ in range(3):
        for codec in CODECS:
            producer = Producer(
                {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
            )
            for _ in range(4):
                send(producer, 100)
        writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
        writer.init_transactions(30)
        for number in range(6):
            writer.begin_transaction()
            send(writer, 20)
            if number % 3 == 1:
                writer.abort_transaction(30)
            else:
                writer.commit_transaction(30)


def set_ratio(bootstrap: str, ratio: str) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", TOPIC.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def cleaned_offset(data: Path) -> int:
    try:
        return (read_offsets(RealDisk(), str(data / CLEANED_FILE)) or {}).get(TOPIC, 0)
    except DamagedCheckpoint:  # Apache Kafka begins with an empty file
        return 0


def wait_until_cleaned(data: Path) -> None:
    segments = sorted(path.stem for path in (data / str(TOPIC)).glob("*.log"))
    deadline = time.monotonic() + WAIT_S
    while cleaned_offset(data) < int(segments[-1]):
        assert time.monotonic() < deadline, "Apache Kafka does not compact"
        time.sleep(0.1)


class Folders:
    """One log as it was written, and after Apache Kafka has compacted it."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self.kafka = kafka
        self.written = kafka.folder / "written"
        self.cleaned = kafka.folder / "cleaned"


@pytest.fixture(scope="module")
def folders(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folders]:
    kafka = apache_kafka(kafka_libs, tmp_path_factory.mktemp("kafka"))
    found = Folders(kafka)
    try:
        kafka.start()
        write_workload(kafka.bootstrap)
        kafka.stop()
        shutil.copytree(kafka.data, found.written)
        kafka.start()
        set_ratio(kafka.bootstrap, "0.01")
        wait_until_cleaned(kafka.data)
        kafka.stop()
        shutil.copytree(kafka.data, found.cleaned)
        yield found
    finally:
        kafka.kill()


def open_log(path: Path) -> tuple[LogDirectory, PartitionLog]:
    clock = FixedClock(int(time.time() * 1000))
    directory = LogDirectory.open(RealDisk(), clock, random.Random(1), str(path), node_id=1, cluster_id=CLUSTER_ID)
    stored = {found.topic_partition: found.topic_id for found in directory.stored_partitions()}
    topic_id = stored[TOPIC]
    assert isinstance(topic_id, UUID)
    log = directory.open_partition(TOPIC, topic_id, CONFIG)
    assert log.recovery.problem is None
    log.producers.high_watermark_moved(log.end_offset)
    return directory, log


def told(log: PartitionLog) -> list[tuple[object, ...]]:
    """What is in a log: its records, its markers, and the ranges of its batches."""
    found: list[tuple[object, ...]] = []
    for stored in read_all(log):
        header = read_header(stored.content)
        batch = memoryview(stored.content)
        found.append((header.base_offset, header.last_offset, header.producer_id, header.base_sequence))
        if header.is_control and header.record_count:
            found.append((stored.base_offset, read_control_record(batch).type))
        else:
            found += [tuple_of(record) for record in read_records(batch)]
    return found


def tuple_of(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


def test_we_read_what_apache_kafka_has_compacted_and_go_on_with_it(folders: Folders, tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(folders.cleaned, path)
    directory, log = open_log(path)
    assert log.cleaned_offset == log.segments[-1].base_offset > 0
    before = told(log)
    done = compact(log, int(time.time() * 1000))
    assert (done.removed.total, done.cleaned_offset) == (0, log.cleaned_offset)
    assert told(log) == before
    directory.close()
    found = list(verify_folder(RealDisk(), str(path / str(TOPIC))))
    assert not [item for item in found if isinstance(item, Problem)]


def test_the_same_is_left_by_both(folders: Folders, tmp_path: Path) -> None:
    theirs_path, ours_path = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(folders.cleaned, theirs_path)
    shutil.copytree(folders.written, ours_path)
    theirs_directory, theirs = open_log(theirs_path)
    ours_directory, ours = open_log(ours_path)
    before_bytes = ours.size_bytes
    done = compact(ours, int(time.time() * 1000), step_bytes=1 << 20)
    assert done.cleaned_offset == theirs.cleaned_offset
    assert ours.size_bytes < before_bytes // 2
    assert told(ours) == told(theirs)
    assert ours.aborted_transactions(0, ours.end_offset) == theirs.aborted_transactions(0, theirs.end_offset)
    theirs_directory.close()
    ours_directory.close()


def test_its_tools_read_what_we_have_compacted(kafka_libs: Path, folders: Folders, tmp_path: Path) -> None:
    path = tmp_path / "data"
    shutil.copytree(folders.written, path)
    directory, log = open_log(path)
    compact(log, int(time.time() * 1000), step_bytes=1 << 20)
    kept = sum(read_header(stored.content).record_count for stored in read_all(log))
    directory.close()
    suffixes = (".log", ".index", ".timeindex", ".txnindex")
    files = ",".join(str(file) for file in sorted((path / str(TOPIC)).iterdir()) if file.suffix in suffixes)
    done = subprocess.run(
        [
            "java",
            "-cp",
            f"{kafka_libs}/*",
            "org.apache.kafka.tools.DumpLogSegments",
            "--deep-iteration",
            "--files",
            files,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    assert "Mismatches" not in done.stdout and "Found" not in done.stdout, done.stdout[-2000:]
    assert len([line for line in done.stdout.splitlines() if line.startswith("| offset:")]) == kept
    assert "deleteHorizonMs: OptionalLong[" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("state", ["done", "interrupted"])
def test_apache_kafka_goes_on_with_what_we_have_compacted(
    kafka_libs: Path, folders: Folders, tmp_path: Path, state: str
) -> None:
    other = apache_kafka(kafka_libs, tmp_path)
    other.format()
    shutil.rmtree(other.data)
    shutil.copytree(folders.written, other.data)
    directory, log = open_log(other.data)
    compact(log, int(time.time() * 1000), step_bytes=1 << 20)
    aborted = log.aborted_transactions(0, log.end_offset) or []
    assert aborted
    expected = [
        (record.offset, record.value)
        for stored in read_all(log)
        if not read_header(stored.content).is_control
        for record in read_records(memoryview(stored.content))
    ]
    end_offset = log.end_offset
    directory.close()
    if state == "interrupted":  # as a crash right before the last renames leaves it
        for file in (other.data / str(TOPIC)).glob(f"{0:020d}.*"):
            if file.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                file.rename(file.with_name(file.name + ".swap"))
    try:
        other.start()
        settings = {"group.id": "g", "isolation.level": "read_uncommitted", "log_level": 0}
        consumer = Consumer({"bootstrap.servers": other.bootstrap, **settings})
        consumer.assign([TopicPartition(TOPIC.topic, 0, 0)])
        found: list[tuple[int, bytes | None]] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < len(expected):
            assert time.monotonic() < deadline, (len(found), len(expected), end_offset)
            found += [
                (message.offset(), message.value()) for message in consumer.consume(1000, 1) if message.error() is None
            ]
        assert found == expected
        consumer.close()
    finally:
        other.kill()
