"""What clients without rights are told, API by API and in every version: the same as Apache Kafka tells them.

Both brokers have an authorizer that allows what no rule is about, and rules against everybody: everything is denied on
the topic, the group and the transactional id `hidden` (and the topic `never`, which does not exist); the topic `shown`
may only be described; `free` is nobody's business; and on the cluster only brokers may do what brokers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import NO_ID
from penstock.security.acls import CLUSTER_NAME, Operation, Permission, ResourceType
from penstock.testing.broker_process import BrokerProcess
from tests.handlers.conftest import SETTINGS, Brokers, Client, apache_kafka

GUARDED = SETTINGS | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TOPICS = ("free", "hidden", "shown")
LITERAL = 3
CREATE_ACLS_VERSION = 3
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
DENIED_ON_CLUSTER = ("CREATE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "DELETE")
DENIED_ON_SHOWN = ("READ", "WRITE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")


def rule(kind: ResourceType, name: str, operation: Operation, permission: Permission) -> dict[str, Any]:
    return {
        "resource_type": kind.value,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:*",
        "host": "*",
        "operation": operation.value,
        "permission_type": permission.value,
    }


def only(kind: ResourceType, name: str, *denied: str) -> list[dict[str, Any]]:
    """Everything on a resource but this."""
    return [
        rule(kind, name, Operation.ALL, Permission.ALLOW),
        *(rule(kind, name, Operation[each], Permission.DENY) for each in denied),
    ]


def prepare(brokers: Brokers) -> None:
    """Topics first, and the rules against the cluster last: after them there are no more changes."""
    client = Client(brokers)
    client.prefix = ""
    for name in TOPICS:
        brokers.shared[name] = client.topic(name)
        brokers.shared[f"id of {name}"] = client.topic_id(name)
    for kind in (0, 1):  # the topics for offsets and for transactions are made
        client.ask(
            "FindCoordinator",
            4,
            until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
            is_patient=True,
            key_type=kind,
            coordinator_keys=["free"],
        )
    rules = [
        *(rule(TOPIC, name, Operation.ALL, Permission.DENY) for name in ("hidden", "never")),
        rule(GROUP, "hidden", Operation.ALL, Permission.DENY),
        rule(ResourceType.TRANSACTIONAL_ID, "hidden", Operation.ALL, Permission.DENY),
        *only(TOPIC, "shown", *DENIED_ON_SHOWN),
        *only(CLUSTER, CLUSTER_NAME, *DENIED_ON_CLUSTER),
    ]
    made = client.ask("CreateAcls", CREATE_ACLS_VERSION, creations=rules)
    assert {row.error_code for row in made.results} == {Error.NONE}
    client.ask(
        "DescribeConfigs",
        4,
        until=lambda answer: answer.results[0].error_code == Error.CLUSTER_AUTHORIZATION_FAILED,
        resources=[{"resource_type": 4, "resource_name": "", "configuration_keys": []}],
    )
    client.close()
    assert not client.differences, client.differences


@pytest.fixture(scope="module")
def guarded_penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with BrokerProcess(tmp_path_factory.mktemp("penstock") / "data", settings=GUARDED) as broker:
        yield broker.host, broker.port


@pytest.fixture(scope="module")
def guarded_alone(guarded_penstock: tuple[str, int]) -> Brokers:
    brokers = Brokers(guarded_penstock)
    prepare(brokers)
    return brokers


@pytest.fixture(scope="module")
def guarded_beside_kafka(tmp_path_factory: pytest.TempPathFactory, kafka_libs: Path) -> Iterator[Brokers]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("penstock") / "data", settings=GUARDED) as broker,
        apache_kafka(kafka_libs, tmp_path_factory.mktemp("kafka"), GUARDED) as kafka,
    ):
        brokers = Brokers((broker.host, broker.port), (kafka.host, kafka.port))
        prepare(brokers)
        yield brokers


@pytest.fixture(params=["penstock", pytest.param("beside-kafka", marks=pytest.mark.kafka)])
def guarded(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of brokers with these rules; fails if their answers differed."""
    fixture = "guarded_alone" if request.param == "penstock" else "guarded_beside_kafka"
    made = Client(request.getfixturevalue(fixture))
    yield made
    made.close()
    assert not made.differences, "\n".join(["Penstock differs from Kafka:", *made.differences])


NO_TOPIC, NO_GROUP = Error.TOPIC_AUTHORIZATION_FAILED, Error.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER, NO_ID_RIGHT = Error.CLUSTER_AUTHORIZATION_FAILED, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NAMES = ("hidden", "shown", "never")
PART = {"partition_index": 0}


def parts(**fields: Any) -> list[dict[str, Any]]:
    """Every topic without rights, with one partition."""
    return [{"name": name, "partitions": [PART | fields]} for name in NAMES]


CONFIG_RESOURCES = [(2, "hidden"), (2, "shown"), (2, "never"), (4, ""), (4, "0"), (32, "hidden")]
ALTERED = [{"resource_type": kind, "resource_name": name, "configs": []} for kind, name in CONFIG_RESOURCES]
FILTER = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1, "principal_filter": None}
FILTER |= {"host_filter": None, "resource_name_filter": None}
MEMBER = {"group_id": "hidden", "member_id": "m"}
TXN = {"transactional_id": "hidden", "producer_id": 1, "producer_epoch": 0}

#: The API, the fields of the request, the errors in the answer to its newest version. None: it is left out.
CASES: list[tuple[str, dict[str, Any], set[Error]]] = [
    ("ListOffsets", {"replica_id": -1, "topics": parts(timestamp=-1)}, {NO_TOPIC}),
    ("Metadata", {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": True}, {NO_TOPIC}),
    ("OffsetCommit", MEMBER | {"topics": parts(committed_offset=1)}, {NO_GROUP}),
    (
        "OffsetCommit",
        {"group_id": "free", "member_id": "", "generation_id_or_member_epoch": -1, "topics": parts()},
        {NO_TOPIC},
    ),
    (
        "OffsetFetch",
        {"group_id": "hidden", "topics": [{"name": "free", "partition_indexes": [0]}]}
        | {"groups": [{"group_id": "hidden", "topics": [{"name": "free", "partition_indexes": [0]}]}]},
        {NO_GROUP},
    ),
    ("FindCoordinator", {"key": "hidden", "coordinator_keys": ["hidden"], "key_type": 0}, {NO_GROUP}),
    ("FindCoordinator", {"key": "hidden", "coordinator_keys": ["hidden"], "key_type": 1}, {NO_ID_RIGHT}),
    (
        "JoinGroup",
        {"group_id": "hidden", "member_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
        | {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]},
        {NO_GROUP},
    ),
    ("Heartbeat", MEMBER, {NO_GROUP}),
    ("LeaveGroup", {"group_id": "hidden", "member_id": "m", "members": [{"member_id": "m"}]}, {NO_GROUP}),
    ("SyncGroup", MEMBER | {"assignments": [], "protocol_type": "consumer", "protocol_name": "range"}, {NO_GROUP}),
    ("DescribeGroups", {"groups": ["hidden"], "include_authorized_operations": True}, {NO_GROUP}),
    ("ListGroups", {}, set()),
    (
        "CreateTopics",
        {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("never", "shown")]},
        {Error.TOPIC_ALREADY_EXISTS, NO_TOPIC},
    ),
    ("DeleteRecords", {"topics": parts(offset=0), "timeout_ms": 1000}, {NO_TOPIC}),
    (
        "InitProducerId",
        {"transactional_id": "hidden", "transaction_timeout_ms": 1000, "producer_id": -1},
        {NO_ID_RIGHT},
    ),
    ("AddOffsetsToTxn", TXN | {"group_id": "hidden"}, {NO_ID_RIGHT}),
    ("AddOffsetsToTxn", TXN | {"group_id": "hidden", "transactional_id": "free"}, {NO_GROUP}),
    ("EndTxn", TXN | {"committed": True}, {NO_ID_RIGHT}),
    ("TxnOffsetCommit", TXN | {"group_id": "free", "topics": parts(committed_offset=1)}, {NO_ID_RIGHT}),
    ("TxnOffsetCommit", TXN | {"transactional_id": "free", "group_id": "hidden", "topics": parts()}, {NO_GROUP}),
    ("DescribeAcls", FILTER | {"resource_type_filter": 1}, {NO_CLUSTER}),
    ("CreateAcls", {"creations": [rule(TOPIC, "x", Operation.READ, Permission.ALLOW)]}, {NO_CLUSTER}),
    ("DeleteAcls", {"filters": [FILTER | {"resource_type_filter": 1}]}, {NO_CLUSTER}),
    (
        "DescribeConfigs",
        {"resources": [{"resource_type": kind, "resource_name": name} for kind, name in CONFIG_RESOURCES]},
        {NO_CLUSTER, NO_GROUP, NO_TOPIC},
    ),
    ("AlterConfigs", {"resources": ALTERED}, {NO_CLUSTER, NO_GROUP, NO_TOPIC}),
    ("IncrementalAlterConfigs", {"resources": ALTERED}, {NO_CLUSTER, NO_GROUP, NO_TOPIC}),
    ("AlterReplicaLogDirs", {"dirs": [{"path": "/x", "topics": [{"name": "free", "partitions": [0]}]}]}, {NO_CLUSTER}),
    ("DescribeLogDirs", {"topics": None}, {NO_CLUSTER}),
    ("CreatePartitions", {"topics": [{"name": name, "count": 3, "assignments": None} for name in NAMES]}, {NO_TOPIC}),
    ("DeleteGroups", {"groups_names": ["hidden"]}, {NO_GROUP}),
    ("ElectLeaders", {"topic_partitions": [{"topic": "free", "partitions": [0]}], "timeout_ms": 1000}, {NO_CLUSTER}),
    (
        "AlterPartitionReassignments",
        {"topics": [{"name": "free", "partitions": [{"partition_index": 0, "replicas": [0]}]}]},
        {NO_CLUSTER},
    ),
    ("ListPartitionReassignments", {"topics": None}, {NO_CLUSTER}),
    ("OffsetDelete", {"group_id": "hidden", "topics": parts()}, {NO_GROUP}),
    ("OffsetDelete", {"group_id": "free", "topics": parts()}, {Error.GROUP_ID_NOT_FOUND}),
    ("DescribeClientQuotas", {"components": []}, {NO_CLUSTER}),
    (
        "AlterClientQuotas",
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}]}]},
        {NO_CLUSTER},
    ),
    ("DescribeUserScramCredentials", {"users": [{"name": "u"}]}, {NO_CLUSTER}),
    ("AlterUserScramCredentials", {"deletions": [{"name": "u", "mechanism": 1}]}, {NO_CLUSTER}),
    ("DescribeCluster", {"include_cluster_authorized_operations": True}, set()),
    ("DescribeProducers", {"topics": [{"name": name, "partition_indexes": [0]} for name in NAMES]}, {NO_TOPIC}),
    ("UnregisterBroker", {"broker_id": 77}, {NO_CLUSTER}),
    ("DescribeTransactions", {"transactional_ids": ["hidden"]}, {NO_ID_RIGHT}),
    ("ListTransactions", {}, set()),
    (
        "ConsumerGroupHeartbeat",
        {"group_id": "hidden", "member_id": "m", "rebalance_timeout_ms": 1000}
        | {"subscribed_topic_names": ["free"], "topic_partitions": []},
        {NO_GROUP},
    ),
    (
        "ConsumerGroupHeartbeat",
        {"group_id": "fresh", "member_id": "m", "rebalance_timeout_ms": 1000}
        | {"subscribed_topic_names": ["free", "hidden"], "topic_partitions": []},
        {NO_TOPIC},
    ),
    ("ConsumerGroupDescribe", {"group_ids": ["hidden"], "include_authorized_operations": True}, {NO_GROUP}),
    ("ListConfigResources", {"resource_types": [2]}, {NO_CLUSTER}),
    ("DescribeTopicPartitions", {"topics": [{"name": name} for name in NAMES]}, {NO_TOPIC}),
    ("DescribeTopicPartitions", {"topics": []}, set()),
]


def errors_in(answer: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return set().union(*map(errors_in, answer)) if answer else set()
    fields = getattr(type(answer), "__dataclass_fields__", {})
    found = {getattr(answer, name) for name in fields if name.endswith("error_code")}
    return found.union(*(errors_in(getattr(answer, name)) for name in fields))


@pytest.mark.parametrize("name, fields, errors", CASES, ids=[f"{number}-{row[0]}" for number, row in enumerate(CASES)])
def test_what_is_refused_and_how(guarded: Client, name: str, fields: dict[str, Any], errors: set[Error]) -> None:
    for version in guarded.versions(name):
        if name == "OffsetCommit" and version >= 10:
            known = [topic for topic in fields["topics"] if topic["name"] != "never"]
            fields["topics"] = [topic | {"topic_id": guarded.once(f"id of {topic['name']}", str)} for topic in known]
        answer = guarded.ask(name, version, **fields)
    assert errors_in(answer) - {Error.NONE} == errors


def test_all_topics_are_those_that_may_be_described(guarded: Client) -> None:
    for version in guarded.versions("Metadata"):
        answer = guarded.ask(
            "Metadata",
            version,
            differs={"topics[[]__*": "the number of partitions and such of topics that are the brokers' own"},
            topics=None if version else [],
            include_cluster_authorized_operations=True,
        )
        assert {topic.name for topic in answer.topics if not topic.name.startswith("__")} == {"free", "shown"}


def test_fetch_and_produce(guarded: Client) -> None:
    ids = {name: guarded.once(f"id of {name}", str) for name in TOPICS} | {"never": NO_ID}
    for version in guarded.versions("Fetch"):
        topics = [
            {"topic": name, "topic_id": ids[name], "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
            for name in NAMES
            if version < 13 or name != "never"
        ]
        answer = guarded.ask(
            "Fetch",
            version,
            differs={"*.aborted_transactions": "none, or an empty list of them"},
            replica_id=-1,
            max_bytes=1000,
            session_epoch=-1,
            topics=topics,
        )
        errors = {part.error_code for topic in answer.responses for part in topic.partitions}
        assert errors == {Error.TOPIC_AUTHORIZATION_FAILED}
    in_transaction = Client.batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for version in range(3, guarded.versions("Produce").stop):
        for transactional_id, batch in ((None, Client.batch(b"x")), ("hidden", in_transaction)):
            data: list[dict[str, Any]] = [{"index": 0, "records": batch}]
            topics = [
                {"name": name, "topic_id": ids[name], "partition_data": data}
                for name in NAMES
                if version < 13 or name != "never"
            ]
            answer = guarded.ask(
                "Produce", version, transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=topics
            )
            errors = {part.error_code for topic in answer.responses for part in topic.partition_responses}
            assert errors == {
                Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transactional_id else Error.TOPIC_AUTHORIZATION_FAILED
            }


def test_delete_topics(guarded: Client) -> None:
    for version in guarded.versions("DeleteTopics"):
        by_name = [{"name": name} for name in NAMES]
        by_id = [{"name": None, "topic_id": guarded.once(f"id of {name}", str)} for name in ("hidden", "shown")]
        for topics in (by_name, by_id) if version >= 6 else (by_name,):
            answer = guarded.ask("DeleteTopics", version, topics=topics, topic_names=NAMES, timeout_ms=1000)
            assert {row.error_code for row in answer.responses} == {Error.TOPIC_AUTHORIZATION_FAILED}


def test_partitions_of_a_transaction(guarded: Client) -> None:
    """One refusal, and the others are not attempted; to the brokers' own topics no client may write."""

    def add(version: int, transactional_id: str, *names: str) -> dict[str, int]:
        answer = guarded.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=1,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names],
        )
        return {
            topic.name: part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }

    waits, missing = Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(4):
        assert add(version, "hidden", "free") == {"free": NO_ID_RIGHT}
        assert add(version, "free", "free", "hidden") == {"free": waits, "hidden": NO_TOPIC}
        assert add(version, "free", "shown", "missing") == {"shown": NO_TOPIC, "missing": missing}
        assert add(version, "free", "free", "__consumer_offsets") == {"free": waits, "__consumer_offsets": NO_TOPIC}


def test_a_regular_expression_finds_only_what_may_be_described(guarded: Client) -> None:
    fields: dict[str, Any] = {"group_id": f"{guarded.prefix}-group", "member_id": "m", "rebalance_timeout_ms": 10_000}
    joined = guarded.ask(
        "ConsumerGroupHeartbeat",
        1,
        differs={"*": "Kafka looks for topics after its first answer"},
        **fields,
        subscribed_topic_regex="free|hidden|shown",
        topic_partitions=[],
    )
    assert joined.error_code == Error.NONE
    described = guarded.ask(
        "ConsumerGroupHeartbeat",
        1,
        until=lambda answer: answer.assignment is not None and len(answer.assignment.topic_partitions) > 0,
        is_patient=True,
        differs={"member_epoch": "see above"},
        **fields,
        subscribed_topic_regex="free|hidden|shown",
        topic_partitions=[],
    )
    found = {row.topic_id for row in described.assignment.topic_partitions}
    assert found == {guarded.once(f"id of {name}", str) for name in ("free", "shown")}
