"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from __future__ import annotations

import struct
import uuid

import pytest

from penstock.base.errors import Error
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription

COMMIT = range(2, 11)
FETCH = range(1, 11)
LEADER_EPOCHS_SINCE = {"OffsetCommit": 6, "OffsetFetch": 5}
TOPIC_IDS_SINCE = 10
NO_TOPIC_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


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
def topic(client):
    return client.once("committed", lambda: client.topic(partitions=2))


def commit(client, version, group, topic, offsets, *, topic_id=None, member_id="", generation=-1, **changes):
    """Commit (partition, offset, metadata) triples of one topic; the errors by partition."""
    if topic_id is None:
        topic_id = client.topic_id(topic)
    answer = client.ask(
        "OffsetCommit",
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            {
                "name": topic,
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": 0,
                        "committed_metadata": metadata,
                    }
                    for index, offset, metadata in offsets
                ],
            }
        ],
        **changes,
    )
    (row,) = answer.topics
    return {part.partition_index: part.error_code for part in row.partitions}


def fetch(client, version, group, topics, *, require_stable=False, **changes):
    """{name: [partitions]} or None for all; {(topic, partition): (offset, epoch, metadata, error)}."""
    named = None
    if topics is not None:
        named = [
            {"name": name, "topic_id": client.topic_id(name), "partition_indexes": indexes}
            for name, indexes in topics.items()
        ]
    if version >= 8:
        asked = {"groups": [{"group_id": group, "topics": named, **changes}]}
    else:
        plain = named and [{key: each[key] for key in ("name", "partition_indexes")} for each in named]
        asked = {"group_id": group, "topics": plain if named is not None else None}
    if version >= 7:
        asked["require_stable"] = require_stable
    answer = client.ask("OffsetFetch", version, **asked)
    found = answer.groups[0] if version >= 8 else answer
    assert found.error_code == Error.NONE
    names = {client.topic_id(name): name for name in topics or ()}
    return {
        (row.name or names.get(row.topic_id), part.partition_index): (
            part.committed_offset,
            part.committed_leader_epoch,
            part.metadata,
            part.error_code,
        )
        for row in found.topics
        for part in row.partitions
    }


def member(client, group, topic):
    """A stable group of one that reads a topic."""
    metadata = struct.pack(">h", 0) + encode(ConsumerProtocolSubscription(topics=[topic]), 0)
    joining = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    answer = client.ask("JoinGroup", 9, **joining)
    answer = client.ask("JoinGroup", 9, **{**joining, "member_id": answer.member_id})
    client.ask(
        "SyncGroup",
        5,
        group_id=group,
        generation_id=1,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    return answer.member_id


# ── committing and reading ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", COMMIT)
def test_what_is_committed_is_read(client, group, topic, version):
    assert commit(client, version, group, topic, [(0, 5, "so far"), (1, 7, None)]) == {0: Error.NONE, 1: Error.NONE}
    epoch = 0 if version >= LEADER_EPOCHS_SINCE["OffsetCommit"] else -1
    assert fetch(client, 9, group, {topic: [0, 1]}) == {
        (topic, 0): (5, epoch, "so far", Error.NONE),
        (topic, 1): (7, epoch, "", Error.NONE),
    }


@pytest.mark.parametrize("version", FETCH)
def test_reading(client, group, topic, version):
    assert fetch(client, version, group, {topic: [0, 9]}) == {
        (topic, 0): (-1, -1, "", Error.NONE),
        (topic, 9): (-1, -1, "", Error.NONE),
    }
    commit(client, 9, group, topic, [(0, 5, "so far")])
    epoch = 0 if version >= LEADER_EPOCHS_SINCE["OffsetFetch"] else -1
    assert fetch(client, version, group, {topic: [1, 0]}) == {
        (topic, 0): (5, epoch, "so far", Error.NONE),
        (topic, 1): (-1, -1, "", Error.NONE),
    }
    assert fetch(client, version, group, {}) == {}


@pytest.mark.parametrize("version", range(2, 11))
def test_reading_everything(client, group, topic, version):
    assert fetch(client, version, group, None) == {}
    commit(client, 9, group, topic, [(0, 5, "so far")])
    (found,) = fetch(client, version, group, None).values()
    assert found[0] == 5


@pytest.mark.parametrize("version", range(7, 11))
def test_reading_what_is_stable(client, group, topic, version):
    commit(client, 9, group, topic, [(0, 5, "")])
    assert fetch(client, version, group, {topic: [0]}, require_stable=True)[topic, 0][0] == 5


@pytest.mark.parametrize("version", range(1, 10))
def test_reading_of_a_topic_that_is_not_there(client, group, version):
    plain = {"name": "no-such-topic", "partition_indexes": [0]}
    if version >= 8:
        answer = client.ask("OffsetFetch", version, groups=[{"group_id": group, "topics": [plain]}])
        topics = answer.groups[0].topics
    else:
        topics = client.ask("OffsetFetch", version, group_id=group, topics=[plain]).topics
    assert (topics[0].partitions[0].committed_offset, topics[0].partitions[0].error_code) == (-1, Error.NONE)


def test_reading_of_a_topic_id_that_is_not_there(client, group, topic):
    topics = [
        {"topic_id": NO_TOPIC_ID, "partition_indexes": [0, 1]},
        {"topic_id": client.topic_id(topic), "partition_indexes": [0]},
    ]
    answer = client.ask("OffsetFetch", 10, groups=[{"group_id": group, "topics": topics}])
    rows = {row.topic_id: [part.error_code for part in row.partitions] for row in answer.groups[0].topics}
    assert rows == {NO_TOPIC_ID: [Error.UNKNOWN_TOPIC_ID] * 2, client.topic_id(topic): [Error.NONE]}


@pytest.mark.parametrize("version", range(8, 11))
def test_reading_of_many_groups(client, group, topic, version):
    commit(client, 9, group, topic, [(0, 5, "")])
    asked = {"name": topic, "topic_id": client.topic_id(topic), "partition_indexes": [0]}
    answer = client.ask(
        "OffsetFetch",
        version,
        groups=[
            {"group_id": group, "topics": [asked]},
            {"group_id": "no such group", "topics": [asked]},
            {"group_id": f"{group}x", "topics": None},
        ],
    )
    assert [found.error_code for found in answer.groups] == [Error.NONE] * 3
    assert [[row.partitions[0].committed_offset for row in found.topics] for found in answer.groups] == [[5], [-1], []]


@pytest.mark.parametrize("version", [9, 10])
def test_members_of_classic_groups_may_say_who_they_are(client, group, topic, version):
    member_id = member(client, group, topic)
    commit(client, 9, group, topic, [(0, 5, "")], member_id=member_id, generation=1)
    found = fetch(client, version, group, {topic: [0]}, member_id=member_id, member_epoch=1)
    assert found[topic, 0][0] == 5
    fetch(client, version, group, {topic: [0]}, member_id="nobody", member_epoch=7)


# ── wrong commits ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", COMMIT)
def test_commits_for_what_is_not_there(client, group, topic, version):
    assert commit(client, version, group, topic, [(0, 5, ""), (2, 5, ""), (-1, 5, "")]) == {
        0: Error.NONE,
        2: Error.UNKNOWN_TOPIC_OR_PARTITION,
        -1: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    error = Error.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_SINCE else Error.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, version, group, "no-such-topic", [(0, 5, "")], topic_id=NO_TOPIC_ID) == {0: error}


@pytest.mark.parametrize("version", COMMIT)
def test_commits_of_strangers(client, group, topic, version):
    def error_of(**who):
        return commit(client, version, group, topic, [(0, 5, "")], **who)[0]

    unknown = Error.GROUP_ID_NOT_FOUND if version >= 9 else Error.ILLEGAL_GENERATION
    assert error_of(member_id="nobody", generation=1) == unknown
    member_id = member(client, group, topic)
    assert error_of(member_id=member_id, generation=1) == Error.NONE
    assert error_of(member_id=member_id, generation=2) == Error.ILLEGAL_GENERATION
    assert error_of(member_id="nobody", generation=1) == Error.UNKNOWN_MEMBER_ID
    assert error_of() == Error.UNKNOWN_MEMBER_ID
    if version >= 7:
        assert error_of(member_id=member_id, generation=1, group_instance_id="i") == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", COMMIT)
def test_metadata_has_a_limit(client, group, topic, version):
    assert commit(client, version, group, topic, [(0, 5, "x" * 4097), (1, 5, "x" * 4096)]) == {
        0: Error.OFFSET_METADATA_TOO_LARGE,
        1: Error.NONE,
    }


@pytest.mark.parametrize("version", COMMIT)
def test_a_group_without_a_name(client, group, topic, version):
    assert commit(client, version, "", topic, [(0, 5, "")]) == {0: Error.NONE}
    assert fetch(client, 9, "", {topic: [0]})[topic, 0][0] == 5
    (described,) = client.ask("DescribeGroups", 6, groups=[""]).groups
    assert described.group_state == "Empty"
    (deleted,) = client.ask("DeleteGroups", 2, groups_names=[""]).results
    assert deleted.error_code == Error.NONE


@pytest.mark.parametrize("version", COMMIT)
def test_a_commit_of_nothing(client, group, topic, version):
    answer = client.ask("OffsetCommit", version, group_id=group, topics=[])
    assert answer.topics == []


@pytest.mark.parametrize("version", range(2, 5))
def test_how_long_a_client_wants_it_kept(client, group, topic, version):
    assert commit(client, version, group, topic, [(0, 5, "")], retention_time_ms=1000) == {0: Error.NONE}


def test_offsets_below_zero(client, group, topic):
    commit(client, 9, group, topic, [(0, -1, ""), (1, -5, "")])
    assert [row[0] for row in fetch(client, 9, group, {topic: [0, 1]}).values()] == [-1, -5]


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def delete(client, group, *topics):
    """(topic, partitions) of what to delete; the error, and the errors by topic and partition."""
    answer = client.ask(
        "OffsetDelete",
        0,
        group_id=group,
        topics=[
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]} for name, indexes in topics
        ],
    )
    found = {(row.name, part.partition_index): part.error_code for row in answer.topics for part in row.partitions}
    return answer.error_code, found


def test_deleting_offsets(client, group, topic):
    assert delete(client, group, (topic, [0])) == (Error.GROUP_ID_NOT_FOUND, {})
    assert delete(client, "", (topic, [0])) == (Error.INVALID_GROUP_ID, {})
    commit(client, 9, group, topic, [(0, 5, ""), (1, 6, "")])
    assert delete(client, group, (topic, [0, 9]), ("no-such-topic", [0])) == (
        Error.NONE,
        {
            (topic, 0): Error.NONE,
            (topic, 9): Error.UNKNOWN_TOPIC_OR_PARTITION,
            ("no-such-topic", 0): Error.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert [row[0] for row in fetch(client, 9, group, None).values()] == [6]


def test_offsets_of_a_topic_that_is_read_are_kept(client, group, topic):
    other = client.topic("other")
    member_id = member(client, group, topic)
    for each in (topic, other):
        commit(client, 9, group, each, [(0, 5, "")], member_id=member_id, generation=1)
    assert delete(client, group, (topic, [0]), (other, [0])) == (
        Error.NONE,
        {(topic, 0): Error.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): Error.NONE},
    )
    assert len(fetch(client, 9, group, None)) == 1


def test_offsets_of_a_deleted_topic_are_gone(client, group):
    doomed = client.topic("doomed")
    commit(client, 9, group, doomed, [(0, 5, "")])
    client.ask("DeleteTopics", 5, topic_names=[doomed], timeout_ms=10_000)
    client.ask(
        "OffsetFetch",
        7,
        until=lambda answer: not answer.topics,
        is_patient=True,
        group_id=group,
        topics=None,
    )
