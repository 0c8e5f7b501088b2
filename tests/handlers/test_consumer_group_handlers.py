"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version, and what else such groups change."""

from __future__ import annotations

import struct
import uuid

import pytest

from penstock.base.errors import Error
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

HEARTBEAT = range(2)
DESCRIBE = range(2)
OWN_ID_SINCE = 1
REBALANCE_MS = 30_000
NAMES_IN_ORDER = {"*subscribed_topic_names": "Kafka has them in no particular order"}
PATTERNS_ARE_SLOWER = "Kafka resolves patterns in the background, and says later what a member gets"


@pytest.fixture
def group(client):
    """The id of a group that nobody has used, at a broker that is ready for it."""
    name = f"g{uuid.uuid4().hex[:10]}"
    client.ask(
        "FindCoordinator",
        4,
        until=lambda answer: answer.coordinators[0].error_code == Error.NONE,
        coordinator_keys=[name],
        key_type=0,
    )
    client.ask("OffsetFetch", 7, until=lambda answer: answer.error_code == Error.NONE, group_id=name, topics=[])
    return name


@pytest.fixture
def topic(client, group):
    return topic_for_groups(client, partitions=4)


def topic_for_groups(client, suffix="", *, partitions):
    """A topic that the coordinators of all groups know. Kafka's hear of it later than everybody else."""
    name = client.topic(suffix, partitions=partitions)

    def is_known(answer):
        return len(assigned(answer)) == partitions

    for letter in "ab":  # one in each of the two partitions of groups
        fields = {"group_id": f"{name}-{letter}", "member_id": "probe", "member_epoch": 0, **full(name)}
        client.ask("ConsumerGroupHeartbeat", 1, until=is_known, differs={"*": "when Kafka hears of it"}, **fields)
    return name


def full(*topics, **changes):
    """The fields of a member that says everything."""
    return {
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **changes,
    }


def beat(client, group, member_id, epoch, *, version=1, differs=None, until=None, **fields):
    values = {"group_id": group, "member_id": member_id, "member_epoch": epoch, **fields}
    return client.ask("ConsumerGroupHeartbeat", version, differs=differs, until=until, **values)


def owned(client, topic, *partitions):
    return [{"topic_id": client.topic_id(topic), "partitions": list(partitions)}] if partitions else []


def assigned(answer):
    return [part for each in answer.assignment.topic_partitions for part in each.partitions]


def describe(client, group, version=1, **options):
    answer = client.ask("ConsumerGroupDescribe", version, differs=NAMES_IN_ORDER, group_ids=[group], **options)
    return answer.groups[0]


# ── joining, staying, leaving ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", HEARTBEAT)
def test_a_member_alone(client, group, topic, version):
    member_id = "" if version < OWN_ID_SINCE else "me"
    answer = beat(client, group, member_id, 0, version=version, **full(topic))
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (Error.NONE, 2, 5000)
    assert assigned(answer) == [0, 1, 2, 3]
    member_id = answer.member_id
    assert beat(client, group, member_id, 2, version=version).assignment is None
    parts = owned(client, topic, 0, 1, 2, 3)
    again = beat(client, group, member_id, 2, version=version, **full(topic, topic_partitions=parts))
    assert assigned(again) == [0, 1, 2, 3]
    gone = beat(client, group, member_id, -1, version=version)
    assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (Error.NONE, -1, 0)
    assert beat(client, group, member_id, -1, version=version).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", HEARTBEAT)
@pytest.mark.parametrize(
    ("epoch", "changes", "error"),
    [
        (0, {"rebalance_timeout_ms": -1}, Error.INVALID_REQUEST),
        (0, {"topic_partitions": None}, Error.INVALID_REQUEST),
        (0, {"topic_partitions": [{"topic_id": uuid.UUID(int=7), "partitions": [1]}]}, Error.INVALID_REQUEST),
        (0, {"subscribed_topic_names": None}, Error.INVALID_REQUEST),
        (0, {"instance_id": ""}, Error.INVALID_REQUEST),
        (0, {"rack_id": " "}, Error.INVALID_REQUEST),
        (0, {"group_id": ""}, Error.INVALID_REQUEST),
        (0, {"server_assignor": "best"}, Error.UNSUPPORTED_ASSIGNOR),
        (1, {"server_assignor": ""}, Error.UNSUPPORTED_ASSIGNOR),
        (1, {"member_id": ""}, Error.INVALID_REQUEST),
        (-1, {"member_id": ""}, Error.INVALID_REQUEST),
        (-2, {}, Error.INVALID_REQUEST),
        (-3, {}, Error.INVALID_REQUEST),
        (1, {}, Error.GROUP_ID_NOT_FOUND),
        (-1, {}, Error.GROUP_ID_NOT_FOUND),
        (-2, {"instance_id": "i"}, Error.GROUP_ID_NOT_FOUND),
    ],
)
def test_requests_that_are_refused(client, group, version, epoch, changes, error):
    values = {"group_id": group, "member_id": "me", "member_epoch": epoch, **full("t"), **changes}
    assert client.ask("ConsumerGroupHeartbeat", version, **values).error_code == error


def test_a_rebalance(client, group, topic):
    beat(client, group, "m0", 0, **full(topic))
    joined = beat(client, group, "m1", 0, **full(topic))
    assert (joined.member_epoch, assigned(joined)) == (3, [])
    told = beat(client, group, "m0", 2)
    assert (told.member_epoch, assigned(told)) == (2, [0, 1])
    assert assigned(beat(client, group, "m0", 2, **full(topic, topic_partitions=owned(client, topic, 0, 1, 2)))) == [
        0,
        1,
    ]
    assert beat(client, group, "m1", 3).assignment is None
    let_go = beat(client, group, "m0", 2, topic_partitions=owned(client, topic, 0, 1))
    assert (let_go.member_epoch, let_go.assignment) == (3, None)
    assert assigned(beat(client, group, "m1", 3)) == [2, 3]
    lost = beat(client, group, "m0", 2, topic_partitions=owned(client, topic, 0))
    assert lost.member_epoch == 3, "it may not have heard of the new epoch"
    assert beat(client, group, "m0", 2).error_code == Error.FENCED_MEMBER_EPOCH
    parts = owned(client, topic, 0, 1, 2)
    assert beat(client, group, "m0", 2, topic_partitions=parts).error_code == Error.FENCED_MEMBER_EPOCH
    assert beat(client, group, "m0", 1).error_code == Error.FENCED_MEMBER_EPOCH
    assert beat(client, group, "m0", 9).error_code == Error.FENCED_MEMBER_EPOCH
    assert beat(client, group, "m2", 3).error_code == Error.UNKNOWN_MEMBER_ID
    again = beat(client, group, "m0", 0, **full(topic))
    assert (again.member_epoch, assigned(again)) == (3, [0, 1])
    beat(client, group, "m1", -1)
    assert assigned(beat(client, group, "m0", 3)) == [0, 1, 2, 3]


def test_another_subscription(client, group):
    first, second = topic_for_groups(client, "a", partitions=2), topic_for_groups(client, "b", partitions=3)
    beat(client, group, "m", 0, **full(first))
    changed = beat(client, group, "m", 2, subscribed_topic_names=[second])
    assert (changed.member_epoch, assigned(changed)) == (2, [])
    done = beat(client, group, "m", 2, topic_partitions=[])
    assert (done.member_epoch, assigned(done)) == (3, [0, 1, 2])
    nothing = beat(client, group, "m", 3, subscribed_topic_names=[])
    assert assigned(nothing) == []


def test_the_range_assignor(client, group):
    first, second = topic_for_groups(client, "a", partitions=2), topic_for_groups(client, "b", partitions=2)
    for member_id in ("m0", "m1"):
        beat(client, group, member_id, 0, **full(first, second, server_assignor="range"))
    beat(client, group, "m0", 2)
    parts = owned(client, first, 0) + owned(client, second, 0)
    assert beat(client, group, "m0", 2, topic_partitions=parts).member_epoch == 3
    assert assigned(beat(client, group, "m1", 3)) == [1, 1]
    assert describe(client, group).assignor_name == "range"


def test_static_members(client, group, topic):
    beat(client, group, "m0", 0, instance_id="i", **full(topic))
    assert beat(client, group, "m1", 0, instance_id="i", **full(topic)).error_code == Error.UNRELEASED_INSTANCE_ID
    assert beat(client, group, "m1", 2, instance_id="i").error_code == Error.FENCED_INSTANCE_ID
    assert beat(client, group, "m1", -1, instance_id="i").error_code == Error.FENCED_INSTANCE_ID
    assert beat(client, group, "m0", 2, instance_id="other").error_code == Error.UNKNOWN_MEMBER_ID
    paused = beat(client, group, "m0", -2, instance_id="i")
    assert (paused.error_code, paused.member_epoch) == (Error.NONE, -2)
    assert describe(client, group).members[0].member_epoch == -2
    back = beat(client, group, "m1", 0, instance_id="i", **full(topic))
    assert (back.member_epoch, assigned(back)) == (2, [0, 1, 2, 3])
    assert beat(client, group, "m0", 2, instance_id="i").error_code == Error.FENCED_INSTANCE_ID
    assert [member.member_id for member in describe(client, group).members] == ["m1"]
    assert beat(client, group, "m1", -1, instance_id="i").error_code == Error.NONE


def test_a_static_member_whose_answer_was_lost(client, group, topic):
    beat(client, group, "m0", 0, instance_id="i", **full(topic))
    strict = {"*": "Kafka refuses the very member that has the instance id until its session has ended"}
    again = beat(client, group, "m0", 0, instance_id="i", differs=strict, **full(topic))
    assert (again.error_code, assigned(again)) == (Error.NONE, [0, 1, 2, 3])


# ── topics and patterns ──────────────────────────────────────────────────────────────────────────────────────────────


def test_topics_that_change(client, group, topic):
    beat(client, group, "m", 0, **full(topic))
    client.ask("CreatePartitions", 3, topics=[{"name": topic, "count": 6, "assignments": None}], timeout_ms=10_000)
    grown = beat(client, group, "m", 2, until=lambda answer: answer.assignment is not None)
    assert (grown.member_epoch, assigned(grown)) == (3, [0, 1, 2, 3, 4, 5])


def test_patterns(client, group):
    for suffix in ("-one", "-two"):
        topic_for_groups(client, suffix, partitions=1)
    pattern = f"{client.prefix}-.*"
    slower = {"member_epoch": PATTERNS_ARE_SLOWER, "assignment*": PATTERNS_ARE_SLOWER}
    fields = full(subscribed_topic_names=None, subscribed_topic_regex=pattern)
    beat(client, group, "m", 0, differs=slower, **fields)
    told = beat(client, group, "m", 0, until=lambda answer: len(assigned(answer)) == 2, **fields)
    assert told.member_epoch == 2
    member = describe(client, group).members[0]
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == (pattern, [])
    assert beat(client, group, "m", 2).error_code == Error.NONE


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?=a)", r"(a)\1"])
def test_patterns_that_are_none(client, group, pattern):
    fields = full(subscribed_topic_names=None, subscribed_topic_regex=pattern)
    assert beat(client, group, "m", 0, **fields).error_code == Error.INVALID_REGULAR_EXPRESSION


# ── describing, listing, deleting ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", DESCRIBE)
def test_describe(client, group, topic, version):
    beat(client, group, "m0", 0, instance_id="i", rack_id="r", **full(topic))
    stable = describe(client, group, version, include_authorized_operations=True)
    assert (stable.group_state, stable.group_epoch, stable.assignment_epoch) == ("Stable", 2, 2)
    assert stable.assignor_name == "uniform"
    member = stable.members[0]
    assert (member.client_host, member.instance_id, member.rack_id) == ("/127.0.0.1", "i", "r")
    assert member.assignment.topic_partitions[0].topic_name == topic
    beat(client, group, "m1", 0, **full(topic, "not-there"))
    reconciling = describe(client, group, version)
    assert reconciling.group_state == "Reconciling"
    beat(client, group, "m0", 2)
    half = describe(client, group, version)
    assert [len(each.assignment.topic_partitions) for each in half.members if each.member_id == "m0"] == [1]
    beat(client, group, "m1", -1)
    assert describe(client, group, version).group_state == "Assigning"
    beat(client, group, "m0", -1, instance_id="i")
    assert (describe(client, group, version).group_state, describe(client, group, version).members) == ("Empty", [])


@pytest.mark.parametrize("version", DESCRIBE)
def test_describe_what_is_not_there(client, group, version):
    answer = client.ask("ConsumerGroupDescribe", version, group_ids=[group, ""], include_authorized_operations=True)
    errors = {each.group_id: each.error_code for each in answer.groups}
    assert errors == {group: Error.GROUP_ID_NOT_FOUND, "": Error.INVALID_GROUP_ID}
    assert client.ask("ConsumerGroupDescribe", version, group_ids=[]).groups == []
    twice = {"groups*": "Kafka answers as often as it is asked"}
    assert len(client.ask("ConsumerGroupDescribe", version, group_ids=[group, group], differs=twice).groups) == 1


def test_what_other_requests_say_of_the_group(client, group, topic):
    beat(client, group, "m", 0, **full(topic))
    listed = client.ask(
        "ListGroups",
        5,
        types_filter=["consumer"],
        states_filter=["stable"],
        differs={"groups*": "those of other tests"},
    )
    found = [
        (each.group_state, each.group_type, each.protocol_type) for each in listed.groups if each.group_id == group
    ]
    assert found == [("Stable", "consumer", "consumer")]
    assert client.ask("DescribeGroups", 6, groups=[group]).groups[0].error_code == Error.GROUP_ID_NOT_FOUND
    assert client.ask("DescribeGroups", 5, groups=[group]).groups[0].group_state == "Dead"
    deleted = client.ask("DeleteGroups", 2, groups_names=[group])
    assert deleted.results[0].error_code == Error.NON_EMPTY_GROUP
    beat(client, group, "m", -1)
    assert client.ask("DeleteGroups", 2, groups_names=[group]).results[0].error_code == Error.NONE
    assert describe(client, group).error_code == Error.GROUP_ID_NOT_FOUND


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def commit(client, group, topic, member_id, epoch, *, version=9, partition=0):
    answer = client.ask(
        "OffsetCommit",
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "committed_offset": 1}]}],
    )
    return answer.topics[0].partitions[0].error_code


def test_who_may_commit_and_fetch(client, group, topic):
    beat(client, group, "m0", 0, **full(topic))
    assert commit(client, group, topic, "m0", 2) == Error.NONE
    assert commit(client, group, topic, "m0", 3) == Error.STALE_MEMBER_EPOCH
    assert commit(client, group, topic, "m0", 1) == Error.STALE_MEMBER_EPOCH
    assert commit(client, group, topic, "m1", 2) == Error.UNKNOWN_MEMBER_ID
    assert commit(client, group, topic, "", -1) == Error.UNKNOWN_MEMBER_ID
    assert commit(client, group, topic, "m0", 2, version=8) == Error.UNSUPPORTED_VERSION
    beat(client, group, "m1", 0, **full(topic))
    beat(client, group, "m0", 2)
    beat(client, group, "m0", 2, topic_partitions=owned(client, topic, 0, 1))
    assert commit(client, group, topic, "m0", 2, partition=1) == Error.NONE, "it has had that one since epoch 2"
    assert commit(client, group, topic, "m0", 2, partition=2) == Error.STALE_MEMBER_EPOCH
    for member_id, epoch, error in (
        ("m0", 3, Error.NONE),
        ("m0", 2, Error.STALE_MEMBER_EPOCH),
        ("m9", 3, Error.UNKNOWN_MEMBER_ID),
        (None, -1, Error.NONE),
    ):
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        assert client.ask("OffsetFetch", 9, groups=[asked]).groups[0].error_code == error


# ── members of the classic protocol ──────────────────────────────────────────────────────────────────────────────────


def subscription(topic):
    metadata = struct.pack(">h", 3) + encode(ConsumerProtocolSubscription(topics=[topic]), 3)
    return [{"name": "range", "metadata": metadata}]


def join(client, group, topic, member_id="", *, version=9, **changes):
    values = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": REBALANCE_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": subscription(topic),
        **changes,
    }
    answer = client.ask("JoinGroup", version, **values)
    if answer.error_code == Error.MEMBER_ID_REQUIRED:
        return join(client, group, topic, answer.member_id, version=version, **changes)
    return answer


def sync(client, group, member_id, generation, assignments=()):
    return client.ask(
        "SyncGroup",
        5,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": each, "assignment": part} for each, part in assignments],
    )


def classic_heartbeat(client, group, member_id, generation):
    values = {"group_id": group, "generation_id": generation, "member_id": member_id}
    return client.ask("Heartbeat", 4, **values).error_code


def everything(topic):
    """What a leader gives to the only member."""
    parts = ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=[0, 1, 2, 3])
    return struct.pack(">h", 3) + encode(ConsumerProtocolAssignment(assigned_partitions=[parts]), 3)


def test_a_classic_group_moves_and_moves_back(client, group, topic):
    joined = join(client, group, topic)
    member_id = joined.member_id
    sync(client, group, member_id, 1, [(member_id, everything(topic))])
    new = beat(client, group, "new", 0, **full(topic))
    assert (new.error_code, new.member_epoch, assigned(new)) == (Error.NONE, 2, [])
    types = {each.member_id: each.member_type for each in describe(client, group).members}
    assert types == {member_id: 0, "new": 1}
    assert classic_heartbeat(client, group, member_id, 1) == Error.REBALANCE_IN_PROGRESS
    again = join(client, group, topic, member_id)
    assert (again.error_code, again.generation_id, again.protocol_name) == (Error.NONE, 2, "range")
    assert again.members == [] and again.leader == ""
    synced = sync(client, group, member_id, 2)
    assert synced.error_code == Error.NONE
    assert assigned(beat(client, group, "new", 2)) == [2, 3]
    assert classic_heartbeat(client, group, member_id, 2) == Error.NONE
    assert classic_heartbeat(client, group, member_id, 1) == Error.ILLEGAL_GENERATION
    assert classic_heartbeat(client, group, "new", 2) == Error.UNKNOWN_MEMBER_ID
    assert commit(client, group, topic, member_id, 2, version=8) == Error.NONE
    assert beat(client, group, "new", -1).error_code == Error.NONE
    assert describe(client, group).error_code == Error.GROUP_ID_NOT_FOUND
    described = client.ask("DescribeGroups", 6, groups=[group], until=_is_rebalancing).groups[0]
    assert described.group_state == "PreparingRebalance"
    assert classic_heartbeat(client, group, member_id, 2) == Error.REBALANCE_IN_PROGRESS
    assert join(client, group, topic, member_id).generation_id == 3


def _is_rebalancing(answer):
    return answer.groups[0].group_state == "PreparingRebalance"


def test_classic_members_that_may_not_join(client, group, topic):
    beat(client, group, "new", 0, **full(topic))
    assert (
        join(client, group, topic, version=9, protocol_type="connect").error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    )
    assert join(client, group, topic, session_timeout_ms=1).error_code == Error.INVALID_SESSION_TIMEOUT
    joined = join(client, group, topic)
    assert joined.error_code == Error.NONE
    odd = join(client, group, topic, protocols=[{"name": "odd", "metadata": b"\0\0\0\0\0\0\xff\xff\xff\xff"}])
    assert odd.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    left = client.ask("LeaveGroup", 5, group_id=group, members=[{"member_id": joined.member_id}, {"member_id": "x"}])
    assert [each.error_code for each in left.members] == [Error.NONE, Error.UNKNOWN_MEMBER_ID]


def test_an_empty_group_becomes_what_its_next_member_is(client, group, topic):
    beat(client, group, "new", 0, **full(topic))
    beat(client, group, "new", -1)
    assert join(client, group, topic, "unknown").error_code == Error.UNKNOWN_MEMBER_ID
    joined = join(client, group, topic)
    assert (joined.error_code, joined.generation_id, joined.leader) == (Error.NONE, 1, joined.member_id)
    client.ask("LeaveGroup", 5, group_id=group, members=[{"member_id": joined.member_id}])
    answer = beat(client, group, "new", 0, **full(topic))
    assert (answer.error_code, assigned(answer)) == (Error.NONE, [0, 1, 2, 3])
