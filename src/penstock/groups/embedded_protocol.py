"""What consumers of the classic protocol put into JoinGroup and get from SyncGroup, as far as the broker must know.

In a consumer group the broker assigns, also to members that still speak the classic protocol: it reads what they
subscribe to and own, and writes their assignment as a leader would have. An int16 with the version comes first; a newer
one than we know is read as the newest we know, whose fields it begins with.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from struct import Struct
from typing import Any
from uuid import UUID

from penstock.groups.consumer_member import Owned
from penstock.groups.table import Topics
from penstock.wire.codec import decoder, encoder
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.wire.schema import Message, ProtocolError, declared_versions

_VERSION = Struct(">h")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """ProtocolError if it is none."""
    subscription: ConsumerProtocolSubscription = _read(ConsumerProtocolSubscription, metadata)
    return subscription


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """ProtocolError if it is none."""
    message: ConsumerProtocolAssignment = _read(ConsumerProtocolAssignment, assignment)
    return message


def write_assignment(partitions: Mapping[UUID, Set[int]], topics: Topics, metadata: bytes) -> bytes:
    """In the version in which the member wrote its subscription. Topics that are gone are left out."""
    named = {
        topic.name: indexes
        for topic_id, indexes in partitions.items()
        if indexes and (topic := topics.with_id(topic_id)) is not None
    }
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(named[name])) for name in sorted(named)
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    version = _version(ConsumerProtocolAssignment, metadata)
    out = bytearray(_VERSION.pack(version))
    encoder(ConsumerProtocolAssignment, version)(message, out)
    return bytes(out)


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: Topics) -> Owned:
    """What a member says it has, by topic id. Members that give up everything to join again have nothing."""
    return [
        (topic.topic_id, each.partitions)
        for each in subscription.owned_partitions
        if (topic := topics.named(each.topic)) is not None
    ]


def _read(cls: type[Message], content: bytes) -> Any:
    version = _version(cls, content)
    message, _ = decoder(cls, version)(memoryview(content), _VERSION.size)
    return message


def _version(cls: type[Message], content: bytes) -> int:
    if len(content) < _VERSION.size:
        raise ProtocolError("a message of the consumer protocol without its version")
    version: int = _VERSION.unpack_from(content)[0]
    versions = declared_versions(cls)
    if version < versions.first:
        raise ProtocolError(f"version {version} of the consumer protocol")
    return min(version, versions.last)
