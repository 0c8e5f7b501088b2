"""A quiet client beside compaction: what its requests cost while a large log is being compacted, and what before.

The log is filled with keys, each several times, and lies still as long as `min.cleanable.dirty.ratio` is 1. Then that
is lowered, and the same client goes on while the broker compacts. The speed is told by the broker's own checkpoint,
whose name and format are the same for both.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench import work
from bench.brokers import Broker
from bench.load import Figures, MeasurementFailed, Options
from bench.stages import Run, running
from bench.topics import Topics

SETTINGS = {"log.cleaner.backoff.ms": "100"}
TOPIC_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(100 << 20), "min.cleanable.dirty.ratio": "1.0"}
CHECKPOINT = "cleaner-offset-checkpoint"
VALUE_BYTES = 400
WRITES_OF_A_KEY = 5
WITHIN_S = 180
LOOK_EVERY_S = 0.1


def compactions(run: Run) -> None:
    if work.COMPACTION not in run.only:
        return
    with running(run, run.disk_folder, SETTINGS) as brokers:
        for number in range(run.rounds):
            for broker in run.turns(brokers, number):
                topic = f"compacted-{number}"
                run.measure(work.COMPACTION, broker.name, number, partial(_beside_compaction, run, broker, topic))


def _beside_compaction(run: Run, broker: Broker, topic: str) -> Figures:
    topics = Topics(broker.port)
    topics.create("quiet" + topic)
    topics.create(topic, settings=TOPIC_SETTINGS)
    try:
        _fill(broker.port, topic, run.sizes.cold_bytes)
        (folder,) = broker.data.rglob(f"{topic}-0")
        dirty = [path for path in sorted(folder.glob("*.log"))[:-1]]
        size_bytes = sum(path.stat().st_size for path in dirty)
        end_offset = int(max(folder.glob("*.log")).stem)
        alone = _quiet(run, broker, "quiet" + topic)
        _lower_ratio(broker.port, topic)
        began_s = time.monotonic()
        beside = _quiet(run, broker, "quiet" + topic)
        took_s = _until_compacted(folder.parent / CHECKPOINT, topic, end_offset) - began_s
    finally:
        topics.delete(topic)
        topics.delete("quiet" + topic)
    return {
        "p50_ms": alone["p50_ms"],
        "p99_ms": alone["p99_ms"],
        "beside_p50_ms": beside["p50_ms"],
        "beside_p99_ms": beside["p99_ms"],
        "beside_max_ms": beside["max_ms"],
        "compacted_mb_s": size_bytes / took_s / 1e6,
    }


def _quiet(run: Run, broker: Broker, topic: str) -> Figures:
    options: Options = {"topic": topic, "rate": 500, "connections": 5, "record_bytes": 1000}
    return run.load.run("rate", broker.port, options | {"seconds": run.sizes.quiet_seconds})


def _fill(port: int, topic: str, size_bytes: int) -> None:
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{port}", "batch.size": 1_000_000, "linger.ms": 50, "log_level": 0}
    )
    chance = random.Random(1)
    count = size_bytes // VALUE_BYTES
    values = [chance.randbytes(VALUE_BYTES) for _ in range(100)]
    for number in range(count):
        key = b"key %d" % chance.randrange(count // WRITES_OF_A_KEY)
        while True:
            try:
                producer.produce(topic, values[number % 100], key=key)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(WITHIN_S):
        raise MeasurementFailed(f"{topic} cannot be filled")


def _lower_ratio(port: int, topic: str) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    try:
        admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)
    except (KafkaException, FutureTimeout) as cause:
        raise MeasurementFailed(f"cannot alter {topic}: {cause}") from None


def _until_compacted(checkpoint: Path, topic: str, end_offset: int) -> float:
    """When the checkpoint said that all is compacted: the time it was written."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        for line in lines[2:]:
            name, _partition, offset = line.split()
            if name == topic and int(offset) >= end_offset:
                return time.monotonic() - max(0.0, time.time() - checkpoint.stat().st_mtime)
        time.sleep(LOOK_EVERY_S)
    raise MeasurementFailed(f"{topic} is not compacted after {WITHIN_S} s")
