"""Questions about groups that several commands ask: which there are, who is in them, what they have committed.

There are two protocols, and a group has one of them at a time. `describe_groups` does not need to know which: it asks
for groups of the new protocol first and for the others as classic ones, as Kafka's own tools do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.base.errors import Error
from penstock.cli.cluster import Answers, BrokerAddress, Cluster, CoordinatorKind
from penstock.cli.direct import DirectClient, check_error
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.places import Place, by_topic
from penstock.wire.codec import decode
from penstock.wire.messages import k09_offset_fetch as k09
from penstock.wire.messages import k15_describe_groups as k15
from penstock.wire.messages import k16_list_groups as k16
from penstock.wire.messages import k69_consumer_group_describe as k69
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.schema import ProtocolError

CLASSIC = "classic"
CONSUMER = "consumer"
DEAD = "Dead"
EMPTY = "Empty"
CONSUMER_PROTOCOL_TYPE = "consumer"
ASSIGNMENT_VERSION_MAX = 3


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    name: str
    type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class Member:
    """One member and the partitions it has been given; the target is where the new protocol is heading."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    places: list[Place]
    target: list[Place] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """What the coordinator knows of a group, but for its offsets."""

    name: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    coordinator: BrokerAddress
    members: list[Member] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset, and what was stored with it."""

    offset: int
    leader_epoch: int
    metadata: str


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Every group of the cluster, by name."""

    def ask(client: DirectClient) -> k16.ListGroupsResponse:
        answer = client.ask(k16.API.key, k16.ListGroupsRequest(), k16.ListGroupsResponse)
        check_error(answer.error_code, None, "the list of groups")
        return answer

    groups = [
        ListedGroup(each.group_id, each.group_type.lower() or CLASSIC, each.group_state, each.protocol_type)
        for _, answer in cluster.ask_all(ask)
        for each in answer.groups
    ]
    return sorted(groups, key=lambda group: group.name)


def unknown_group(cluster: Cluster, name: str) -> Failure:
    """The failure for a group that is not there, or is of a kind that is not described here."""
    known = list_groups(cluster)
    listed = next((group for group in known if group.name == name), None)
    if listed is not None and listed.type not in (CLASSIC, CONSUMER):
        return Failure(f"group '{name}' is a {listed.type} group, which this command does not know")
    close = did_you_mean(name, [group.name for group in known])
    hint = close or " ('penstock group list' shows what there is)"
    return Failure(f"there is no group '{name}'{hint}", ExitCode.NOT_FOUND)


def describe_groups(cluster: Cluster, names: Sequence[str]) -> list[Group]:
    """The groups of these names; fails on the first that does not exist."""
    groups = find_groups(cluster, names)
    for name in names:
        if name not in groups:
            raise unknown_group(cluster, name)
    return [groups[name] for name in names]


def find_groups(cluster: Cluster, names: Sequence[str]) -> dict[str, Group]:
    """Those of the groups that exist."""
    answers = cluster.ask_coordinators(CoordinatorKind.GROUP, names, _ask_new)
    others = [name for name in names if answers[name][0] == Error.GROUP_ID_NOT_FOUND]
    answers |= cluster.ask_coordinators(CoordinatorKind.GROUP, others, _ask_classic)
    coordinators, _ = cluster.coordinators(CoordinatorKind.GROUP, list(names)) if names else ({}, {})
    groups: dict[str, Group] = {}
    for name, (code, answer) in answers.items():
        if code == Error.GROUP_ID_NOT_FOUND:
            continue
        check_error(code, getattr(answer, "error_message", None), f"group '{name}'")
        groups[name] = _described(answer, coordinators[name])
    return {name: group for name, group in groups.items() if group.state != DEAD}


def _ask_new(client: DirectClient, names: list[str]) -> Answers[str]:
    """An old broker knows only classic groups."""
    if k69.API.key not in client.versions:
        return {name: (Error.GROUP_ID_NOT_FOUND, None) for name in names}
    request = k69.ConsumerGroupDescribeRequest(group_ids=names)
    answer = client.ask(k69.API.key, request, k69.ConsumerGroupDescribeResponse)
    return {group.group_id: (group.error_code, group) for group in answer.groups}


def _ask_classic(client: DirectClient, names: list[str]) -> Answers[str]:
    answer = client.ask(k15.API.key, k15.DescribeGroupsRequest(groups=names), k15.DescribeGroupsResponse)
    return {group.group_id: (group.error_code, group) for group in answer.groups}


def _described(
    group: k15.DescribeGroupsResponseGroup | k69.ConsumerGroupDescribeResponseGroup, coordinator: BrokerAddress
) -> Group:
    if isinstance(group, k15.DescribeGroupsResponseGroup):
        return Group(
            group.group_id,
            CLASSIC,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            None,
            coordinator,
            [_classic_member(member, group.protocol_type) for member in group.members],
        )
    return Group(
        group.group_id,
        CONSUMER,
        group.group_state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        group.group_epoch,
        coordinator,
        [_new_member(member) for member in group.members],
    )


def _classic_member(member: k15.DescribeGroupsResponseMember, protocol_type: str) -> Member:
    places = assigned_places(bytes(member.member_assignment)) if protocol_type == CONSUMER_PROTOCOL_TYPE else []
    return Member(member.member_id, member.group_instance_id, member.client_id, member.client_host, None, places)


def _new_member(member: k69.ConsumerGroupDescribeResponseMember) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        _places(member.assignment),
        _places(member.target_assignment),
    )


def _places(assignment: k69.ConsumerGroupDescribeResponseAssignment) -> list[Place]:
    return sorted((topic.topic_name, part) for topic in assignment.topic_partitions for part in topic.partitions)


def assigned_places(assignment: bytes) -> list[Place]:
    """The partitions in what the leader of a classic group made for a member; nothing if it is not readable."""
    if len(assignment) < 2:
        return []
    version = min(int.from_bytes(assignment[:2], "big"), ASSIGNMENT_VERSION_MAX)
    try:
        decoded, _ = decode(ConsumerProtocolAssignment, version, assignment, 2)
    except ProtocolError:
        return []
    return sorted((topic.topic, part) for topic in decoded.assigned_partitions for part in topic.partitions)


def committed_offsets(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[Place, Committed]]:
    """What each group has committed."""

    def ask(client: DirectClient, its: list[str]) -> Answers[str]:
        return _fetch_offsets(client, [k09.OffsetFetchRequestGroup(group_id=name, topics=None) for name in its])

    answers = cluster.ask_coordinators(CoordinatorKind.GROUP, names, ask)
    committed: dict[str, dict[Place, Committed]] = {}
    for name, (code, offsets) in answers.items():
        is_there = code != Error.GROUP_ID_NOT_FOUND
        check_error(code if is_there else Error.NONE, None, f"the offsets of group '{name}'")
        committed[name] = {
            place: Committed(part.committed_offset, part.committed_leader_epoch, part.metadata or "")
            for place, part in (offsets.items() if is_there else ())
            if part.committed_offset >= 0
        }
    return committed


def pending_places(cluster: Cluster, wanted: Mapping[str, Iterable[Place]]) -> dict[str, set[Place]]:
    """Those partitions of each group for which an open transaction has an offset: what is committed may change."""

    def ask(client: DirectClient, its: list[str]) -> Answers[str]:
        groups = [
            k09.OffsetFetchRequestGroup(
                group_id=name,
                topics=[
                    k09.OffsetFetchRequestGroupTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in by_topic(wanted[name]).items()
                ],
            )
            for name in its
        ]
        return _fetch_offsets(client, groups, require_stable=True)

    answers = cluster.ask_coordinators(CoordinatorKind.GROUP, wanted, ask)
    return {
        name: {place for place, part in offsets.items() if part.error_code == Error.UNSTABLE_OFFSET_COMMIT}
        for name, (code, offsets) in answers.items()
        if code == Error.NONE
    }


def _fetch_offsets(
    client: DirectClient, groups: list[k09.OffsetFetchRequestGroup], *, require_stable: bool = False
) -> Answers[str]:
    """The last version that names topics; the next one has ids, which topics that were deleted have no more."""
    request = k09.OffsetFetchRequest(groups=groups, require_stable=require_stable)
    answer = client.ask(k09.API.key, request, k09.OffsetFetchResponse, lowest=8, highest=9)
    return {
        group.group_id: (
            group.error_code,
            {(topic.name, part.partition_index): part for topic in group.topics for part in topic.partitions},
        )
        for group in answer.groups
    }
