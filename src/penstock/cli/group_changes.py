"""What commands change about groups: offsets set and deleted, groups deleted.

A coordinator lets nobody do that from outside while the group has members; then the failure says who they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.base.errors import Error
from penstock.cli.cluster import Answers, Cluster, CoordinatorKind
from penstock.cli.direct import DirectClient, check_error
from penstock.cli.failure import Failure
from penstock.cli.groups import Group, find_groups
from penstock.cli.places import Place, by_topic, place_text
from penstock.wire.messages import k08_offset_commit as k08
from penstock.wire.messages import k42_delete_groups as k42
from penstock.wire.messages import k47_offset_delete as k47

SHOWN_MEMBERS = 3
IN_USE_ERRORS = {Error.UNKNOWN_MEMBER_ID, Error.REBALANCE_IN_PROGRESS, Error.NON_EMPTY_GROUP, Error.ILLEGAL_GENERATION}


def in_use(group: Group, then: str) -> Failure:
    """The failure for a group with members."""
    shown = [f"{member.client_id} at {member.host.removeprefix('/')}" for member in group.members[:SHOWN_MEMBERS]]
    if len(group.members) > SHOWN_MEMBERS:
        shown.append(f"{len(group.members) - SHOWN_MEMBERS} more")
    who = f" ({', '.join(shown)})" if shown else ""
    return Failure(f"group '{group.name}' is in use ({group.state}): stop its members first{who}, then {then}")


def commit_offsets(cluster: Cluster, name: str, offsets: Mapping[Place, int]) -> None:
    """Sets offsets of a group without members."""
    if not offsets:
        return

    def ask(client: DirectClient, _names: list[str]) -> Answers[str]:
        answer = client.ask(k08.API.key, _commit_request(name, offsets), k08.OffsetCommitResponse, highest=9)
        wrong = {
            (topic.name, part.partition_index): part.error_code
            for topic in answer.topics
            for part in topic.partitions
            if part.error_code
        }
        return {name: (next(iter(wrong.values()), Error.NONE), wrong)}

    code, wrong = cluster.ask_coordinators(CoordinatorKind.GROUP, [name], ask)[name]
    _check_in_use(cluster, name, code, "reset it")
    for place, its_code in wrong.items() if isinstance(wrong, dict) else ():
        check_error(its_code, None, place_text(place))
    check_error(code, None, f"group '{name}'")


def _commit_request(name: str, offsets: Mapping[Place, int]) -> k08.OffsetCommitRequest:
    topics = [
        k08.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                k08.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offsets[topic, partition], committed_metadata=""
                )
                for partition in partitions
            ],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    return k08.OffsetCommitRequest(group_id=name, topics=topics)


def delete_groups(cluster: Cluster, names: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Deletes groups without members; says of each whether it was there, up to the first that cannot be deleted."""

    def ask(client: DirectClient, its: list[str]) -> Answers[str]:
        answer = client.ask(k42.API.key, k42.DeleteGroupsRequest(groups_names=its), k42.DeleteGroupsResponse)
        return {result.group_id: (result.error_code, None) for result in answer.results}

    answers = cluster.ask_coordinators(CoordinatorKind.GROUP, names, ask)
    for name in names:
        code, _ = answers[name]
        _check_in_use(cluster, name, code, "delete it")
        if code != Error.GROUP_ID_NOT_FOUND:
            check_error(code, None, f"group '{name}'")
        yield name, code == Error.NONE


def delete_offsets(cluster: Cluster, name: str, places: Sequence[Place]) -> None:
    """Forgets offsets of topics that no member of the group reads."""

    def ask(client: DirectClient, _names: list[str]) -> Answers[str]:
        topics = [
            k47.OffsetDeleteRequestTopic(
                name=topic, partitions=[k47.OffsetDeleteRequestPartition(partition_index=part) for part in partitions]
            )
            for topic, partitions in by_topic(places).items()
        ]
        request = k47.OffsetDeleteRequest(group_id=name, topics=topics)
        answer = client.ask(k47.API.key, request, k47.OffsetDeleteResponse)
        return {name: (answer.error_code, answer)}

    code, answer = cluster.ask_coordinators(CoordinatorKind.GROUP, [name], ask)[name]
    _check_in_use(cluster, name, code, "delete its offsets")
    check_error(code, None, f"group '{name}'")
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC:
                raise Failure(f"group '{name}' reads topic '{topic.name}' at this moment: its offsets stay")
            check_error(part.error_code, None, place_text((topic.name, part.partition_index)))


def _check_in_use(cluster: Cluster, name: str, code: int, then: str) -> None:
    if code not in IN_USE_ERRORS:
        return
    group = find_groups(cluster, [name]).get(name)
    if group is not None:
        raise in_use(group, then)
