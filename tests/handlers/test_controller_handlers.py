"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, UnregisterBroker, AlterReplicaLogDirs."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error

ELECT = range(3)
REASSIGN = range(2)
MOVE = range(1, 3)


# ── ElectLeaders ─────────────────────────────────────────────────────────────────────────────────────────────────


def elect(client, version, topics, kind=0, **more):
    asked = topics if topics is None else [{"topic": name, "partitions": parts} for name, parts in topics.items()]
    answer = client.ask("ElectLeaders", version, election_type=kind, topic_partitions=asked, timeout_ms=10_000, **more)
    results = {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    return answer.error_code, results


@pytest.mark.parametrize("version", ELECT)
@pytest.mark.parametrize("kind", [0, 1])
def test_elections_that_are_not_needed(client, version, kind):
    topic = client.topic(partitions=2)
    needless = Error.ELECTION_NOT_NEEDED
    assert elect(client, version, {topic: [0, 1]}, kind) == (0, {(topic, 0): needless, (topic, 1): needless})


@pytest.mark.parametrize("version", ELECT)
@pytest.mark.parametrize("kind", [0, 1])
def test_elections_of_what_is_not_there(client, version, kind):
    topic, unknown = client.topic(), Error.UNKNOWN_TOPIC_OR_PARTITION
    code, results = elect(client, version, {topic: [1, -1], "no-such-topic": [0]}, kind)
    assert code == 0
    assert results == {(topic, 1): unknown, (topic, -1): unknown, ("no-such-topic", 0): unknown}


@pytest.mark.parametrize("version", ELECT)
@pytest.mark.parametrize("kind", [0, 1])
def test_elections_of_everything_and_of_nothing(client, version, kind):
    topic = client.topic()
    others = {"*results*": "topics of other tests, some of which one of the two has not forgotten yet"}
    assert elect(client, version, None, kind, differs=others) == (0, {})
    assert elect(client, version, {}, kind) == (0, {})
    assert elect(client, version, {topic: []}, kind) == (0, {})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", [2, -1])
def test_elections_of_an_unknown_kind(client, version, kind):
    topic = client.topic()
    closed = {"closed": "Kafka closes the connection", "*": "and so there is no answer"}
    code, results = elect(client, version, {topic: [0]}, kind, differs=closed)
    assert (code, results) == (Error.INVALID_REQUEST, {(topic, 0): Error.INVALID_REQUEST})


# ── reassignments ────────────────────────────────────────────────────────────────────────────────────────────────


def reassign(client, version, topics, **more):
    asked = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": ids} for index, ids in parts]}
        for name, parts in topics.items()
    ]
    answer = client.ask("AlterPartitionReassignments", version, timeout_ms=10_000, topics=asked, **more)
    assert answer.error_code == Error.NONE
    return {
        (topic.name, part.partition_index): part.error_code for topic in answer.responses for part in topic.partitions
    }


@pytest.mark.parametrize("version", REASSIGN)
@pytest.mark.parametrize(
    ("index", "replicas", "error"),
    [
        (0, [0], Error.NONE),
        (0, [], Error.INVALID_REPLICA_ASSIGNMENT),
        (0, [7], Error.INVALID_REPLICA_ASSIGNMENT),
        (0, [0, 7], Error.INVALID_REPLICA_ASSIGNMENT),
        (0, [0, 0], Error.INVALID_REPLICA_ASSIGNMENT),
        (0, [-1], Error.INVALID_REPLICA_ASSIGNMENT),
        (0, None, Error.NO_REASSIGNMENT_IN_PROGRESS),
        (5, [0], Error.UNKNOWN_TOPIC_OR_PARTITION),
        (5, None, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, [0], Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_reassign(client, version, index, replicas, error):
    topic = client.topic()
    assert reassign(client, version, {topic: [(index, replicas)]}) == {(topic, index): error}


@pytest.mark.parametrize("version", REASSIGN)
def test_reassign_several(client, version):
    topic = client.topic(partitions=3)
    parts = [(0, [0]), (1, None), (2, [9])]
    results = reassign(client, version, {topic: parts, "no-such-topic": [(0, [0])]})
    assert results == {
        (topic, 0): Error.NONE,
        (topic, 1): Error.NO_REASSIGNMENT_IN_PROGRESS,
        (topic, 2): Error.INVALID_REPLICA_ASSIGNMENT,
        ("no-such-topic", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert reassign(client, version, {}) == {}


def test_reassign_with_a_fixed_factor(client):
    topic = client.topic()
    assert reassign(client, 1, {topic: [(0, [0])]}, allow_replication_factor_change=False) == {(topic, 0): Error.NONE}


def test_list_reassignments(client):
    topic = client.topic(partitions=2)
    for asked in (
        None,
        [],
        [{"name": topic, "partition_indexes": [0, 1, 5]}, {"name": "gone", "partition_indexes": [0]}],
    ):
        answer = client.ask("ListPartitionReassignments", 0, timeout_ms=10_000, topics=asked)
        assert (answer.error_code, answer.topics) == (Error.NONE, [])


# ── UnregisterBroker ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("broker_id", [77, -1])
def test_unregister_one_that_never_was(client, broker_id):
    answer = client.ask("UnregisterBroker", 0, broker_id=broker_id)
    assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED


def test_unregister_one_that_runs(client):
    answer = client.ask("UnregisterBroker", 0, broker_id=0, not_kafka="it would take itself out")
    assert answer.error_code == Error.INVALID_REQUEST


# ── AlterReplicaLogDirs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", MOVE)
def test_move_to_where_nobody_can(client, version):
    topic = client.topic()
    dirs = [{"path": "/no/such/place", "topics": [{"name": topic, "partitions": [0, 3]}]}]
    answer = client.ask("AlterReplicaLogDirs", version, dirs=dirs)
    (result,) = answer.results
    assert [part.error_code for part in result.partitions] == [Error.LOG_DIR_NOT_FOUND] * 2
    assert client.ask("AlterReplicaLogDirs", version, dirs=[]).results == []
