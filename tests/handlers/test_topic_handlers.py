"""CreateTopics, DeleteTopics and CreatePartitions in every version: what is done, refused, and only tried."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import NO_ID
from penstock.base.settings import Source

CREATE = range(2, 8)
DELETE = range(1, 7)
GROW = range(4)
NOBODY = UUID("12345678-1234-4234-8234-123456789012")
CONFIGS = {"topics[[]*].configs*": "compared in test_the_settings_of_a_new_topic"}


def create(client, version, *topics, differs=None, **more):
    answer = client.ask(
        "CreateTopics", version, differs=CONFIGS | (differs or {}), topics=list(topics), timeout_ms=10_000, **more
    )
    return {topic.name: topic for topic in answer.topics}


def new(name, partitions=1, replicas=1, assignments=(), **configs):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": list(ids)} for index, ids in assignments],
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }


def described(client, name):
    answer = client.ask(
        "Metadata",
        12,
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
        until=lambda answer: answer.topics[0].error_code == Error.NONE,
    )
    return answer.topics[0]


def is_unknown(client, name):
    answer = client.ask(
        "Metadata",
        12,
        topics=[{"name": name}],
        allow_auto_topic_creation=False,
        until=lambda answer: answer.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION,
    )
    return answer


# ── CreateTopics ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", CREATE)
def test_create(client, version):
    one, three = f"{client.prefix}-1", f"{client.prefix}-3"
    answers = create(client, version, new(one), new(three, 3, retention_ms="1000"))
    assert {answer.error_code for answer in answers.values()} == {Error.NONE}
    if version >= 5:
        assert (answers[three].num_partitions, answers[three].replication_factor) == (3, 1)
        assert answers[three].topic_config_error_code == Error.NONE
    assert (answers[three].topic_id != NO_ID) == (version >= 7)
    assert len(described(client, one).partitions) == 1
    found = described(client, three)
    assert len(found.partitions) == 3
    if version >= 7:
        assert found.topic_id == answers[three].topic_id


@pytest.mark.parametrize("version", CREATE)
@pytest.mark.parametrize("validate_only", [False, True])
def test_the_settings_of_a_new_topic(client, version, validate_only):
    name = f"{client.prefix}-s"
    differs = {
        "topics[[]*].configs": "the number of settings",
        "topics[[]*].configs[[]flush.mode]*": "Penstock's own",
        "*.configs[[]min.insync.replicas]*": "Kafka sets it for the whole cluster when it is formatted",
    }
    topic = new(name, retention_ms="5000", cleanup_policy="compact")
    answer = client.ask("CreateTopics", version, differs=differs, topics=[topic], validate_only=validate_only)
    configs = {config.name: config for config in answer.topics[0].configs or ()}
    assert bool(configs) == (version >= 5)
    if configs:
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", Source.TOPIC)
        assert (configs["flush.ms"].config_source, configs["flush.ms"].is_sensitive) == (Source.DEFAULT, False)
        assert configs["max.message.bytes"].config_source == Source.STATIC_BROKER


@pytest.mark.parametrize("version", CREATE)
@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_there_is_no_time(client, version, timeout_ms):
    name = f"{client.prefix}-t"
    hurried = {"topics*": "Kafka may give up, and create the topic nevertheless; Penstock answers when it is done"}
    topics = [new(name)]
    answer = client.ask("CreateTopics", version, differs=hurried, topics=topics, timeout_ms=timeout_ms)
    assert answer.topics[0].error_code == Error.NONE


@pytest.mark.parametrize("version", CREATE)
def test_create_with_the_broker_s_defaults(client, version):
    name = f"{client.prefix}-d"
    answer = create(client, version, new(name, -1, -1))[name]
    assert answer.error_code == Error.NONE
    assert len(described(client, name).partitions) == 2
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (2, 1)


@pytest.mark.parametrize("version", CREATE)
def test_create_only_to_see(client, version):
    name = f"{client.prefix}-v"
    answer = create(client, version, new(name, 2, 1, retention_ms="5"), validate_only=True)[name]
    assert answer.error_code == Error.NONE
    is_unknown(client, name)
    assert create(client, version, new(name, 2, 1, nonsense="5"), validate_only=True)[name].error_code == (
        Error.INVALID_CONFIG
    )


@pytest.mark.parametrize("version", CREATE)
@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (new("bad/name"), Error.INVALID_TOPIC_EXCEPTION),
        (new(""), Error.INVALID_TOPIC_EXCEPTION),
        (new("."), Error.INVALID_TOPIC_EXCEPTION),
        (new("x" * 250), Error.INVALID_TOPIC_EXCEPTION),
        (new("@", 0), Error.INVALID_PARTITIONS),
        (new("@", -2), Error.INVALID_PARTITIONS),
        (new("@", 1, 0), Error.INVALID_REPLICATION_FACTOR),
        (new("@", 1, -2), Error.INVALID_REPLICATION_FACTOR),
        (new("@", 1, 2), Error.INVALID_REPLICATION_FACTOR),
        (new("@", 1, 1, [(0, [0])]), Error.INVALID_REQUEST),
        (new("@", -1, 1, [(0, [0])]), Error.INVALID_REQUEST),
        (new("@", 1, -1, [(0, [0])]), Error.INVALID_REQUEST),
        (new("@", -1, -1, [(0, [])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", -1, -1, [(0, [7])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", -1, -1, [(0, [0, 0])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", -1, -1, [(1, [0])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", -1, -1, [(0, [0]), (0, [0])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", -1, -1, [(0, [0]), (2, [0])]), Error.INVALID_REPLICA_ASSIGNMENT),
        (new("@", no_such_setting="1"), Error.INVALID_CONFIG),
        (new("@", retention_ms="soon"), Error.INVALID_CONFIG),
        (new("@", retention_ms="-2"), Error.INVALID_CONFIG),
        (new("@", retention_ms=None), Error.INVALID_CONFIG),
        (new("@", cleanup_policy="burn"), Error.INVALID_CONFIG),
        (new("@", min_insync_replicas="0"), Error.INVALID_CONFIG),
        (new("@", min_compaction_lag_ms="9", max_compaction_lag_ms="8"), Error.INVALID_CONFIG),
    ],
    ids=lambda value: value.name if isinstance(value, Error) else "",
)
def test_create_refused(client, version, topic, error):
    topic = topic | {"name": topic["name"].replace("@", client.prefix)}
    answer = create(client, version, topic)[topic["name"]]
    assert answer.error_code == error
    assert answer.error_message
    assert answer.topic_id == NO_ID


@pytest.mark.parametrize("version", CREATE)
def test_create_by_hand(client, version):
    name = f"{client.prefix}-m"
    answer = create(client, version, new(name, -1, -1, [(1, [0]), (0, [0])]))[name]
    assert answer.error_code == Error.NONE
    assert len(described(client, name).partitions) == 2


@pytest.mark.parametrize("version", CREATE)
def test_create_what_is_there(client, version):
    name = client.topic("-a.b")
    assert create(client, version, new(name))[name].error_code == Error.TOPIC_ALREADY_EXISTS
    assert create(client, version, new(name), validate_only=True)[name].error_code == Error.TOPIC_ALREADY_EXISTS
    collides = f"{client.prefix}-a_b"
    assert create(client, version, new(collides))[collides].error_code == Error.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", CREATE)
def test_one_name_twice_in_a_request(client, version):
    twice, once = f"{client.prefix}-2", f"{client.prefix}-1"
    answers = create(client, version, new(twice), new(once), new(twice))
    assert answers[twice].error_code == Error.INVALID_REQUEST
    assert answers[once].error_code == Error.NONE
    is_unknown(client, twice)


@pytest.mark.parametrize("version", CREATE)
def test_two_new_names_that_collide(client, version):
    names = [f"{client.prefix}-{version}.x", f"{client.prefix}-{version}_x"]
    reason = {f"topics[[]{names[1]}].*": "Kafka creates both, and then has two topics with the same metric names"}
    answers = create(client, version, *(new(name) for name in names), differs=reason)
    assert sorted(answer.error_code for answer in answers.values()) == [Error.NONE, Error.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("version", CREATE)
def test_create_nothing(client, version):
    assert create(client, version) == {}


def test_create_with_a_setting_twice(client):
    name = f"{client.prefix}-t"
    topic = new(name) | {"configs": [{"name": "retention.ms", "value": value} for value in ("5", "6")]}
    create(client, 7, topic)


# ── DeleteTopics ─────────────────────────────────────────────────────────────────────────────────────────────────


def delete(client, version, *names, ids=()):
    topics = [{"name": name} for name in names] + [{"name": None, "topic_id": each} for each in ids]
    answer = client.ask("DeleteTopics", version, topics=topics, topic_names=list(names), timeout_ms=10_000)
    return answer.responses


@pytest.mark.parametrize("version", DELETE)
def test_delete_by_name(client, version):
    name = client.topic(partitions=2)
    topic_id = client.topic_id(name)
    (answer,) = delete(client, version, name)
    assert (answer.name, answer.error_code) == (name, Error.NONE)
    assert answer.topic_id == (topic_id if version >= 6 else NO_ID)
    is_unknown(client, name)
    assert client.topic(partitions=1) == name
    assert client.topic_id(name) != topic_id


@pytest.mark.parametrize("version", DELETE)
def test_delete_what_is_not_there(client, version):
    there, missing = client.topic(), f"{client.prefix}-none"
    answers = {answer.name: answer for answer in delete(client, version, missing, there)}
    assert answers[missing].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answers[there].error_code == Error.NONE


@pytest.mark.parametrize("version", DELETE)
@pytest.mark.parametrize("name", ["", "a/b"])
def test_delete_a_bad_name(client, version, name):
    (answer,) = delete(client, version, name)
    assert answer.error_code in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION)


@pytest.mark.parametrize("version", DELETE)
def test_delete_one_name_twice(client, version):
    name = client.topic()
    answers = delete(client, version, name, name)
    assert {answer.error_code for answer in answers} == {Error.INVALID_REQUEST}
    described(client, name)


@pytest.mark.parametrize("version", DELETE)
def test_delete_nothing(client, version):
    assert delete(client, version) == []


def test_delete_by_id(client):
    name = client.topic()
    topic_id = client.topic_id(name)
    (answer,) = delete(client, 6, ids=[topic_id])
    assert (answer.name, answer.topic_id, answer.error_code) == (name, topic_id, Error.NONE)
    is_unknown(client, name)


def test_delete_by_an_unknown_id(client):
    (answer,) = delete(client, 6, ids=[NOBODY])
    assert (answer.name, answer.topic_id, answer.error_code) == (None, NOBODY, Error.UNKNOWN_TOPIC_ID)


def test_delete_by_no_id_and_no_name(client):
    (answer,) = delete(client, 6, ids=[NO_ID])
    assert answer.error_code == Error.INVALID_REQUEST


def test_delete_by_name_and_id_together(client):
    name = client.topic()
    topic_id = client.topic_id(name)
    answer = client.ask("DeleteTopics", 6, topics=[{"name": name, "topic_id": topic_id}], timeout_ms=1000)
    assert answer.responses[0].error_code == Error.INVALID_REQUEST


def test_delete_by_name_and_again_by_id(client):
    name = client.topic()
    answers = delete(client, 6, name, ids=[client.topic_id(name)])
    assert [answer.error_code for answer in answers] == [Error.INVALID_REQUEST]


# ── CreatePartitions ─────────────────────────────────────────────────────────────────────────────────────────────


def grow(client, version, *topics, validate_only=False):
    answer = client.ask(
        "CreatePartitions",
        version,
        topics=[{"assignments": None} | topic for topic in topics],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    return {result.name: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", GROW)
def test_grow(client, version):
    name, other = client.topic("-a"), client.topic("-b")
    by_hand = [{"broker_ids": [0]}, {"broker_ids": [0]}]
    answers = grow(client, version, {"name": name, "count": 4}, {"name": other, "count": 3, "assignments": by_hand})
    assert answers == {name: Error.NONE, other: Error.NONE}
    for topic, count in ((name, 4), (other, 3)):
        client.ask(
            "Metadata",
            12,
            topics=[{"name": topic}],
            until=lambda answer, n=count: len(answer.topics[0].partitions) == n,
        )


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_topics_that_tell_where_groups_are_do_not_grow(client, topic):
    answer = client.ask(
        "CreatePartitions",
        3,
        topics=[{"name": topic, "count": 100, "assignments": None}],
        timeout_ms=10_000,
        not_kafka="Kafka lets them grow, and does not find its groups after the next start",
    )
    assert answer.results[0].error_code == Error.INVALID_PARTITIONS


@pytest.mark.parametrize("version", GROW)
def test_grow_only_to_see(client, version):
    name = client.topic()
    assert grow(client, version, {"name": name, "count": 4}, validate_only=True) == {name: Error.NONE}
    assert grow(client, version, {"name": name, "count": 1}, validate_only=True) == {name: Error.INVALID_PARTITIONS}
    assert len(described(client, name).partitions) == 1


@pytest.mark.parametrize("version", GROW)
@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (0, None, Error.INVALID_PARTITIONS),
        (-1, None, Error.INVALID_PARTITIONS),
        (3, [], Error.INVALID_REPLICA_ASSIGNMENT),
        (4, [[0]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0], [0]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[7]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[0, 0]], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_grow_refused(client, version, count, assignments, error):
    name = client.topic(partitions=2)
    rows = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    assert grow(client, version, {"name": name, "count": count, "assignments": rows}) == {name: error}


@pytest.mark.parametrize("version", GROW)
def test_grow_what_is_not_there(client, version):
    missing = f"{client.prefix}-none"
    assert grow(client, version, {"name": missing, "count": 4}) == {missing: Error.UNKNOWN_TOPIC_OR_PARTITION}
    grow(client, version, {"name": "", "count": 4})
    grow(client, version, {"name": "a/b", "count": 4})


@pytest.mark.parametrize("version", GROW)
def test_grow_one_name_twice(client, version):
    name, other = client.topic("-a"), client.topic("-b")
    answers = grow(client, version, *({"name": each, "count": 2} for each in (name, other, name)))
    assert answers == {name: Error.INVALID_REQUEST, other: Error.NONE}
