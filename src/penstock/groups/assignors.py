"""Who reads what: the assignors of the new protocol, which the broker runs for its groups.

An assignor gets the members of a group, each with the topics it subscribes to and what it was meant to have so far,
and says what each is meant to have from now on. Every partition of every subscribed topic goes to exactly one of the
topic's subscribers; a topic that is not there any more has no partitions. An assignor is a plain function, and the same
members get the same answer in whatever order they come.

`range` deals out each topic in contiguous pieces, to the members in a fixed order: topics with equally many
partitions and the same subscribers are cut at the same places, so that one member has the matching partitions of all.
`uniform` (the default) looks at all topics together, and keeps as much as it can where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.groups.uniform_assignor import assign_uniformly

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""topic id to partitions; a topic without any is left out"""


class AssignedMember(NamedTuple):
    """A member as assignors see it."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    assignment: Assignment


Assignor: TypeAlias = Callable[[Sequence[AssignedMember], Mapping[UUID, int]], dict[str, Assignment]]
"""(members, how many partitions each topic has) to what each member is meant to have, by member id"""


def assign_ranges(members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Contiguous pieces of each topic, the larger ones first. Static members come first, and keep their places."""
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    subscribers: dict[UUID, list[str]] = {}
    for member in sorted(members, key=_range_order):
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    for topic_id, member_ids in subscribers.items():
        least, larger_count = divmod(partition_counts.get(topic_id, 0), len(member_ids))
        start = 0
        for number, member_id in enumerate(member_ids):
            end = start + least + (number < larger_count)
            if start < end:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _range_order(member: AssignedMember) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member.instance_id if member.instance_id is not None else member.member_id


def assign_evenly(members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """As even as the subscriptions allow, and then with as few moves as possible."""
    subscriptions = {member.member_id: member.topic_ids for member in members}
    before = {member.member_id: member.assignment for member in members}
    return dict(assign_uniformly(subscriptions, before, partition_counts))


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_evenly, "range": assign_ranges})
