"""A shard with a log and a clock, as the shell runs it: decide, append, replay, answer.

Every record goes through its bytes and back, and every answer is noted by its token: at most one each, or it is an
error at once. `crash` throws the machine away and reads a new one from the log; who waited is told to look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from penstock.base.errors import Error
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.records import OFFSETS_CODEC
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.table import Caller, TopicView
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponseGroup,
)
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUP = "g"
CLIENT = "client"
HOST = "127.0.0.1"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
NO_DELAY = GroupSettings(initial_rebalance_delay_ms=0)


class SomeTopics:
    """Topics that a test makes and deletes; each is a new one, also under an old name."""

    def __init__(self, *names: str) -> None:
        self._topics: dict[str, TopicView] = {}
        self._count = 0
        for name in names:
            self.create(name)

    def create(self, name: str, partition_count: int = 4) -> TopicView:
        self._count += 1
        self._topics[name] = TopicView(name, UUID(int=self._count), partition_count)
        return self._topics[name]

    def delete(self, name: str) -> None:
        del self._topics[name]

    def named(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def with_id(self, topic_id: UUID) -> TopicView | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return self._topics


def subscription(*topics: str) -> bytes:
    """What a consumer puts into JoinGroup."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class ShardDriver:
    """See the head of this file."""

    def __init__(self, settings: GroupSettings = NO_DELAY, topics: SomeTopics | None = None) -> None:
        self.settings = settings
        self.topics = topics or SomeTopics("t", "u")
        self.monotonic_ms = 1_000_000
        self.wall_ms = 1_700_000_000_000
        self.log: list[tuple[tuple[bytes, bytes | None], ProducerEpoch | None] | tuple[ProducerEpoch, bool]] = []
        self.answers: dict[int, Any] = {}
        self.waiting: set[int] = set()
        self.on_step: Callable[[Step], None] = lambda step: None
        self._tokens = 0
        self._uuids = 0
        self.shard = self._machine()
        self.take(self.shard.start(self.now))

    @property
    def now(self) -> Moment:
        return Moment(self.monotonic_ms, self.wall_ms)

    @property
    def group(self) -> ClassicGroup:
        """The classic group that most tests are about."""
        found = self.shard.table.of_kind(GROUP, ClassicGroup)
        assert found is not None
        return found

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=self._uuids)

    def _machine(self) -> GroupShard:
        return GroupShard(self.settings, self._new_uuid, self.topics)

    # ── the shell ────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, step: Step) -> None:
        for record in step.records:
            encoded = OFFSETS_CODEC.encode(record)
            self.log.append((encoded, step.producer))
            self._replay(encoded, step.producer, len(self.log) - 1)
        for token, answer in step.answers:
            assert isinstance(token, int)
            assert token in self.waiting, f"token {token} is answered twice"
            self.waiting.discard(token)
            self.answers[token] = answer
        assert not step.actions
        self.on_step(step)

    def _replay(self, encoded: tuple[bytes, bytes | None], producer: ProducerEpoch | None, offset: int) -> None:
        decoded = OFFSETS_CODEC.decode(*encoded)
        assert decoded is not None
        self.shard.replay(decoded, producer, offset)

    def crash(self) -> None:
        """The machine is gone; a new one is read from the log."""
        for token in list(self.waiting):
            self.waiting.discard(token)
            self.answers[token] = Error.NOT_COORDINATOR
        self.shard = self._machine()
        for offset, (first, second) in enumerate(self.log):
            if isinstance(first, ProducerEpoch):
                assert isinstance(second, bool)
                self.shard.replay_marker(first, is_commit=second)
            else:
                assert not isinstance(second, bool)
                self._replay(first, second, offset)
        self.take(self.shard.start(self.now))

    def marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        self.log.append((producer, is_commit))
        self.shard.replay_marker(producer, is_commit=is_commit)

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, with everything that is due on the way done in its time."""
        end_ms = self.monotonic_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._set_time(max(deadline_ms, self.monotonic_ms))
            self.take(self.shard.on_time(self.now))
        self._set_time(end_ms)

    def _set_time(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.monotonic_ms
        self.monotonic_ms = monotonic_ms

    def send(self, decide: Callable[[int], Step]) -> int:
        """Ask; the token of the request."""
        self._tokens += 1
        token = self._tokens
        self.waiting.add(token)
        self.take(decide(token))
        return token

    def ask(self, decide: Callable[[int], Step]) -> Any:
        """Ask what is answered at once."""
        return self.answers[self.send(decide)]

    def records(self) -> list[StateRecord]:
        """What is in the log, without the ends of transactions."""
        decoded = [OFFSETS_CODEC.decode(*first) for first, _ in self.log if not isinstance(first, ProducerEpoch)]
        return [record for record in decoded if record is not None]

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group: str = GROUP,
    ) -> int:
        """JoinGroup; the token of the request, which may wait."""
        named = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in named.items()],
        )
        caller = Caller(version, CLIENT, HOST)
        return self.send(lambda token: self.shard.join_group(token, request, caller, self.now))

    def new_member_id(self, **options: Any) -> str:
        """The first JoinGroup of a dynamic member, which only gives it an id."""
        answer = self.answers[self.join(**options)]
        assert answer.error_code == Error.MEMBER_ID_REQUIRED
        member_id: str = answer.member_id
        return member_id

    def sync(
        self,
        member_id: str,
        generation: int,
        assignment: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> int:
        """SyncGroup; the token of the request, which may wait."""
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=part) for each, part in (assignment or {}).items()
            ],
        )
        return self.send(lambda token: self.shard.sync_group(token, request, self.now))

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group: str = GROUP
    ) -> Error:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return Error(self.ask(lambda token: self.shard.heartbeat(token, request, self.now)).error_code)

    def leave(self, *members: tuple[str, str | None], group: str = GROUP) -> list[Error]:
        """LeaveGroup of (member id, instance id) pairs; an error for each."""
        request = LeaveGroupRequest(
            group_id=group,
            members=[LeaveGroupRequestMember(member_id=each, group_instance_id=instance) for each, instance in members],
        )
        answer: LeaveGroupResponse = self.ask(lambda token: self.shard.leave_group(token, request, self.now))
        assert answer.error_code == Error.NONE
        return [Error(member.error_code) for member in answer.members]

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        topic: str = "t",
        partition: int = 0,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
        group: str = GROUP,
    ) -> Error:
        """OffsetCommit of one partition."""
        found = self.topics.named(topic)
        assert found is not None
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=found.topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
            ],
        )
        caller = Caller(version, CLIENT, HOST)
        answer: OffsetCommitResponse = self.ask(
            lambda token: self.shard.commit_offsets(token, request, caller, self.now)
        )
        return Error(answer.topics[0].partitions[0].error_code)

    def txn_commit(
        self,
        producer: ProducerEpoch,
        offset: int,
        *,
        member_id: str = "",
        generation: int = -1,
        topic: str = "t",
        partition: int = 0,
        group: str = GROUP,
    ) -> Error:
        """TxnOffsetCommit of one partition."""
        parts = [TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=parts)],
        )
        caller = Caller(3, CLIENT, HOST)
        answer = self.ask(lambda token: self.shard.txn_commit_offsets(token, request, caller, self.now))
        return Error(answer.topics[0].partitions[0].error_code)

    def fetch(
        self, *, topic: str = "t", partition: int = 0, require_stable: bool = False, group: str = GROUP
    ) -> tuple[int, Error]:
        """OffsetFetch of one partition: the offset, and the error."""
        found = self.topics.named(topic)
        asked = OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                OffsetFetchRequestGroupTopic(
                    name=topic, topic_id=found.topic_id if found else UUID(int=0), partition_indexes=[partition]
                )
            ],
        )
        answer = self._fetch(asked, require_stable=require_stable)
        row = answer.topics[0].partitions[0]
        return row.committed_offset, Error(row.error_code)

    def fetch_all(self, *, require_stable: bool = False, group: str = GROUP) -> dict[tuple[str, int], int]:
        """OffsetFetch of everything."""
        asked = OffsetFetchRequestGroup(group_id=group, topics=None)
        answer = self._fetch(asked, require_stable=require_stable)
        return {
            (topic.name, part.partition_index): part.committed_offset
            for topic in answer.topics
            for part in topic.partitions
        }

    def _fetch(self, asked: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        answer: OffsetFetchResponseGroup = self.ask(
            lambda token: self.shard.fetch_offsets(token, asked, require_stable=require_stable)
        )
        return answer

    def states(self) -> dict[str, str]:
        """The state of every group."""
        listed = self.ask(lambda token: self.shard.list_groups(token, frozenset(), frozenset()))
        return {group.group_id: group.group_state for group in listed}
