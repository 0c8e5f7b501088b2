"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and DeleteGroups in every version."""

from __future__ import annotations

import struct
import uuid

import pytest

from penstock.base.errors import Error
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription

JOIN = range(10)
HEARTBEAT = range(5)
LEAVE = range(6)
SYNC = range(6)
DESCRIBE = range(7)
LIST = range(6)
DELETE = range(3)
KNOWN_IDS_SINCE, STATIC_SINCE = 4, 5
SESSION_MS = 30_000

SUBSCRIPTION = struct.pack(">h", 0) + encode(ConsumerProtocolSubscription(topics=["t"]), 0)
RANGE = [{"name": "range", "metadata": SUBSCRIPTION}]


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


def joining(group, *, member_id="", instance_id=None, protocols=None, **changes):
    return {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": RANGE if protocols is None else protocols,
        **changes,
    }


def join(client, version, group, **changes):
    """Join, with the second request that newer versions need; the answer."""
    answer = client.ask("JoinGroup", version, **joining(group, **changes))
    if answer.error_code == Error.MEMBER_ID_REQUIRED:
        answer = client.ask("JoinGroup", version, **joining(group, **{**changes, "member_id": answer.member_id}))
    return answer


def sync(client, version, group, member_id, generation, assignments=(), **changes):
    return client.ask(
        "SyncGroup",
        version,
        **{
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": each, "assignment": part} for each, part in assignments],
            **changes,
        },
    )


def member(client, group, version=9, **changes):
    """A stable group of one; its member id."""
    answer = join(client, version, group, **changes)
    assert answer.error_code == Error.NONE
    sync(client, 5, group, answer.member_id, answer.generation_id, [(answer.member_id, b"all")])
    return answer.member_id


def leave(client, version, group, *members):
    """(member id, instance id) of those who leave."""
    return client.ask(
        "LeaveGroup",
        version,
        group_id=group,
        member_id=members[0][0],
        members=[{"member_id": each, "group_instance_id": instance} for each, instance in members],
    )


def heartbeat(client, version, group, member_id, generation, instance_id=None):
    return client.ask(
        "Heartbeat",
        version,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id if version >= 3 else None,
    ).error_code


# ── JoinGroup ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", JOIN)
def test_a_member_joins_alone(client, group, version):
    answer = client.ask("JoinGroup", version, **joining(group))
    if version >= KNOWN_IDS_SINCE:
        assert answer.error_code == Error.MEMBER_ID_REQUIRED
        assert answer.member_id
        answer = client.ask("JoinGroup", version, **joining(group, member_id=answer.member_id))
    assert answer.error_code == Error.NONE
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id
    assert [(each.member_id, bytes(each.metadata)) for each in answer.members] == [(answer.member_id, SUBSCRIPTION)]


@pytest.mark.parametrize("version", JOIN)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group": ""}, Error.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, Error.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
    ids=lambda value: value.name if isinstance(value, Error) else "".join(map(str, value.items())),
)
def test_wrong_joins(client, group, version, changes, error):
    values = {"group": group, **changes}
    assert client.ask("JoinGroup", version, **joining(**values)).error_code == error


@pytest.mark.parametrize("version", JOIN)
def test_joins_that_do_not_fit_the_group(client, group, version):
    member(client, group)
    others = (
        {"protocols": [{"name": "other", "metadata": b""}]},
        {"protocol_type": "connect"},
        {"member_id": "nobody", "protocol_type": "connect"},
    )
    for changes in others:
        answer = client.ask("JoinGroup", version, **joining(group, **changes))
        assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert client.ask("JoinGroup", version, **joining(group, member_id="x")).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", JOIN)
def test_two_members(client, group, version):
    first = member(client, group, version)
    if version >= KNOWN_IDS_SINCE:
        second = client.ask("JoinGroup", version, **joining(group)).member_id
        waiting = client.begin("JoinGroup", version, **joining(group, member_id=second))
    else:
        waiting = client.begin("JoinGroup", version, **joining(group))
    client.ask(
        "Heartbeat",
        3,
        until=lambda answer: answer.error_code == Error.REBALANCE_IN_PROGRESS,
        is_patient=True,
        group_id=group,
        generation_id=1,
        member_id=first,
    )
    rejoining = client.begin("JoinGroup", version, **joining(group, member_id=first))
    follower = waiting()
    leader = rejoining()
    assert (leader.generation_id, leader.leader, leader.member_id) == (2, first, first)
    assert {each.member_id for each in leader.members} == {first, follower.member_id}
    assert (follower.generation_id, follower.leader, follower.members) == (2, first, [])
    again = client.ask("JoinGroup", version, **joining(group, member_id=follower.member_id))
    assert (again.error_code, again.generation_id, again.members) == (Error.NONE, 2, [])


@pytest.mark.parametrize("version", range(STATIC_SINCE, 10))
def test_static_members(client, group, version):
    first = join(client, version, group, instance_id="i")
    assert first.error_code == Error.NONE
    sync(client, 5, group, first.member_id, 1, [(first.member_id, b"all")], group_instance_id="i")
    second = join(client, version, group, instance_id="i")
    assert second.error_code == Error.NONE
    assert (second.generation_id, second.skip_assignment) == (1, version >= 9)
    assert second.member_id != first.member_id
    fenced = client.ask("JoinGroup", version, **joining(group, member_id=first.member_id, instance_id="i"))
    assert fenced.error_code == Error.FENCED_INSTANCE_ID
    unknown = client.ask("JoinGroup", version, **joining(group, member_id=first.member_id, instance_id="j"))
    assert unknown.error_code == Error.UNKNOWN_MEMBER_ID
    assert heartbeat(client, 4, group, first.member_id, 1, "i") == Error.FENCED_INSTANCE_ID
    assert heartbeat(client, 4, group, second.member_id, 1, "i") == Error.NONE
    old = sync(client, 5, group, first.member_id, 1, group_instance_id="i")
    assert old.error_code == Error.FENCED_INSTANCE_ID
    new = sync(client, 5, group, second.member_id, 1, group_instance_id="i")
    assert bytes(new.assignment) == b"all"
    answer = leave(client, 5, group, (first.member_id, "i"), ("", "x"), ("", "i"))
    assert [each.error_code for each in answer.members] == [
        Error.FENCED_INSTANCE_ID,
        Error.UNKNOWN_MEMBER_ID,
        Error.NONE,
    ]


# ── SyncGroup ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", SYNC)
def test_syncing(client, group, version):
    joined = join(client, 9, group)
    answer = sync(client, version, group, joined.member_id, 1, [(joined.member_id, b"all"), ("ghost", b"none")])
    assert (answer.error_code, bytes(answer.assignment)) == (Error.NONE, b"all")
    again = sync(client, version, group, joined.member_id, 1)
    assert (again.error_code, bytes(again.assignment)) == (Error.NONE, b"all")


@pytest.mark.parametrize("version", SYNC)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation_id": 0}, Error.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"group_id": "no such group"}, Error.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
    ],
    ids=str,
)
def test_wrong_syncs(client, group, version, changes, error):
    joined = join(client, 9, group)
    who = {"member_id": joined.member_id, **changes}.pop("member_id")
    others = {name: value for name, value in changes.items() if name != "member_id"}
    assert sync(client, version, group, who, 1, **others).error_code == error


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocol_name": "x"}, {"protocol_type": None}, {"protocol_name": None}]
)
def test_syncs_with_another_protocol(client, group, changes):
    joined = join(client, 9, group)
    answer = sync(client, 5, group, joined.member_id, 1, **changes)
    assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


# ── Heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", HEARTBEAT)
def test_heartbeats(client, group, version):
    member_id = member(client, group)
    assert heartbeat(client, version, group, member_id, 1) == Error.NONE
    assert heartbeat(client, version, group, member_id, 2) == Error.ILLEGAL_GENERATION
    assert heartbeat(client, version, group, "nobody", 1) == Error.UNKNOWN_MEMBER_ID
    assert heartbeat(client, version, "no such group", member_id, 1) == Error.UNKNOWN_MEMBER_ID
    assert heartbeat(client, version, "", member_id, 1) == Error.INVALID_GROUP_ID
    if version >= 3:
        assert heartbeat(client, version, group, member_id, 1, "i") == Error.UNKNOWN_MEMBER_ID


# ── LeaveGroup ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", LEAVE)
def test_leaving(client, group, version):
    member_id = member(client, group)
    for who, name, error in (
        ("nobody", group, Error.UNKNOWN_MEMBER_ID),
        ("", group, Error.UNKNOWN_MEMBER_ID),
        (member_id, "no such group", Error.UNKNOWN_MEMBER_ID),
        (member_id, group, Error.NONE),
        (member_id, group, Error.UNKNOWN_MEMBER_ID),
    ):
        answer = leave(client, version, name, (who, None))
        assert (answer.members[0].error_code if version >= 3 else answer.error_code) == error
    assert leave(client, version, "", (member_id, None)).error_code == Error.INVALID_GROUP_ID
    listed = client.ask("ListGroups", 5, differs=OTHERS)
    assert [each.group_state for each in listed.groups if each.group_id == group] == ["Empty"]


@pytest.mark.parametrize("version", range(3, 6))
def test_leaving_together(client, group, version):
    member_id = member(client, group)
    pending = client.ask("JoinGroup", 9, **joining(group)).member_id
    answer = leave(client, version, group, (member_id, None), (pending, None), (member_id, None))
    assert [each.error_code for each in answer.members] == [Error.NONE, Error.NONE, Error.UNKNOWN_MEMBER_ID]
    assert client.ask("LeaveGroup", version, group_id=group, members=[]).members == []


def test_too_many_leave(client, group):
    answer = client.ask(
        "LeaveGroup",
        5,
        not_kafka="it takes any number",
        group_id=group,
        members=[{"member_id": "x"}] * 10_001,
    )
    assert (answer.error_code, answer.members) == (Error.INVALID_REQUEST, [])


# ── DescribeGroups ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize("operations", [False, True])
def test_describing(client, group, version, operations):
    def describe(name):
        options = {"include_authorized_operations": operations} if version >= 3 else {}
        return client.ask("DescribeGroups", version, groups=[name], **options).groups[0]

    nothing = describe(group)
    assert (nothing.error_code, nothing.group_state) == (
        (Error.GROUP_ID_NOT_FOUND if version >= 6 else Error.NONE),
        "Dead",
    )
    joined = join(client, 9, group)
    assert describe(group).group_state == "CompletingRebalance"
    sync(client, 5, group, joined.member_id, 1, [(joined.member_id, b"all")])
    stable = describe(group)
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    (row,) = stable.members
    assert (row.member_id, bytes(row.member_metadata)) == (joined.member_id, SUBSCRIPTION)
    assert bytes(row.member_assignment) == b"all"
    assert row.client_host == "/127.0.0.1"
    leave(client, 5, group, (joined.member_id, None))
    empty = describe(group)
    assert (empty.group_state, empty.members) == ("Empty", [])


def test_describing_very_many(client, group):
    answer = client.ask("DescribeGroups", 5, groups=[f"{group}{number}" for number in range(1000)])
    assert {row.group_state for row in answer.groups} == {"Dead"}


# ── ListGroups ───────────────────────────────────────────────────────────────────────────────────────────────────

OTHERS = {"groups*": "groups of other tests"}


@pytest.mark.parametrize("version", LIST)
def test_listing(client, group, version):
    member(client, group)
    answer = client.ask("ListGroups", version, differs=OTHERS)
    (row,) = [each for each in answer.groups if each.group_id == group]
    assert row.protocol_type == "consumer"
    assert row.group_state == ("Stable" if version >= 4 else "")
    assert row.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        (["Stable"], [], True),
        (["stable"], [], True),
        (["Empty"], [], False),
        (["Empty", "Stable"], ["classic"], True),
        (["nonsense"], [], False),
        ([], ["Classic"], True),
        ([], ["consumer"], False),
        ([], ["nonsense"], False),
    ],
)
def test_filters(client, group, states, types, is_listed):
    member(client, group)
    answer = client.ask("ListGroups", 5, differs=OTHERS, states_filter=states, types_filter=types)
    assert answer.error_code == Error.NONE
    assert (group in {each.group_id for each in answer.groups}) == is_listed


# ── DeleteGroups ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", DELETE)
def test_deleting(client, group, version):
    def delete(*names):
        answer = client.ask("DeleteGroups", version, groups_names=list(names))
        return {result.group_id: result.error_code for result in answer.results}

    member_id = member(client, group)
    assert delete(group, "no such group", group) == {
        group: Error.NON_EMPTY_GROUP,
        "no such group": Error.GROUP_ID_NOT_FOUND,
    }
    leave(client, 5, group, (member_id, None))
    assert delete(group) == {group: Error.NONE}
    assert delete(group) == {group: Error.GROUP_ID_NOT_FOUND}
