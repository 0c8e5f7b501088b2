"""Our znodes: round trips, content of a newer release, notices, and topics of many partitions."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.zookeeper import znodes
from penstock.zookeeper.operations import Create, Delete, SetData, Write
from penstock.zookeeper.operations import OpenSession as Open
from penstock.zookeeper.topic_znodes import (
    PARTITIONS_PER_ZNODE,
    PartitionState,
    Topic,
    TopicNode,
    TopicShard,
    creation,
    deletion,
    shard_count,
    topic_of,
    topic_path,
    update,
)
from penstock.zookeeper.tree import Tree
from penstock.zookeeper.znodes import Changes, Notice, Znode, ZnodeFormatError

TOPIC_ID = UUID(int=7)
broker_ids = st.integers(0, 2**31 - 1)
brokers = st.lists(broker_ids, max_size=4).map(tuple)
states = st.builds(
    PartitionState,
    replicas=brokers,
    isr=brokers,
    leader=st.integers(-1, 9),
    leader_epoch=st.integers(0, 9),
    partition_epoch=st.integers(0, 2**31 - 1),
    eligible=brokers,
    adding=brokers,
    removing=brokers,
)
notices = st.builds(
    Notice,
    topics=st.none() | st.lists(st.text(max_size=5)).map(tuple),
    configs=st.lists(st.text(max_size=5)).map(tuple),
)
endpoints = st.builds(
    znodes.Endpoint, listener=st.text(), host=st.text(), port=st.integers(0, 65535), security_protocol=st.text()
)
every_znode = st.one_of(
    st.builds(znodes.ClusterNode, cluster_id=st.text()),
    st.builds(znodes.ControllerNode, broker_id=broker_ids, epoch=broker_ids, timestamp_ms=st.integers(0, 2**60)),
    st.builds(znodes.ControllerEpoch, epoch=broker_ids),
    st.builds(
        znodes.BrokerNode,
        endpoints=st.lists(endpoints, max_size=3).map(tuple),
        host=st.text(),
        rack=st.none() | st.text(),
        log_dirs=st.lists(st.uuids(), max_size=2).map(tuple),
        clean_start=st.booleans(),
    ),
    st.builds(znodes.TopicDeletion, name=st.text(), topic_id=st.uuids(), partition_count=broker_ids, brokers=brokers),
    st.builds(znodes.ConfigNode, values=st.dictionaries(st.text(), st.text())),
    st.builds(znodes.ProducerIds, next_id=st.integers(0, 2**63 - 1), broker_id=broker_ids),
    st.builds(Changes, notices=st.lists(notices, max_size=4).map(tuple)),
    st.builds(
        TopicNode, topic_id=st.uuids(), partition_count=broker_ids, partitions=st.lists(states, max_size=3).map(tuple)
    ),
    st.builds(TopicShard, topic_id=st.uuids(), partitions=st.lists(states, max_size=3).map(tuple)),
)


def with_unknown_fields(value: Any, *, top: bool = True) -> Any:
    """As a newer release might write it: something more in every object that is not a mapping of names."""
    if isinstance(value, list):
        return [with_unknown_fields(item, top=False) for item in value]
    if isinstance(value, dict):
        inner = {k: v if k == "values" else with_unknown_fields(v, top=False) for k, v in value.items()}
        return {"from the future": [{"x": None}], **inner}
    return value


@settings(max_examples=150, deadline=None)
@given(every_znode)
def test_every_znode_comes_back_also_with_fields_of_a_newer_release(znode: Znode) -> None:
    data = znode.encode()
    assert json.loads(data)["version"] == 1
    assert type(znode).decode(data) == znode
    newer = json.dumps(with_unknown_fields(json.loads(data))).encode()
    assert type(znode).decode(newer) == znode


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"version":1}', b'{"version":2,"epoch":1}', b'{"epoch":"x"}', b"\xff", b'{"epoch":null}'],
)
def test_what_cannot_be_read_is_said(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="ControllerEpoch"):
        znodes.ControllerEpoch.decode(data)


def test_paths() -> None:
    assert znodes.BrokerNode.path(3) == "/brokers/ids/3"
    assert znodes.ConfigNode.path("brokers", znodes.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert znodes.TopicDeletion.path(TOPIC_ID) == "/topic_deletions/AAAAAAAAAAAAAAAAAAAABw"
    assert topic_path("orders") == "/brokers/topics/orders"
    assert topic_path("orders", 2) == "/brokers/topics/orders/2"


def test_the_first_znodes_make_every_folder() -> None:
    tree = Tree()
    tree.apply(Open(1, 1000), 1, 0)
    assert tree.apply(Write(1, znodes.first_znodes("abc")), 2, 0).failure is None
    assert znodes.ClusterNode.decode(tree.get("/cluster")[0]).cluster_id == "abc"
    for path in (znodes.BROKER_IDS_PATH, znodes.TOPICS_PATH, znodes.TOPIC_DELETIONS_PATH, "/config/topics"):
        assert tree.children(path)[0] == []


def test_a_reader_finds_the_notices_it_has_not_seen() -> None:
    changes = Changes()
    for number in range(1, 1501):
        changes = changes.with_notice(Notice(topics=(f"t{number}",)))
    assert len(changes.notices) == znodes.NOTICES_MAX
    assert changes.since(1500, 1500) == ()
    assert changes.since(1498, 1500) == (Notice(topics=("t1499",)), Notice(topics=("t1500",)))
    assert len(changes.since(500, 1500) or ()) == 1000
    assert changes.since(499, 1500) is None
    assert changes.since(1501, 1500) is None


def test_notices_stay_small() -> None:
    names = tuple(f"{number:0249d}" for number in range(100))
    changes = Changes()
    for _ in range(20):
        changes = changes.with_notice(Notice(topics=names))
        assert len(changes.encode()) < znodes.NOTICES_SIZE_BYTES_MAX
    assert changes.since(18, 20) == (Notice(topics=names),) * 2
    huge = changes.with_notice(Notice(topics=names * 10)).with_notice(Notice(topics=("x",)))
    assert huge.since(20, 22) is None
    assert huge.since(21, 22) == (Notice(topics=("x",)),)


@pytest.mark.parametrize("count", [1, 499, 500, 501, 1000, 1001])
def test_a_topic_is_spread_over_znodes_and_put_together(count: int) -> None:
    states = tuple(PartitionState((number,), (number,), number) for number in range(count))
    topic = Topic("t", TOPIC_ID, states)
    operations = creation(topic)
    assert len(operations) == shard_count(count) == max(1, -(-count // PARTITIONS_PER_ZNODE))
    contents = [operation.data for operation in operations if isinstance(operation, Create)]
    node, shards = TopicNode.decode(contents[0]), [TopicShard.decode(content) for content in contents[1:]]
    versions = tuple(range(len(contents)))
    assert topic_of("t", node, shards, versions) == Topic("t", TOPIC_ID, states, versions)
    written = Topic("t", TOPIC_ID, states, versions)
    assert deletion(written)[-1] == Delete("/brokers/topics/t", 0)
    assert len(deletion(written)) == len(contents)
    if shards:
        with pytest.raises(ZnodeFormatError):
            topic_of("t", node, shards[:-1], versions)
        with pytest.raises(ZnodeFormatError):
            topic_of("t", node, [*shards[:-1], TopicShard(topic_id=UUID(int=8), partitions=())], versions)


def test_only_znodes_that_differ_are_written() -> None:
    states = [PartitionState((1,), (1,), 1) for _ in range(1200)]
    before = Topic("t", TOPIC_ID, tuple(states), (4, 5, 6))
    states[700] = PartitionState((1,), (1,), -1, 1, 1)
    after = Topic("t", TOPIC_ID, tuple(states), (4, 5, 6))
    (operation,) = update(before, after)
    assert isinstance(operation, SetData)
    assert (operation.path, operation.version) == ("/brokers/topics/t/1", 5)
    assert update(before, before) == []
