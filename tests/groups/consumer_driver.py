"""Members of the new protocol for tests: what a client sends and remembers, over a shard without a shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from penstock.base.errors import Error
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Caller, TopicView
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopic,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeResponseGroup

from .shard_driver import CLIENT, GROUP, HOST, ShardDriver, SomeTopics

#: Without the pause between two targets, which tests of their own look at.
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0)
SESSION_MS = AT_ONCE.consumer_session_timeout_ms
REBALANCE_MS = 30_000


class ManyTopics(SomeTopics):
    """Topics that are found quickly, and can grow."""

    def __init__(self, *names: str) -> None:
        self._by_id: dict[UUID, TopicView] = {}
        super().__init__(*names)

    def create(self, name: str, partition_count: int = 4) -> TopicView:
        topic = super().create(name, partition_count)
        self._by_id[topic.topic_id] = topic
        return topic

    def grow(self, name: str, partition_count: int) -> None:
        topic = self._topics[name]._replace(partition_count=partition_count)
        self._topics[name] = self._by_id[topic.topic_id] = topic

    def delete(self, name: str) -> None:
        del self._by_id[self._topics[name].topic_id]
        super().delete(name)

    def with_id(self, topic_id: UUID) -> TopicView | None:
        return self._by_id.get(topic_id)


class ConsumerDriver(ShardDriver):
    """A shard with requests of the new protocol."""

    topics: ManyTopics

    def __init__(self, settings: GroupSettings = AT_ONCE, topics: ManyTopics | None = None) -> None:
        super().__init__(settings, topics or ManyTopics("t", "u"))

    def beat(
        self, member_id: str, epoch: int, *, version: int = 1, group: str = GROUP, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat with just these fields."""
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequestTopic(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        caller = Caller(version, CLIENT, HOST)
        answer: ConsumerGroupHeartbeatResponse = self.ask(
            lambda token: self.shard.consumer_group_heartbeat(token, request, caller, self.now)
        )
        return answer

    def beat_error(self, member_id: str, epoch: int, **fields: Any) -> Error:
        return Error(self.beat(member_id, epoch, **fields).error_code)

    def describe(self, group: str = GROUP) -> ConsumerGroupDescribeResponseGroup:
        answer: ConsumerGroupDescribeResponseGroup = self.ask(
            lambda token: self.shard.describe_consumer_group(token, group)
        )
        return answer

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.table.get(GROUP)
        assert isinstance(found, ConsumerGroup)
        return found

    def change_topics(self, *names: str) -> None:
        """After topics were made or deleted."""
        self.take(self.shard.topics_changed(frozenset(names), self.now))

    def compact(self, end: int) -> None:
        """Of each key keep the last record before `end`, and no tombstones."""
        last = {encoded[0]: encoded for encoded, _ in self.log[:end]}  # type: ignore[misc,index]
        kept = [entry for entry in self.log[:end] if last[entry[0][0]] is entry[0]]  # type: ignore[index]
        self.log[:end] = [entry for entry in kept if entry[0][1] is not None]  # type: ignore[index]

    def member(self, member_id: str, *names: str, **options: Any) -> Member:
        """A member that has joined."""
        member = Member(self, member_id, *names, **options)
        member.beat()
        return member


class Member:
    """A client as it should be: it gives up what it is not given any more, and says so; then it takes what is new."""

    def __init__(
        self,
        driver: ConsumerDriver,
        member_id: str,
        *names: str,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        group: str = GROUP,
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.names: list[str] | None = list(names)
        self.pattern = pattern
        self.instance_id = instance_id
        self.assignor = assignor
        self.group = group
        self.epoch = 0
        self.owned: dict[UUID, set[int]] = {}
        self.to_take: dict[UUID, set[int]] | None = None
        self.must_say_all = True

    @property
    def partitions(self) -> dict[str, list[int]]:
        """What it owns, by the names of the topics."""
        named = {}
        for topic_id, partitions in self.owned.items():
            topic = self.driver.topics.with_id(topic_id)
            named[topic.name if topic is not None else str(topic_id)] = sorted(partitions)
        return named

    def beat(self) -> Error:
        """One heartbeat, and what a client does upon the answer except for giving things up: see `revoke`."""
        answer = self.driver.beat(self.member_id, self.epoch, group=self.group, **self._fields())
        if answer.error_code != Error.NONE:
            if answer.error_code in (Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID, Error.GROUP_ID_NOT_FOUND):
                self.lose_all()
            return Error(answer.error_code)
        self.must_say_all = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.to_take = {each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions}
            if not self.is_holding_on():
                self.take_over()
        return Error.NONE

    def is_holding_on(self) -> bool:
        """Whether it owns something that it is not given any more."""
        target = self.to_take if self.to_take is not None else self.owned
        return any(partitions - target.get(topic_id, set()) for topic_id, partitions in self.owned.items())

    def take_over(self) -> None:
        """Own what it was given, and nothing else; the next heartbeat says so."""
        if self.to_take is not None:
            self.owned, self.to_take = self.to_take, None
            self.says_owned = True

    says_owned = False

    def lose_all(self) -> None:
        self.epoch = 0
        self.owned = {}
        self.to_take = None
        self.must_say_all = True

    def leave(self, epoch: int = -1) -> Error:
        fields = {"instance_id": self.instance_id} if self.instance_id is not None else {}
        error = self.driver.beat_error(self.member_id, epoch, group=self.group, **fields)
        self.lose_all()
        return error

    def settle(self, count: int = 4) -> None:
        """Some heartbeats, with everything that they ask for done at once."""
        for _ in range(count):
            self.beat()
            self.take_over()

    def _fields(self) -> Mapping[str, Any]:
        fields: dict[str, Any] = {}
        if self.instance_id is not None:
            fields["instance_id"] = self.instance_id
        if self.must_say_all:
            fields |= {
                "rebalance_timeout_ms": REBALANCE_MS,
                "subscribed_topic_names": self.names,
                "subscribed_topic_regex": self.pattern,
                "server_assignor": self.assignor,
                "owned": self.owned,
            }
        elif self.says_owned:
            fields["owned"] = self.owned
        self.says_owned = False
        return fields


def settle(*members: Member, count: int = 4) -> None:
    """Rounds of heartbeats of all of them."""
    for _ in range(count):
        for member in members:
            member.settle(1)
