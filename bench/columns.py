"""A topic as columns, beside the Python clients that go from message to message: the same topic, the same run.

Rows have a key of 8 bytes and a value of 192, and are made before a write is measured. Each client runs in this process
with its own defaults, nobody compresses, and the loops that read look at every value. They get fewer rows, since they
are slower, and their clocks start with their first messages, while columns count from the call. What counts is rows a
second, and how many times as fast columns are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AsyncTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench import machine, work
from bench.brokers import Broker
from bench.load import Figures, MeasurementFailed
from bench.stages import Run, measured, running
from bench.topics import Topics
from penstock.columnar.errors import ColumnarError
from penstock.columnar.reading import read
from penstock.columnar.writing import write

PARTITIONS = 4
VALUE_BYTES = 192
TABLE_ROWS = 100_000  # of which as many are written as there are rows to write
CONSUME_MESSAGES = 10_000
POLL_EVERY = 10_000
TIMEOUT_S = 120
NO_COMPRESSION = "none"


def columns(run: Run) -> None:
    items = {work.COLUMNS_READ: _read, work.COLUMNS_WRITE: _write}
    chosen = [name for name in items if name in run.only]
    if not chosen:
        return
    machine.warm_page_memory(run.memory_folder, run.sizes.warm_bytes)
    with running(run, run.memory_folder) as brokers:
        for broker in brokers:
            run.progress(f"warming up · columns · {broker.name}")
            for name in chosen:
                items[name](run, broker, f"warm-{name}", run.sizes.warm_up)
        for number in range(run.rounds):
            for name in chosen:
                for broker in run.turns(brokers, number):
                    run.measure(name, broker.name, number, partial(items[name], run, broker, f"{name}-{number}", 1.0))


def _read(run: Run, broker: Broker, topic: str, share: float) -> Figures:
    bootstrap, rows, messages = _sizes(run, broker, share)
    topics = Topics(broker.port)
    topics.create(topic, PARTITIONS)
    try:
        _write_columns(bootstrap, topic, _table(), rows)
        clients = {
            "columnar": _measured(broker, lambda: _read_columns(bootstrap, topic, rows)),
            "confluent": _measured(broker, lambda: _read_messages(bootstrap, topic, messages)),
            "aiokafka": _measured(broker, lambda: asyncio.run(_read_async(bootstrap, topic, messages))),
        }
    finally:
        topics.delete(topic)
    return _compared(clients)


def _write(run: Run, broker: Broker, topic: str, share: float) -> Figures:
    bootstrap, rows, messages = _sizes(run, broker, share)
    table, pairs = _table(), _rows(messages)
    topics = Topics(broker.port)
    topics.create(topic, PARTITIONS)
    try:
        clients = {
            "columnar": _measured(broker, lambda: _write_columns(bootstrap, topic, table, rows)),
            "confluent": _measured(broker, lambda: _write_messages(bootstrap, topic, pairs)),
        }
    finally:
        topics.delete(topic)
    return _compared(clients)


def _sizes(run: Run, broker: Broker, share: float) -> tuple[str, int, int]:
    """Where the broker is, and how many rows there are as columns, and as messages."""
    tables = max(1, int(run.sizes.column_rows * share) // TABLE_ROWS)
    return f"127.0.0.1:{broker.port}", tables * TABLE_ROWS, int(run.sizes.message_rows * share)


def _measured(broker: Broker, rows_s: Callable[[], float]) -> Figures:
    """What a client says that it does, with what it and everybody else used for it."""

    def load() -> Figures:
        cpu_before_s = time.process_time()
        try:
            figures = {"rows_s": rows_s()}
        except ColumnarError as error:
            raise MeasurementFailed(str(error)) from None
        return figures | {"client_cpu_s": time.process_time() - cpu_before_s}

    return measured(broker, load)


class _Clock:
    """Rows a second, from when it was made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def rows_s(self, rows: int) -> float:
        return rows / (time.monotonic() - self._began_s)

    def is_over(self) -> bool:
        return time.monotonic() - self._began_s > TIMEOUT_S


def _compared(clients: dict[str, Figures]) -> Figures:
    figures = {f"{name}_rows_s": of_client["rows_s"] for name, of_client in clients.items()}
    for name in clients.keys() - {"columnar"}:
        figures[f"over_{name}"] = figures["columnar_rows_s"] / figures[f"{name}_rows_s"]
    return figures | {"other_cores": max(of_client["other_cores"] for of_client in clients.values())}


# ---- columns


def _rows(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"%08d" % number, (b"%012d" % number) * (VALUE_BYTES // 12)) for number in range(count)]


def _table() -> pa.RecordBatch:
    keys, values = zip(*_rows(TABLE_ROWS), strict=True)
    return pa.RecordBatch.from_pydict({"key": pa.array(keys), "value": pa.array(values)})


def _write_columns(bootstrap: str, topic: str, table: pa.RecordBatch, rows: int) -> float:
    clock = _Clock()
    written = write([table] * (rows // TABLE_ROWS), topic, bootstrap, compression=NO_COMPRESSION)
    _check("written", written.rows, rows)
    return clock.rows_s(rows)


def _read_columns(bootstrap: str, topic: str, rows: int) -> float:
    clock = _Clock()
    _check("read", sum(batch.num_rows for batch in read(bootstrap, topic)), rows)
    return clock.rows_s(rows)


def _check(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise MeasurementFailed(f"{found} rows of {expected} were {what}")


# ---- messages


def _write_messages(bootstrap: str, topic: str, pairs: Sequence[tuple[bytes, bytes]]) -> float:
    """As a program does that wants it fast: a large queue, and a look at the answers now and then."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
    )
    producer.produce(topic, b"first", b"first")
    _check("written", 1 - producer.flush(TIMEOUT_S), 1)
    clock = _Clock()
    for number, (key, value) in enumerate(pairs):
        producer.produce(topic, value, key)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    _check("written", len(pairs) - producer.flush(TIMEOUT_S), len(pairs))
    return clock.rows_s(len(pairs))


def _read_messages(bootstrap: str, topic: str, count: int) -> float:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-columns", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    received = received_bytes = 0
    try:
        _check("read", len(consumer.consume(1, timeout=TIMEOUT_S)), 1)
        clock = _Clock()
        while received < count and not clock.is_over():
            for message in consumer.consume(CONSUME_MESSAGES, timeout=1):
                if message.error():
                    raise MeasurementFailed(str(message.error()))
                received_bytes += len(message.value())
                received += 1
        rows_s = clock.rows_s(received)
    finally:
        consumer.close()
    _check("read", min(received_bytes // VALUE_BYTES, count), count)
    return rows_s


async def _read_async(bootstrap: str, topic: str, count: int) -> float:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    received = received_bytes = 0
    await consumer.start()
    try:
        consumer.assign([AsyncTopicPartition(topic, partition) for partition in range(PARTITIONS)])
        await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
        clock = _Clock()
        while received < count and not clock.is_over():
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                received += len(messages)
                received_bytes += sum(len(message.value) for message in messages)
        rows_s = clock.rows_s(received)
    finally:
        await consumer.stop()
    _check("read", min(received_bytes // VALUE_BYTES, count), count)
    return rows_s
