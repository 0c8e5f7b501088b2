"""A client of the classic protocol for tests, which reads in groups of either kind.

It joins, leads if it is told to, syncs and sends heartbeats, one request at a time (`act`). An eager one gives up
everything before it joins again; a cooperative one keeps what it has, and joins once more after giving up what it was
not given again.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from penstock.base.errors import Error
from penstock.groups.embedded_protocol import read_assignment, read_subscription
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

from .consumer_driver import ConsumerDriver

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3
PROTOCOL = "cooperative-sticky"


def assignment(partitions: dict[str, list[int]], user_data: bytes | None = None) -> bytes:
    """What a leader gives to a member."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in partitions.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data)
    return pack(">h", ASSIGNMENT_VERSION) + encode(message, ASSIGNMENT_VERSION)


class ClassicClient:
    """See the head of this file."""

    def __init__(
        self,
        driver: ConsumerDriver,
        *names: str,
        is_eager: bool = False,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = (PROTOCOL,),
    ) -> None:
        self.driver = driver
        self.names = names
        self.is_eager = is_eager
        self.instance_id = instance_id
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}
        self.needs_join = True
        self._joining: int | None = None
        self._syncing: int | None = None
        self.last_error = Error.NONE

    @property
    def partitions(self) -> dict[str, list[int]]:
        return {topic: indexes for topic, indexes in sorted(self.owned.items()) if indexes}

    @property
    def is_waiting(self) -> bool:
        waiting = self.driver.waiting
        return self._joining in waiting or self._syncing in waiting

    @property
    def is_syncing(self) -> bool:
        """It has joined a generation, and does not know yet what it has there."""
        return self._syncing is not None

    def act(self) -> None:
        """The next thing such a client does; nothing while it waits."""
        if self.is_waiting:
            return
        if self._joining is not None:
            self._joined(self.driver.answers[self._joining])
        elif self._syncing is not None:
            self._synced(self.driver.answers[self._syncing])
        elif self.needs_join:
            self._join()
        else:
            self._beat()

    def _join(self) -> None:
        if self.is_eager:
            self.owned = {}
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in self.owned.items()
        ]
        message = ConsumerProtocolSubscription(
            topics=list(self.names), owned_partitions=owned, generation_id=self.generation
        )
        metadata = pack(">h", SUBSCRIPTION_VERSION) + encode(message, SUBSCRIPTION_VERSION)
        self._joining = self.driver.join(
            self.member_id, protocols=dict.fromkeys(self.protocols, metadata), instance_id=self.instance_id
        )

    def _joined(self, answer: Any) -> None:
        self._joining = None
        error = self._note(answer)
        if error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is Error.NONE:
            self.needs_join = False
            self.member_id, self.generation = answer.member_id, answer.generation_id
            given: dict[str, bytes] = {}
            if answer.leader == self.member_id:
                given = self._lead({each.member_id: each.metadata for each in answer.members})
            self._syncing = self.driver.sync(
                self.member_id, self.generation, given, instance_id=self.instance_id, protocol_name=answer.protocol_name
            )

    def _lead(self, members: dict[str, bytes]) -> dict[str, bytes]:
        """Deal out, but nothing that somebody else still owns: that is for the next round."""
        subscriptions = {member_id: read_subscription(bytes(each)) for member_id, each in sorted(members.items())}
        owner = {
            (topic.topic, index): member_id
            for member_id, each in subscriptions.items()
            for topic in each.owned_partitions
            for index in topic.partitions
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in members}
        for name in sorted({name for each in subscriptions.values() for name in each.topics}):
            readers = [member_id for member_id, each in subscriptions.items() if name in each.topics]
            topic = self.driver.topics.named(name)
            for index in range(topic.partition_count if topic is not None else 0):
                reader = readers[index % len(readers)]
                if owner.get((name, index), reader) == reader:
                    given[reader].setdefault(name, []).append(index)
        return {member_id: assignment(partitions) for member_id, partitions in given.items()}

    def _synced(self, answer: Any) -> None:
        self._syncing = None
        if self._note(answer) is Error.NONE:
            message = read_assignment(bytes(answer.assignment))
            given = {each.topic: list(each.partitions) for each in message.assigned_partitions}
            has_given_up = any(
                index not in given.get(topic, []) for topic, indexes in self.owned.items() for index in indexes
            )
            self.owned = given
            self.needs_join = has_given_up and not self.is_eager

    def _beat(self) -> None:
        error = self.driver.heartbeat(self.member_id, self.generation, instance_id=self.instance_id)
        self._note_error(error)

    def _note(self, answer: Any) -> Error:
        error = answer if isinstance(answer, Error) else Error(answer.error_code)
        self._note_error(error)
        return error

    def _note_error(self, error: Error) -> None:
        self.last_error = error
        if error is not Error.NONE:
            self.needs_join = True
        if error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION):
            self.owned, self.generation = {}, -1
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def leave(self) -> Error:
        error = self.driver.leave((self.member_id, self.instance_id))[0]
        self.owned = {}
        return error
