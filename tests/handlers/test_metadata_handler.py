"""Metadata in every version: which topics are meant, by name and by id, and what is created on the way."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import NO_ID

VERSIONS = range(14)
NOBODY = UUID("12345678-1234-4234-8234-123456789012")
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = -(2**31)
ALL_TOPICS = {"topics*": "each broker has what other tests left behind"}
CREATED = {"topics*": "Kafka creates it after the answer, Penstock before: there is nothing to wait for"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_by_name(client, version):
    topic = client.topic(partitions=3)
    answer = client.ask("Metadata", version, topics=[{"name": topic}])
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.rack) == (0, "127.0.0.1", None)
    assert answer.controller_id == (0 if version >= 1 else -1)
    assert bool(answer.cluster_id) == (version >= 2)
    (found,) = answer.topics
    assert (found.name, found.error_code, found.is_internal) == (topic, Error.NONE, False)
    assert (found.topic_id != NO_ID) == (version >= 10)
    assert sorted(part.partition_index for part in found.partitions) == [0, 1, 2]
    for part in found.partitions:
        assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (Error.NONE, 0, [0], [0])
        assert part.leader_epoch == (0 if version >= 7 else -1)
    assert found.topic_authorized_operations == answer.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics(client, version):
    topic = client.topic()
    everything = [] if version == 0 else None
    answer = client.ask("Metadata", version, differs=ALL_TOPICS, topics=everything)
    assert topic in [found.name for found in answer.topics]
    assert [found.name for found in answer.topics] == sorted(found.name for found in answer.topics)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_no_topics(client, version):
    answer = client.ask("Metadata", version, topics=[])
    assert answer.topics == [] and answer.brokers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_named_twice(client, version):
    topic = client.topic()
    answer = client.ask("Metadata", version, topics=[{"name": topic}, {"name": topic}])
    assert [found.name for found in answer.topics] == [topic]


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_an_unknown_topic_that_must_not_be_created(client, version):
    name = f"{client.prefix}-{version}"
    for _ in range(2):
        answer = client.ask("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=False)
        (found,) = answer.topics
        assert (found.error_code, found.name, found.topic_id) == (Error.UNKNOWN_TOPIC_OR_PARTITION, name, NO_ID)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_that_is_created(client, version):
    name = f"{client.prefix}-{version}"
    asked = {"topics": [{"name": name}, {"name": name}], "allow_auto_topic_creation": True}
    answer = client.ask("Metadata", version, differs=CREATED, **asked)
    (found,) = answer.topics
    assert (found.error_code, found.name, len(found.partitions)) == (Error.NONE, name, 2)
    client.ask("Metadata", version, until=lambda answer: answer.topics[0].error_code == Error.NONE, **asked)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250])
def test_names_that_no_topic_can_have(client, version, name):
    answer = client.ask("Metadata", version, topics=[{"name": name}])
    (found,) = answer.topics
    assert (found.error_code, found.name) == (Error.INVALID_TOPIC_EXCEPTION, name)
    assert found.partitions == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_that_collides_is_not_created(client, version):
    dotted, underscored = f"{client.prefix}.{version}", f"{client.prefix}_{version}"
    client.topic(f".{version}")
    answer = client.ask("Metadata", version, topics=[{"name": underscored}, {"name": dotted}])
    codes = {found.name: found.error_code for found in answer.topics}
    assert codes == {dotted: Error.NONE, underscored: Error.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", VERSIONS)
def test_good_and_bad_names_together(client, version):
    topic = client.topic()
    names = [topic, "a/b", f"{client.prefix}-none"]
    answer = client.ask(
        "Metadata",
        version,
        differs=CREATED if version < 4 else None,
        topics=[{"name": name} for name in names],
        allow_auto_topic_creation=False,
    )
    codes = {found.name: found.error_code for found in answer.topics}
    assert codes[topic] == Error.NONE and codes["a/b"] == Error.INVALID_TOPIC_EXCEPTION
    assert codes[names[2]] == (Error.UNKNOWN_TOPIC_OR_PARTITION if version >= 4 else Error.NONE)


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(client, version):
    topic = client.topic(partitions=2)
    topic_id = client.topic_id(topic)
    answer = client.ask("Metadata", version, topics=[{"name": None, "topic_id": topic_id}])
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (Error.NONE, topic, topic_id)
    assert len(found.partitions) == 2


@pytest.mark.parametrize("version", [12, 13])
def test_by_an_unknown_id(client, version):
    answer = client.ask("Metadata", version, topics=[{"name": None, "topic_id": NOBODY}])
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (Error.UNKNOWN_TOPIC_ID, None, NOBODY)


@pytest.mark.parametrize("version", [12, 13])
def test_ids_known_and_unknown(client, version):
    topic_id = client.topic_id(client.topic())
    asked = [{"name": None, "topic_id": each} for each in (topic_id, NOBODY)]
    answer = client.ask("Metadata", version, topics=asked)
    codes = {found.topic_id: found.error_code for found in answer.topics}
    assert codes == {topic_id: Error.NONE, NOBODY: Error.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_by_id_and_name_in_one_request(client, version):
    topic = client.topic()
    topic_id = client.topic_id(topic)
    for asked in (
        [{"name": topic, "topic_id": topic_id}],
        [{"name": None, "topic_id": topic_id}, {"name": topic}],
        [{"name": topic, "topic_id": NOBODY}],
    ):
        answer = client.ask("Metadata", version, topics=asked)
        if version < 12:
            assert {found.error_code for found in answer.topics} == {Error.INVALID_REQUEST}
            assert answer.brokers == []
        else:
            assert len(answer.topics) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_neither_id_nor_name(client, version):
    reason = {"*": "Kafka fails inside and answers UNKNOWN_SERVER_ERROR without brokers"}
    answer = client.ask("Metadata", version, differs=reason, topics=[{"name": None, "topic_id": NO_ID}])
    assert [(found.error_code, found.name) for found in answer.topics] == [(Error.INVALID_TOPIC_EXCEPTION, "")]


@pytest.mark.parametrize("version", VERSIONS[8:])
def test_authorized_operations(client, version):
    topic = client.topic()
    answer = client.ask(
        "Metadata",
        version,
        topics=[{"name": topic}, {"name": f"{client.prefix}-none"}, {"name": "a/b"}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    found = {each.name: each.topic_authorized_operations for each in answer.topics}
    assert found[topic] == TOPIC_OPERATIONS
    assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED)
