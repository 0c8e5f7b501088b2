"""ApiVersions, DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, FindCoordinator and InitProducerId."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import Error

TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = -(2**31)
#: Why Kafka cannot be asked for its log directories: Java reads the file systems from there.
NO_MOUNTS = "" if Path("/etc/mtab").exists() else "Java finds no file systems here"


# ── ApiVersions ──────────────────────────────────────────────────────────────────────────────────────────────────

SET_OF_APIS = {
    "api_keys": "the set of APIs",
    "api_keys[[]*]#": "the set of APIs",
    "supported_features": "Kafka has features that Penstock does not: KRaft, share groups, …",
    "*features[[]metadata.version]*": "KRaft",
    "*features[[]kraft.version]*": "KRaft",
    "*features[[]eligible.leader.replicas.version]*": "KRaft",
    "*features[[]share.version]*": "share groups",
    "*features[[]streams.version]*": "groups of Kafka Streams",
    "finalized_features": "see above",
    "finalized_features_epoch": "Kafka's is an offset in its metadata log",
}
SOFTWARE = {"client_software_name": "tests", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions(client, version):
    answer = client.ask("ApiVersions", version, differs=SET_OF_APIS, **SOFTWARE)
    assert answer.error_code == Error.NONE
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert rows[0] == (0, 13) and rows[1] == (4, 18) and rows[18] == (0, 4)
    if version >= 3:
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        assert finalized == {"group.version": (1, 1), "transaction.version": (2, 2)}
        assert answer.finalized_features_epoch >= 0, "clients would not believe it"
    names = [each.name for each in answer.supported_features]
    assert names == (["group.version", "transaction.version"] if version >= 4 else []), "older clients cannot read 0"


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x_y"])
def test_software_names(client, version, name):
    answer = client.ask(
        "ApiVersions", version, differs=SET_OF_APIS, client_software_name=name, client_software_version="1"
    )
    assert answer.error_code == Error.INVALID_REQUEST
    answer = client.ask(
        "ApiVersions", version, differs=SET_OF_APIS, client_software_name="x", client_software_version=name
    )
    assert answer.error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("version", [5, 6, 99])
def test_an_api_versions_of_the_future(client, version):
    answer = client.ask_raw("ApiVersions", version, b"\1\2\3", differs=SET_OF_APIS)
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert 18 in [row.api_key for row in answer.api_keys]
    client.ask("ApiVersions", 0, differs=SET_OF_APIS)


@pytest.mark.parametrize(
    ("name", "version"), [("Metadata", 14), ("Fetch", 3), ("ListOffsets", 0), ("CreateTopics", 1), ("Produce", 14)]
)
def test_versions_that_are_not_served(client, name, version):
    assert client.ask_raw(name, version, b"\0" * 20) is None


# ── DescribeCluster ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("include", [False, True])
def test_describe_cluster(client, version, include):
    answer = client.ask(
        "DescribeCluster",
        version,
        include_cluster_authorized_operations=include,
        endpoint_type=1,
        include_fenced_brokers=include,
    )
    assert (answer.error_code, answer.controller_id, answer.endpoint_type) == (Error.NONE, 0, 1)
    assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if include else NOT_ASKED)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.rack, broker.is_fenced) == (0, "127.0.0.1", None, False)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("endpoint_type", [0, 2, 3, -1])
def test_endpoints_that_are_not_brokers(client, version, endpoint_type):
    answer = client.ask("DescribeCluster", version, endpoint_type=endpoint_type)
    assert answer.error_code in (Error.MISMATCHED_ENDPOINT_TYPE, Error.UNSUPPORTED_ENDPOINT_TYPE)
    assert answer.brokers == []


# ── DescribeTopicPartitions ──────────────────────────────────────────────────────────────────────────────────────


def pages(client, names, limit=2000, cursor=None):
    answer = client.ask(
        "DescribeTopicPartitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )
    found = [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]
    following = answer.next_cursor
    return found, None if following is None else (following.topic_name, following.partition_index), answer


def test_describe_topic_partitions(client):
    a, b = client.topic("-a", partitions=2), client.topic("-b", partitions=3)
    found, cursor, answer = pages(client, [b, a])
    assert (found, cursor) == ([(a, [0, 1]), (b, [0, 1, 2])], None)
    topic = answer.topics[0]
    assert (topic.error_code, topic.is_internal) == (Error.NONE, False)
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    part = topic.partitions[0]
    assert (part.leader_id, part.leader_epoch, part.replica_nodes, part.isr_nodes) == (0, 0, [0], [0])
    assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ([], [], [])


def test_topic_partitions_page_by_page(client):
    a, b, c = (client.topic(f"-{letter}", partitions=count) for letter, count in (("a", 3), ("b", 2), ("c", 1)))
    names = [c, a, b]
    assert pages(client, names, 2)[:2] == ([(a, [0, 1])], (a, 2))
    assert pages(client, names, 2, (a, 2))[:2] == ([(a, [2]), (b, [0])], (b, 1))
    assert pages(client, names, 2, (b, 1))[:2] == ([(b, [1]), (c, [0])], None)
    assert pages(client, names, 3)[:2] == ([(a, [0, 1, 2])], (b, 0))
    assert pages(client, names, 3, (a, 99))[:2] == ([(a, []), (b, [0, 1]), (c, [0])], None)
    for elsewhere in ("-bb", "-zz"):
        found, cursor, answer = pages(client, names, 3, (f"{client.prefix}{elsewhere}", 0))
        assert (found, cursor) == ([(a, []), (b, []), (c, [])], None)
        assert {topic.error_code for topic in answer.topics} == {Error.INVALID_REQUEST}


@pytest.mark.parametrize("limit", [0, -1, 1, 5000])
def test_limits_of_a_page(client, limit):
    topic = client.topic(partitions=2)
    expected = ([(topic, [0])], (topic, 1)) if limit < 2 else ([(topic, [0, 1])], None)
    assert pages(client, [topic], limit)[:2] == expected


@pytest.mark.parametrize("index", [-1, -2])
def test_a_cursor_before_the_first_partition(client, index):
    topic = client.topic(partitions=2)
    assert pages(client, [topic], 10, (topic, index))[2].topics[0].error_code == Error.INVALID_REQUEST


def test_topic_partitions_of_what_is_not_there(client):
    topic, missing = client.topic(), f"{client.prefix}-none"
    _, _, answer = pages(client, [topic, missing, "a/b", topic])
    codes = {found.name: found.error_code for found in answer.topics}
    assert codes == {
        topic: Error.NONE,
        missing: Error.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": Error.INVALID_TOPIC_EXCEPTION,
    }


# ── DescribeLogDirs ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(client, version):
    topic = client.topic(partitions=2)
    client.produce(topic, client.batch(b"x" * 100))
    everything = {"results[[]*].topics*": "each broker has what other tests left behind"}
    answer = client.ask("DescribeLogDirs", version, topics=None, differs=everything, not_kafka=NO_MOUNTS)
    (folder,) = answer.results
    assert (answer.error_code, folder.error_code) == (Error.NONE, Error.NONE)
    assert topic in [found.name for found in folder.topics]
    chosen = [{"topic": topic, "partitions": [0, 1]}]
    (folder,) = client.ask("DescribeLogDirs", version, topics=chosen, not_kafka=NO_MOUNTS).results
    (found,) = folder.topics
    parts = {part.partition_index: part for part in found.partitions}
    assert parts[0].partition_size > 100 and parts[1].partition_size == 0
    assert not parts[0].is_future_key and parts[0].offset_lag == 0
    second = [{"topic": topic, "partitions": [1]}]
    (folder,) = client.ask("DescribeLogDirs", version, topics=second, not_kafka=NO_MOUNTS).results
    assert [part.partition_index for part in folder.topics[0].partitions] == [1]


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs_of_nothing(client, version):
    topic = client.topic(partitions=2)
    for asked in (
        [],
        [{"topic": f"{client.prefix}-none", "partitions": [0]}],
        [{"topic": topic, "partitions": []}],
        [{"topic": topic, "partitions": [9]}],
        [{"topic": "a/b", "partitions": [0]}],
    ):
        answer = client.ask("DescribeLogDirs", version, topics=asked, not_kafka=NO_MOUNTS)
        assert answer.error_code == Error.NONE


# ── FindCoordinator ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_find_coordinator(client, version, key_type):
    def is_found(answer):
        rows = answer.coordinators if version >= 4 else [answer]
        return {row.error_code for row in rows} == {Error.NONE}

    answer = client.ask(
        "FindCoordinator",
        version,
        key="my-group",
        key_type=key_type,
        coordinator_keys=["my-group", "other", "my-group"],
        until=is_found,
    )
    for row in answer.coordinators if version >= 4 else [answer]:
        assert (row.node_id, row.host) == (0, "127.0.0.1")


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("key_type", [2, 3, -1, 99])
def test_coordinators_of_other_kinds(client, version, key_type):
    reason = "share groups are not served" if key_type == 2 else ""
    answer = client.ask(
        "FindCoordinator", version, key="x", key_type=key_type, coordinator_keys=["x"], not_kafka=reason
    )
    rows = answer.coordinators if version >= 4 else [answer]
    assert {row.error_code for row in rows} == {Error.INVALID_REQUEST}
    assert {(row.node_id, row.port) for row in rows} == {(-1, -1)}


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_of_the_empty_key(client, version):
    client.ask("FindCoordinator", version, key="", key_type=0, coordinator_keys=[""])


@pytest.mark.parametrize("version", range(4, 7))
def test_no_keys(client, version):
    assert client.ask("FindCoordinator", version, key_type=0, coordinator_keys=[]).coordinators == []


# ── InitProducerId ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(6))
def test_producer_ids(client, version):
    asked = {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "until": lambda answer: answer.error_code != Error.COORDINATOR_LOAD_IN_PROGRESS,
    }
    first = client.ask("InitProducerId", version, **asked)
    second = client.ask("InitProducerId", version, **asked)
    assert first.error_code == second.error_code == Error.NONE
    assert first.producer_id >= 0 and first.producer_id != second.producer_id
    assert first.producer_epoch == second.producer_epoch == 0


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_shows_its_old_id(client, version):
    for producer_id, epoch, error in (
        (5, 3, Error.NONE),
        (5, -1, Error.INVALID_REQUEST),
        (-1, 3, Error.INVALID_REQUEST),
    ):
        answer = client.ask(
            "InitProducerId",
            version,
            transactional_id=None,
            transaction_timeout_ms=60_000,
            producer_id=producer_id,
            producer_epoch=epoch,
            until=lambda answer: answer.error_code != Error.COORDINATOR_LOAD_IN_PROGRESS,
        )
        assert answer.error_code == error
