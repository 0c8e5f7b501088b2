"""The admin calls of each client library, and `kcat -L`."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from .client import Admin, Client, Message, Refused
from .conftest import NewTopic
from .kcat_client import KcatClient

pytestmark = pytest.mark.clients

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


def fresh_name() -> str:
    return f"admin-{uuid4().hex[:12]}"


def test_a_topic_from_creation_to_deletion(library: Client) -> None:
    name = fresh_name()
    with library.admin() as admin:
        admin.create_topics({name: 3}, {"retention.ms": "60000", "cleanup.policy": "compact"})
        assert name in admin.list_topics()
        assert admin.partitions_of(name) == {number: (0, [0], [0]) for number in range(3)}
        configs = admin.topic_configs(name)
        assert (configs["retention.ms"], configs["cleanup.policy"]) == ("60000", "compact")
        assert configs["max.message.bytes"] == "1048588"
        admin.delete_topic(name)
        assert name not in admin.list_topics()


def test_refusals_have_kafkas_codes(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with library.admin() as admin:
        attempts = [
            (TOPIC_ALREADY_EXISTS, lambda: admin.create_topics({topic: 1})),
            (INVALID_TOPIC, lambda: admin.create_topics({"no spaces": 1})),
            (INVALID_CONFIG, lambda: admin.create_topics({fresh_name(): 1}, {"retention.ms": "soon"})),
            (INVALID_CONFIG, lambda: admin.create_topics({fresh_name(): 1}, {"no.such.setting": "1"})),
            (UNKNOWN_TOPIC_OR_PARTITION, lambda: admin.delete_topic(fresh_name())),
            (INVALID_PARTITIONS, lambda: admin.create_partitions(topic, 2)),
            (INVALID_PARTITIONS, lambda: admin.create_partitions(topic, 1)),
            (INVALID_CONFIG, lambda: admin.alter_topic_config(topic, "retention.ms", "soon")),
        ]
        assert [_code_of(attempt) for _, attempt in attempts] == [code for code, _ in attempts]


def _code_of(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except Refused as refusal:
        return refusal.code
    return 0


def test_more_partitions(library: Client, all_clients: dict[str, Client], new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1)
    library.produce(topic, [Message(b"before", partition=0)])
    with library.admin() as admin:
        admin.create_partitions(topic, 5)
        assert set(admin.partitions_of(topic)) == set(range(5))
    for client in all_clients.values():
        client.produce(topic, [Message(b"after", partition=4)])
    assert library.offsets(topic, 4) == (0, len(all_clients))
    assert library.consume(topic, 1)[0].value == b"before"


def test_a_producer_finds_new_partitions(library: Client, new_topic: NewTopic) -> None:
    """A client that knows the topic with one partition learns of the others when its metadata is refreshed."""
    topic = new_topic(partitions=1)
    library.produce(topic, [Message(b"0", partition=0)])
    with library.admin() as admin:
        admin.create_partitions(topic, 2)
    library.produce(topic, [Message(b"1", partition=1)])
    assert library.consume(topic, 1, [1])[0].value == b"1"


def test_a_setting_is_altered_while_the_topic_is_used(library: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    library.produce(topic, [Message(b"x" * 5000)])
    with library.admin() as admin:
        admin.alter_topic_config(topic, "max.message.bytes", "1000")
        assert admin.topic_configs(topic)["max.message.bytes"] == "1000"
        with pytest.raises(Refused):
            library.produce(topic, [Message(b"x" * 5000)])
        admin.alter_topic_config(topic, "max.message.bytes", "10000")
        library.produce(topic, [Message(b"x" * 5000)])
    assert library.offsets(topic, 0) == (0, 2)


def test_records_are_deleted_up_to_an_offset(
    library: Client, all_clients: dict[str, Client], new_topic: NewTopic
) -> None:
    topic = new_topic()
    library.produce(topic, [Message(b"%d" % number) for number in range(100)], linger_ms=20)
    with library.admin() as admin:
        assert admin.delete_records(topic, 0, 30) == 30
        assert admin.delete_records(topic, 0, 10) == 30
        with pytest.raises(Refused) as refusal:
            admin.delete_records(topic, 0, 101)
        assert refusal.value.code == OFFSET_OUT_OF_RANGE
    for client in all_clients.values():
        assert client.offsets(topic, 0) == (30, 100), client.name
        assert client.consume(topic, 1)[0].value == b"30", client.name
        assert client.consume(topic, 1, start=5, reset="earliest")[0].value == b"30", client.name
    with library.admin() as admin:
        assert admin.delete_records(topic, 0, -1) == 100
    assert library.offsets(topic, 0) == (100, 100)


def test_the_cluster(library: Client, bootstrap: str) -> None:
    with library.admin() as admin:
        seen = admin.describe_cluster()
    host, _, port = bootstrap.rpartition(":")
    assert seen.brokers == {0: (host, int(port))}
    assert seen.controller_id == 0
    assert seen.cluster_id


def test_all_clients_see_the_same_cluster(all_clients: dict[str, Client]) -> None:
    ids = set()
    for client in all_clients.values():
        if client.has_admin:
            with client.admin() as admin:
                ids.add(admin.describe_cluster().cluster_id)
    assert len(ids) == 1


def test_kcat_lists_topics(all_clients: dict[str, Client], new_topic: NewTopic, bootstrap: str) -> None:
    kcat = all_clients.get(KcatClient.name)
    if not isinstance(kcat, KcatClient):
        pytest.skip("kcat is not installed")
    topic = new_topic(partitions=3)
    said = kcat.list()
    assert f"broker 0 at {bootstrap} (controller)" in said
    assert f'topic "{topic}" with 3 partitions' in said
    assert "partition 2, leader 0, replicas: 0, isrs: 0" in said


def create_again(admin: Admin, topic: str) -> None:
    """Create a deleted topic, unless a client that still asks for it has made the broker do it."""
    try:
        admin.create_topics({topic: 1})
    except Refused as refusal:
        if refusal.code != TOPIC_ALREADY_EXISTS:
            raise


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_topic_is_deleted_and_created_again_under_clients(
    library: Client, admin: Admin, new_topic: NewTopic, idempotent: bool
) -> None:
    """A producer and a reader that know the old topic find the new one of the same name by themselves."""
    topic = new_topic()
    outcomes: list[Exception | None] = []

    def send(value: bytes) -> None:
        producer.send(topic, Message(value, partition=0), lambda _partition, _offset, error: outcomes.append(error))
        producer.flush()

    with library.producer(idempotent=idempotent) as producer, library.reader(topic) as reader:
        for number in range(10):
            send(b"old %d" % number)
        assert len(reader.read(10)) == 10
        admin.delete_topic(topic)
        create_again(admin, topic)
        send(b"new")
        assert outcomes == [None] * 11
        if library.follows_new_topics:
            assert reader.read(1)[0].value == b"new"
    assert library.consume(topic, 1)[0].value == b"new"
    assert library.offsets(topic, 0) == (0, 1)
