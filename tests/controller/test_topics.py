"""Topics: every rule as a table, and the plans carried out on a real znode tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import ApiError, Error
from penstock.controller.claim import claim_controller
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, FencedWrite, Plan, fenced_writes
from penstock.controller.producer_ids import PRODUCER_ID_MAX, next_block
from penstock.controller.topics import (
    NewTopic,
    TopicDefaults,
    create_partitions,
    create_topic,
    create_topics,
    delete_topic,
    replicas_removed,
)
from penstock.zookeeper.coordination import MULTI_SIZE_BYTES_MAX
from penstock.zookeeper.errors import BadVersionError, NodeExistsError
from penstock.zookeeper.operations import OpenSession, Operation, Write, size_bytes
from penstock.zookeeper.topic_znodes import (
    PartitionState,
    Topic,
    TopicNode,
    TopicShard,
    shard_count,
    topic_of,
    topic_path,
)
from penstock.zookeeper.tree import Applied, Tree
from penstock.zookeeper.znodes import (
    BrokerNode,
    Changes,
    ConfigNode,
    ControllerEpoch,
    Notice,
    ProducerIds,
    TopicDeletion,
    first_znodes,
)

BROKERS = {broker_id: BrokerNode(endpoints=()) for broker_id in (1, 2, 3)}
DEFAULTS = TopicDefaults(partition_count=2, replication_factor=2)
TOPIC_ID = UUID(int=5)


def accept(_configs: Mapping[str, str]) -> None:
    pass


def refuse(_configs: Mapping[str, str]) -> None:
    raise ApiError(Error.INVALID_CONFIG, "no such setting")


def topic(name: str, count: int = 1, factor: int = 1) -> Topic:
    replicas = tuple(range(1, factor + 1))
    return Topic(name, TOPIC_ID, (PartitionState(replicas, replicas, 1),) * count, (0,) * shard_count(count))


STATE = ClusterState(0, Changes(), 0, BROKERS, {t.name: t for t in (topic("a.b"), topic("there", 3, 2))})


def new(name: str = "new", **fields: Any) -> NewTopic:
    return NewTopic(name, **fields)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (new(""), Error.INVALID_TOPIC_EXCEPTION, "empty"),
        (new(".."), Error.INVALID_TOPIC_EXCEPTION, "cannot be called"),
        (new("a/b"), Error.INVALID_TOPIC_EXCEPTION, "characters"),
        (new("x" * 250), Error.INVALID_TOPIC_EXCEPTION, "249"),
        (new("a_b"), Error.INVALID_TOPIC_EXCEPTION, "collides with 'a.b'"),
        (new("a.b"), Error.TOPIC_ALREADY_EXISTS, "exists"),
        (new(partition_count=0), Error.INVALID_PARTITIONS, "at least one"),
        (new(partition_count=-2), Error.INVALID_PARTITIONS, "at least one"),
        (new(partition_count=10_001), Error.POLICY_VIOLATION, "10000"),
        (new(replication_factor=0), Error.INVALID_REPLICATION_FACTOR, "at least one"),
        (new(replication_factor=4), Error.INVALID_REPLICATION_FACTOR, "3 are there"),
        (new(assignments=[(0, [1])], partition_count=1), Error.INVALID_REQUEST, "number of partitions"),
        (new(assignments=[(0, [1])], replication_factor=1), Error.INVALID_REQUEST, "replication factor"),
        (new(assignments=[(0, [1]), (0, [2])]), Error.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (new(assignments=[(0, [1]), (2, [2])]), Error.INVALID_REPLICA_ASSIGNMENT, "without a gap"),
        (new(assignments=[(1, [1])]), Error.INVALID_REPLICA_ASSIGNMENT, "without a gap"),
        (new(assignments=[(0, [])]), Error.INVALID_REPLICA_ASSIGNMENT, "no broker"),
        (new(assignments=[(0, [1, 1])]), Error.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (new(assignments=[(0, [1, 9])]), Error.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (new(assignments=[(0, [1, 2]), (1, [1])]), Error.INVALID_REPLICA_ASSIGNMENT, "same number"),
    ],
)
def test_topics_that_cannot_be_created(request_: NewTopic, error: Error, words: str) -> None:
    with pytest.raises(ApiError, match=words) as raised:
        create_topic(STATE, request_, TOPIC_ID, DEFAULTS, accept)
    assert raised.value.error is error


def test_wrong_settings_refuse_a_topic() -> None:
    with pytest.raises(ApiError, match="no such setting"):
        create_topic(STATE, new(configs={"x": "y"}), TOPIC_ID, DEFAULTS, refuse)


@pytest.mark.parametrize(
    ("count", "assignments", "error", "words"),
    [
        (3, None, Error.INVALID_PARTITIONS, "already has 3"),
        (2, None, Error.INVALID_PARTITIONS, "only grows"),
        (0, None, Error.INVALID_PARTITIONS, "only grows"),
        (10_004, None, Error.INVALID_PARTITIONS, "at most 10000"),
        (5, [[1, 2]], Error.INVALID_REPLICA_ASSIGNMENT, "2 partitions"),
        (4, [[1]], Error.INVALID_REPLICA_ASSIGNMENT, "same number"),
        (4, [[1, 8]], Error.INVALID_REPLICA_ASSIGNMENT, "partition 3 is assigned to broker 8"),
        (4, [[]], Error.INVALID_REPLICA_ASSIGNMENT, "no broker"),
    ],
)
def test_topics_that_cannot_grow(
    count: int, assignments: Sequence[Sequence[int]] | None, error: Error, words: str
) -> None:
    with pytest.raises(ApiError, match=words) as raised:
        create_partitions(STATE, "there", count, assignments)
    assert raised.value.error is error


def test_growth_and_deletion_need_the_topic_and_brokers() -> None:
    for plan in (lambda: create_partitions(STATE, "gone", 2), lambda: delete_topic(STATE, "gone", has_config=False)):
        with pytest.raises(ApiError) as raised:
            plan()
        assert raised.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError) as raised:
        create_partitions(replace(STATE, brokers={1: BROKERS[1]}), "there", 4)
    assert raised.value.error is Error.INVALID_REPLICATION_FACTOR


def test_topics_of_one_request_see_each_other() -> None:
    requests = [new("x.y"), new("x_y"), new("x.y"), new("z", partition_count=9_999), new("w")]
    outcomes = create_topics(STATE, requests, [UUID(int=n) for n in range(1, 6)], DEFAULTS, accept)
    errors = [outcome.error if isinstance(outcome, ApiError) else None for outcome in outcomes]
    assert errors == [None, Error.INVALID_TOPIC_EXCEPTION, Error.TOPIC_ALREADY_EXISTS, Error.POLICY_VIOLATION, None]


def test_ten_thousand_partitions_fit_into_one_write() -> None:
    plan = create_topic(STATE, new(partition_count=10_000, replication_factor=3), TOPIC_ID, DEFAULTS, accept)
    (write,) = fenced_writes(STATE, [plan])
    assert size_bytes(write.operations) < MULTI_SIZE_BYTES_MAX


def test_what_is_too_large_for_one_write_is_refused_with_advice() -> None:
    brokers = {broker_id: BROKERS[1] for broker_id in range(1_000_000, 1_000_005)}
    with pytest.raises(ApiError, match="several smaller") as raised:
        create_topic(
            replace(STATE, brokers=brokers),
            new(partition_count=9_000, replication_factor=5),
            TOPIC_ID,
            DEFAULTS,
            accept,
        )
    assert raised.value.error is Error.POLICY_VIOLATION


def test_a_decision_without_anything_to_write_is_not_written() -> None:
    nothing = set_configs("brokers", "1", {}, None)
    assert nothing.operations == ()
    assert fenced_writes(STATE, [nothing]) == []
    plan = create_topic(STATE, new(), TOPIC_ID, DEFAULTS, accept)
    (write,) = fenced_writes(STATE, [nothing, plan, nothing])
    assert write.plans == (plan,)


def test_many_plans_become_few_writes_that_build_on_each_other() -> None:
    requests = [new(f"t{number}", partition_count=300) for number in range(33)]
    plans = create_topics(STATE, requests, [UUID(int=n + 1) for n in range(33)], TopicDefaults(1, 3), accept)
    assert all(isinstance(plan, Plan) for plan in plans)
    writes = fenced_writes(STATE, [plan for plan in plans if isinstance(plan, Plan)])
    assert 1 <= len(writes) < 5
    assert [write.changes_version for write in writes] == list(range(1, len(writes) + 1))
    assert sum(len(write.plans) for write in writes) == 33
    assert all(size_bytes(write.operations) < MULTI_SIZE_BYTES_MAX for write in writes)
    assert len(writes[-1].changes.notices) == len(writes)


class Cluster:
    """A znode tree with a controller, which performs plans as a broker would."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.tree.apply(OpenSession(1, 1000), 1, 0)
        assert self.write(first_znodes("c")).failure is None
        epoch, stat = self.tree.get(ControllerEpoch.PATH)
        claim = claim_controller(1, ControllerEpoch.decode(epoch), stat.version, 77)
        assert self.write(claim.operations).failure is None
        self.epoch_version = claim.epoch_version
        assert claim.epoch == 1

    def write(self, operations: Sequence[Operation]) -> Applied:
        return self.tree.apply(Write(1, tuple(operations)), self.tree.last_zxid + 1, 0)

    def state(self) -> ClusterState:
        changes, stat = self.tree.get(Changes.PATH)
        topics = {name: self.topic(name) for name in self.tree.children("/brokers/topics")[0]}
        return ClusterState(self.epoch_version, Changes.decode(changes), stat.version, BROKERS, topics)

    def topic(self, name: str) -> Topic:
        node = TopicNode.decode(self.tree.get(topic_path(name))[0])
        read = [self.tree.get(topic_path(name, n)) for n in range(shard_count(node.partition_count))]
        shards = [TopicShard.decode(data) for data, _ in read[1:]]
        return topic_of(name, node, shards, [stat.version for _, stat in read])

    def perform(self, *plans: Plan) -> FencedWrite:
        (write,) = fenced_writes(self.state(), plans)
        applied = self.write(write.operations)
        assert applied.failure is None
        after = self.state()
        assert (after.changes, after.changes_version) == (write.changes, write.changes_version)
        return write


def test_the_life_of_a_topic_in_the_tree() -> None:
    cluster = Cluster()
    request = new("orders", partition_count=600, configs={"retention.ms": "1"})
    plan = create_topic(cluster.state(), request, TOPIC_ID, DEFAULTS, accept, start=1)
    cluster.perform(plan)
    assert cluster.topic("orders") == plan.topic
    first = cluster.topic("orders").partitions[0]
    assert (first.replicas, first.isr, first.leader, first.leader_epoch) == ((2, 3), (2, 3), 2, 0)
    assert ConfigNode.decode(cluster.tree.get("/config/topics/orders")[0]).values == {"retention.ms": "1"}
    assert cluster.state().changes.since(0, 1) == (Notice(topics=("orders",), configs=("topics/orders",)),)

    grown = create_partitions(cluster.state(), "orders", 1100)
    cluster.perform(grown)
    assert cluster.topic("orders") == grown.topic
    assert grown.topic is not None
    assert grown.topic.versions == (1, 1, 0)
    assert cluster.topic("orders").partitions[:600] == plan.topic.partitions[:600]  # type: ignore[union-attr]

    cluster.perform(delete_topic(cluster.state(), "orders", has_config=True))
    assert cluster.state().topics == {}
    assert cluster.tree.exists("/config/topics/orders") is None
    path = TopicDeletion.path(TOPIC_ID)
    for broker_id, left in ((2, (1, 3)), (3, (1,)), (1, None)):
        data, stat = cluster.tree.get(path)
        cluster.perform(replicas_removed(TopicDeletion.decode(data), stat.version, broker_id))
        found = cluster.tree.exists(path)
        assert (found is None) == (left is None)
        if left:
            assert TopicDeletion.decode(cluster.tree.get(path)[0]).brokers == left


def test_a_plan_from_an_old_view_changes_nothing() -> None:
    cluster = Cluster()
    old = cluster.state()
    cluster.perform(create_topic(old, new("one"), TOPIC_ID, DEFAULTS, accept))
    (write,) = fenced_writes(old, [create_topic(old, new("two"), UUID(int=6), DEFAULTS, accept)])
    assert isinstance(cluster.write(write.operations).failure, BadVersionError)
    assert list(cluster.state().topics) == ["one"]


def test_a_controller_that_is_no_more_changes_nothing() -> None:
    cluster = Cluster()
    state = cluster.state()
    epoch, stat = cluster.tree.get(ControllerEpoch.PATH)
    rival = claim_controller(2, ControllerEpoch.decode(epoch), stat.version, 0)
    assert isinstance(cluster.write(rival.operations).failure, NodeExistsError)
    assert cluster.write(rival.operations[1:]).failure is None
    (write,) = fenced_writes(state, [create_topic(state, new(), TOPIC_ID, DEFAULTS, accept)])
    failure = cluster.write(write.operations).failure
    assert isinstance(failure, BadVersionError)
    assert failure.operation_index == 0


def test_settings_are_written_changed_and_removed() -> None:
    cluster = Cluster()
    path = ConfigNode.path("brokers", "<default>")
    cluster.perform(set_configs("brokers", "<default>", {"a": "1"}, None))
    cluster.perform(set_configs("brokers", "<default>", {"a": "2"}, 0))
    assert ConfigNode.decode(cluster.tree.get(path)[0]).values == {"a": "2"}
    write = cluster.perform(set_configs("brokers", "<default>", {}, 1))
    assert write.changes.notices[-1] == Notice(configs=("brokers/<default>",))
    assert cluster.tree.exists(path) is None
    assert set_configs("topics", "t", {}, None).operations == ()


def test_producer_ids_come_in_blocks() -> None:
    cluster = Cluster()
    taken: list[int] = []
    for broker_id in (1, 2):
        data, stat = cluster.tree.get(ProducerIds.PATH)
        block = next_block(ProducerIds.decode(data), stat.version, broker_id)
        assert cluster.write([block.operation]).failure is None
        assert isinstance(cluster.write([block.operation]).failure, BadVersionError)
        taken += block.ids
    assert taken == list(range(2000))
    with pytest.raises(ApiError):
        next_block(ProducerIds(next_id=PRODUCER_ID_MAX - 10), 0, 1)
