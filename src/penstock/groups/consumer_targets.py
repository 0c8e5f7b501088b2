"""Who in a consumer group is meant to have what: from names and patterns to topics, and from topics to a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from uuid import UUID

from penstock.groups.assignors import AssignedMember, Assignment, Assignor
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.table import Topics

NO_TOPICS: frozenset[str] = frozenset()
HASH_BYTES = 8

Patterns = Mapping[str, frozenset[str]]


def topic_ids(member: ConsumerMember, patterns: Patterns, topics: Topics) -> frozenset[UUID]:
    """The topics that a member subscribes to and that exist. A pattern nobody has looked up stands for none."""
    names = member.topic_names | patterns.get(member.topic_pattern, NO_TOPICS)
    return frozenset(topic.topic_id for name in names if (topic := topics.named(name)) is not None)


def subscribed_names(
    group: ConsumerGroup, patterns: Patterns, without: Iterable[ConsumerMember], and_with: Iterable[ConsumerMember] = ()
) -> set[str]:
    """All names that somebody reads, with some members exchanged. `patterns` are those of the members that are left."""
    counts = group.name_counts.copy()
    for member in without:
        counts.subtract(member.topic_names)
    for member in and_with:
        counts.update(member.topic_names)
    return {name for name, count in counts.items() if count > 0}.union(*patterns.values())


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A number that is another one when one of these topics comes, goes, is made anew or gets more partitions."""
    found = [topic for name in sorted(names) if (topic := topics.named(name)) is not None]
    if not found:
        return 0
    digest = blake2b(digest_size=HASH_BYTES)
    for topic in found:
        digest.update(topic.topic_id.bytes)
        digest.update(topic.partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def new_targets(
    members: Iterable[ConsumerMember],
    before: Mapping[str, Assignment],
    patterns: Patterns,
    topics: Topics,
    assign: Assignor,
) -> dict[str, Assignment]:
    """The target of each member, given the targets they had."""
    known: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    assigned_members = []
    for member in members:
        subscription = (member.topic_names, member.topic_pattern)
        if subscription not in known:
            known[subscription] = topic_ids(member, patterns, topics)
        assigned_members.append(
            AssignedMember(member.member_id, member.instance_id, known[subscription], before.get(member.member_id, {}))
        )
    subscribed = frozenset().union(*known.values())
    counts = {
        topic_id: topic.partition_count for topic_id in subscribed if (topic := topics.with_id(topic_id)) is not None
    }
    return assign(assigned_members, counts)
