"""A quiet client beside a noisy one: what its requests cost alone, beside the noise, and beside the noise with a quota.

The noisy client is librdkafka, which writes as fast as it can with a client id of its own; the quota is for that one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial

from confluent_kafka import Producer

from bench import work
from bench.brokers import Broker
from bench.load import Figures, MeasurementFailed, Options
from bench.stages import Run, running
from bench.topics import Topics
from penstock.testing.raw_client import RawClient
from penstock.wire.messages import k49_alter_client_quotas as k49

NOISY = "noisy"
QUOTA_BYTES_PER_S = 1_000_000
VALUE = bytes(100_000)
FLUSH_S = 30.0
SETTLE_S = 3.0  # the burst that a quota allows is over


def noisy_client(run: Run) -> None:
    if work.NOISY not in run.only:
        return
    with running(run, run.memory_folder) as brokers:
        for number in range(run.rounds):
            for broker in run.turns(brokers, number):
                run.measure(work.NOISY, broker.name, number, partial(_beside_noise, run, broker, number))


def _beside_noise(run: Run, broker: Broker, number: int) -> Figures:
    topics = Topics(broker.port)
    quiet, loud = f"quiet-{number}", f"loud-{number}"
    topics.create(quiet)
    topics.create(loud, settings={"retention.bytes": "100000000", "segment.bytes": "50000000"})
    try:
        alone = _quiet(run, broker, quiet)
        with _noise(broker.port, loud) as free:
            beside = _quiet(run, broker, quiet)
        _set_quota(broker.port, QUOTA_BYTES_PER_S)
        with _noise(broker.port, loud) as held:
            time.sleep(SETTLE_S)
            with_quota = _quiet(run, broker, quiet)
    finally:
        _set_quota(broker.port, None)
        topics.delete(loud)
        topics.delete(quiet)
    return {
        "p99_ms": alone["p99_ms"],
        "noise_p99_ms": beside["p99_ms"],
        "quota_p99_ms": with_quota["p99_ms"],
        "noise_mb_s": free.mb_s,
        "quota_mb_s": held.mb_s,
    }


def _quiet(run: Run, broker: Broker, topic: str) -> Figures:
    options: Options = {"topic": topic, "rate": 200, "connections": 2, "record_bytes": 1000}
    return run.load.run("rate", broker.port, options | {"seconds": run.sizes.quiet_seconds})


class _Noise:
    """What the noisy client got through."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.mb_s = 0.0


@contextlib.contextmanager
def _noise(port: int, topic: str) -> Iterator[_Noise]:
    """As much as a producer can, for as long as the block lasts."""
    noise, over = _Noise(), threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "client.id": NOISY,
            "acks": 1,
            "queue.buffering.max.kbytes": 20_000,
            "log_level": 0,
        }
    )

    def sent(error: object, _message: object) -> None:
        noise.sent_bytes += len(VALUE) if error is None else 0

    def pump() -> None:
        while not over.is_set():
            try:
                producer.produce(topic, VALUE, on_delivery=sent)
            except BufferError:
                producer.poll(0.05)

    pumping = threading.Thread(target=pump)
    began_s = time.monotonic()
    pumping.start()
    try:
        yield noise
    finally:
        over.set()
        pumping.join()
        noise.mb_s = noise.sent_bytes / (time.monotonic() - began_s) / 1e6
        producer.purge()
        producer.flush(FLUSH_S)


def _set_quota(port: int, bytes_per_s: int | None) -> None:
    operation = k49.AlterClientQuotasRequestOp(
        key="producer_byte_rate", value=float(bytes_per_s or 0), remove=bytes_per_s is None
    )
    entity = [k49.AlterClientQuotasRequestEntity(entity_type="client-id", entity_name=NOISY)]
    entry = k49.AlterClientQuotasRequestEntry(entity=entity, ops=[operation])
    client = RawClient("127.0.0.1", port)
    try:
        answer = client.call(k49.AlterClientQuotasRequest(entries=[entry]))
    finally:
        client.close()
    if any(row.error_code for row in answer.entries):
        raise MeasurementFailed("the quota cannot be set")
