"""Quotas as clients feel them: told in the answer, and held all the same if they do not listen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.wire.api import APIS
from penstock.wire.codec import decode, encode
from penstock.wire.headers import decode_response_header
from penstock.wire.messages import k00_produce as k00
from penstock.wire.messages import k01_fetch as k01
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k19_create_topics as k19
from penstock.wire.messages import k49_alter_client_quotas as k49
from penstock.wire.records import Record, build_batch

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"quota.window.num": "2", "controller.quota.window.num": "2"}
    with BrokerProcess(tmp_path_factory.mktemp("quotas"), settings=settings) as process:
        yield process


class Asker:
    """A raw client with a client id of its own, that waits for nothing it is told."""

    def __init__(self, broker: BrokerProcess, client_id: str) -> None:
        self.client = RawClient(broker.host, broker.port)
        self.client_id = client_id

    def frame(self, key: int, version: int, request: Any) -> bytes:
        return self.client.frame(key, version, encode(request, version), self.client_id)

    def ask(self, key: int, version: int, request: Any) -> Any:
        self.client.send(self.frame(key, version, request))
        return self.receive(key, version)

    def receive(self, key: int, version: int) -> Any:
        answer = memoryview(self.client.receive_frame())
        _, position = decode_response_header(key, version, answer)
        return decode(APIS[key].response, version, answer, position)[0]


def set_quota(broker: BrokerProcess, client_id: str, **values: float) -> None:
    entry = k49.AlterClientQuotasRequestEntry(
        entity=[k49.AlterClientQuotasRequestEntity(entity_type="client-id", entity_name=client_id)],
        ops=[k49.AlterClientQuotasRequestOp(key=key, value=value) for key, value in values.items()],
    )
    answer = Asker(broker, "admin").ask(49, 1, k49.AlterClientQuotasRequest(entries=[entry]))
    assert [row.error_code for row in answer.entries] == [0]


def create(broker: BrokerProcess, topic: str, client_id: str = "admin", partitions: int = 1) -> Any:
    row = k19.CreateTopicsRequestTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = Asker(broker, client_id).ask(19, 7, k19.CreateTopicsRequest(topics=[row], timeout_ms=10_000))
    return answer


def produce_request(topic: str, size_bytes: int) -> k00.ProduceRequest:
    batch = build_batch([Record(0, 1, value=bytes(size_bytes))])
    data = k00.ProduceRequestPartition(index=0, records=batch)
    row = k00.ProduceRequestTopic(name=topic, partition_data=[data])
    return k00.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[row])


def fetch_request(topic: str) -> k01.FetchRequest:
    row = k01.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [k01.FetchRequestTopic(topic=topic, partitions=[row])]
    return k01.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)


def test_a_producer_is_told_and_then_held(broker: BrokerProcess) -> None:
    create(broker, "held")
    set_quota(broker, "noisy", producer_byte_rate=20_000)
    noisy = Asker(broker, "noisy")
    frame = noisy.frame(0, 9, produce_request("held", 10_000))
    began = time.monotonic()
    noisy.client.send(frame * 8)  # pipelined: it waits for nothing
    throttles = [noisy.receive(0, 9).throttle_time_ms for _ in range(8)]
    assert throttles[0] == 0 and max(throttles) > 0
    assert time.monotonic() - began >= 1.0  # 80 kB at 20 kB a second, with a burst of one window
    calm = Asker(broker, "calm")
    assert calm.ask(0, 9, produce_request("held", 10_000)).throttle_time_ms == 0


def test_a_consumer_gets_nothing_until_it_has_waited(broker: BrokerProcess) -> None:
    create(broker, "drained")
    writer = Asker(broker, "admin")
    for _ in range(10):
        assert writer.ask(0, 9, produce_request("drained", 10_000)).responses[0].partition_responses[0].error_code == 0
    set_quota(broker, "thirsty", consumer_byte_rate=20_000)
    reader = Asker(broker, "thirsty")
    sizes, throttles = [], []
    for _ in range(4):
        answer = reader.ask(1, 11, fetch_request("drained"))
        throttles.append(answer.throttle_time_ms)
        sizes.append(sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions))
    assert 0 < sizes[0] <= 20_000  # no more at once than the windows allow
    assert max(throttles) > 0 and 0 in sizes
    free = Asker(broker, "free").ask(1, 11, fetch_request("drained"))
    assert len(free.responses[0].partitions[0].records) > 90_000


def test_topics_are_refused_until_the_debt_is_paid(broker: BrokerProcess) -> None:
    set_quota(broker, "maker", controller_mutation_rate=1)
    assert create(broker, "made-1", "maker", partitions=5).topics[0].error_code == 0  # more than there is is lent
    late = create(broker, "made-2", "maker")
    assert late.topics[0].error_code == 89 and late.throttle_time_ms > 0
    assert create(broker, "made-3", "somebody").topics[0].error_code == 0


def test_the_time_of_requests_is_limited(broker: BrokerProcess) -> None:
    set_quota(broker, "busy", request_percentage=0.001)
    busy = Asker(broker, "busy")
    throttles = [busy.ask(0, 9, produce_request("held", 10)).throttle_time_ms for _ in range(3)]
    assert 0 < max(throttles) <= 1000


def test_the_client_id_of_a_broker_is_no_way_out(broker: BrokerProcess) -> None:
    create(broker, "disguised")
    name = "penstock-peer-1"
    set_quota(broker, name, producer_byte_rate=1000, controller_mutation_rate=1)
    liar = Asker(broker, name)
    assert liar.ask(0, 9, produce_request("disguised", 50_000)).throttle_time_ms > 0
    assert create(broker, "disguised-1", name, partitions=5).topics[0].error_code == 0
    assert create(broker, "disguised-2", name).topics[0].error_code == 89


def test_topics_made_by_using_them_count(broker: BrokerProcess) -> None:
    set_quota(broker, "user-of-topics", controller_mutation_rate=1)
    asker = Asker(broker, "user-of-topics")
    names = [f"used-{number}" for number in range(6)]
    topics = [k03.MetadataRequestTopic(name=name) for name in names]
    request = k03.MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    told = {topic.name: topic.error_code for topic in asker.ask(3, 9, request).topics}
    assert told[names[0]] == 0 and told[names[-1]] == 3  # what is over the quota is not there yet
    free = Asker(broker, "somebody").ask(3, 9, request)
    assert {topic.error_code for topic in free.topics} == {0}


def test_a_quota_counts_at_once_for_producers_on_their_short_way(broker: BrokerProcess) -> None:
    create(broker, "later")
    client = Asker(broker, "later")
    for _ in range(5):
        assert client.ask(0, 9, produce_request("later", 50_000)).throttle_time_ms == 0
    set_quota(broker, "later", producer_byte_rate=1000)
    assert client.ask(0, 9, produce_request("later", 50_000)).throttle_time_ms > 0


def test_librdkafka_keeps_to_it(broker: BrokerProcess) -> None:
    set_quota(broker, "rdkafka", producer_byte_rate=50_000)
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": f"{broker.host}:{broker.port}",
            "client.id": "rdkafka",
            "throttle_cb": lambda event: told.append(event.throttle_time),
            "linger.ms": 0,
            "batch.size": 20_000,
        }
    )
    create(broker, "rdkafka")
    for _ in range(12):
        producer.produce("rdkafka", bytes(15_000))
        producer.poll(0)
    assert producer.flush(30) == 0
    deadline = time.monotonic() + 5
    while not told and time.monotonic() < deadline:
        producer.poll(0.1)
    assert max(told) > 0
