"""Simulated members of a consumer group: classic ones and those of the newer protocol (KIP-848).

A member joins, is given partitions, reads them from the committed offsets on, works on what it reads and commits, for
ever and whatever happens. It writes what it is told into a `GroupHistory`. What it does with messages is its `work`: to
commit its positions, or (`sim_transactions.py`) to write results in transactions.

A member cannot know that it was thrown out before it is told. It counts as an owner for certain until its session must
have ended, reckoned from the sending of the last heartbeat that was answered.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import Outcome
from penstock.testing.histories.group_history import GroupHistory
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_committed import fetch_committed
from penstock.testing.sim_routes import GROUP, MOVED, Routes
from penstock.testing.sim_workload import RECONNECT_S
from penstock.wire.codec import decode, encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopic,
)
from penstock.wire.records import Record

SESSION_TIMEOUT_MS = 6000
REBALANCE_TIMEOUT_MS = 8000
REQUEST_TIMEOUT_S = 20.0
PAUSE_S_MAX = 0.3
SLOW_SHARE = 0.03  # of its rounds a member works for so long that it may be thrown out meanwhile
THROWN_OUT = (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_MEMBER_EPOCH, Error.STALE_MEMBER_EPOCH)


class Place(NamedTuple):
    """A group, and what it reads."""

    group: str
    topic: str
    topic_id: UUID
    partitions: int


Work: TypeAlias = Callable[["SimMember", Mapping[int, list[Record]]], Awaitable[None]]


class SimMember(ABC):
    """What both kinds share: reading, working, committing. Without `work`, what was read is just committed."""

    def __init__(
        self, routes: Routes, place: Place, name: str, history: GroupHistory, work: Work | None = None
    ) -> None:
        self._work = work
        self.routes = routes
        self.world = routes.world
        self.place = place
        self.name = name
        self.history = history
        self.member_id = ""
        self.epoch = -1  # the generation, or the member epoch
        self.owned: set[int] = set()
        self.positions: dict[int, int] = {}
        self.errors: dict[Error, int] = {}
        self.is_leaving = False
        self._heard_s = 0.0

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Be a member until cancelled, or until `is_leaving` and the group has been told."""
        while True:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    client = await self.routes.coordinator(self.place.group, GROUP)
                    if self.is_leaving:
                        await self._leave_well(client)
                        return
                    await self._round(client)
            except (OSError, ApiError) as error:  # a timeout is an OSError too
                self._note_error(error)
                await asyncio.sleep(RECONNECT_S)
            self._doubt()
            await asyncio.sleep(self.world.random.random() * PAUSE_S_MAX)

    async def _round(self, client: SimClient) -> None:
        await self._stay(client)
        await self._find_positions(client)
        try:
            read = await self._poll()
        except (OSError, ApiError, asyncio.CancelledError):
            self.go_back()  # what was read of the other partitions is not worked on
            raise
        if read and self.world.random.random() < SLOW_SHARE:
            await asyncio.sleep(self.world.random.random() * 2 * SESSION_TIMEOUT_MS / 1000)
        if read and self._work is not None:
            await self._work(self, read)
        elif read:
            await self.commit(client, {index: self.positions[index] for index in read})

    async def _poll(self) -> dict[int, list[Record]]:
        read: dict[int, list[Record]] = {}
        for index in sorted(self.owned & self.positions.keys()):
            client = await self.routes.leader(self._where(index))
            records, position = await fetch_committed(client, self.place.topic, index, self.positions[index])
            for record in records:
                self.history.polled(self.name, self._where(index), record.offset, record.value)
            self.positions[index] = position
            if records:
                read[index] = records
        return read

    def go_back(self) -> None:
        """Read again from the committed offsets on."""
        for index in sorted(self.positions):
            self.history.sought(self.name, self._where(index), None)
        self.positions.clear()

    async def commit(self, client: SimClient, offsets: Mapping[int, int]) -> None:
        number = self.history.committing(self.name, {self._where(index): at for index, at in offsets.items()})
        rows = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=at) for index, at in offsets.items()
        ]
        answer = await client.call(
            OffsetCommitRequest(
                group_id=self.place.group,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=self.place.topic, partitions=rows)],
            ),
            9,
        )
        error = Error(answer.topics[0].partitions[0].error_code)
        if error is Error.NONE or error.definite:  # otherwise it may be done still
            self.history.committed(number, Outcome.DONE if error is Error.NONE else Outcome.REFUSED)
        self.check(error)

    async def _find_positions(self, client: SimClient) -> None:
        """Begin where the committed offsets say."""
        unknown = sorted(self.owned - self.positions.keys())
        if not unknown:
            return
        topic = OffsetFetchRequestGroupTopic(name=self.place.topic, partition_indexes=unknown)
        group = OffsetFetchRequestGroup(group_id=self.place.group, topics=[topic])
        answer = (await client.call(OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
        self.check(Error(answer.error_code))
        for row in answer.topics[0].partitions:
            if not row.error_code:
                self.positions[row.partition_index] = max(0, row.committed_offset)

    # ── membership ───────────────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    async def _stay(self, client: SimClient) -> None:
        """Join, or say that we are alive; afterwards `owned` is what we may read."""

    @abstractmethod
    async def _leave(self, client: SimClient) -> None: ...

    async def _leave_well(self, client: SimClient) -> None:
        self._give_up(self.owned)
        if self.epoch >= 0:
            self.epoch = -1
            await self._leave(client)

    def check(self, error: Error) -> None:
        """Raise what is wrong; one that says we are out makes us forget what we own."""
        if error is Error.NONE:
            return
        if error in THROWN_OUT:
            self._thrown_out()
        raise ApiError(error)

    def _note_error(self, error: OSError | ApiError) -> None:
        if isinstance(error, ApiError):
            self.errors[error.error] = self.errors.get(error.error, 0) + 1
        if not isinstance(error, ApiError) or error.error in MOVED:
            self.routes.start_over()

    def _heard(self, asked_s: float) -> None:
        self._heard_s = asked_s

    def _doubt(self) -> None:
        """If the session may have ended meanwhile, say from when on."""
        ends_s = self._heard_s + SESSION_TIMEOUT_MS / 1000
        if self.owned and self.now_s > ends_s:
            self.history.paused(self.name, ends_s)

    @property
    def now_s(self) -> float:
        return self.world.clock.monotonic()

    def _take(self, indexes: set[int], generation: int | None = None) -> None:
        self.owned |= indexes
        self.history.assigned(self.name, [self._where(index) for index in sorted(indexes)], generation)

    def _give_up(self, indexes: set[int]) -> None:
        self._doubt()
        self.history.revoked(self.name, [self._where(index) for index in sorted(indexes)])
        self._forget(indexes)

    def _thrown_out(self) -> None:
        self._doubt()
        self.history.lost(self.name, [self._where(index) for index in sorted(self.owned)])
        self._forget(set(self.owned))
        self.epoch = -1

    def _forget(self, indexes: set[int]) -> None:
        for index in indexes:
            self.positions.pop(index, None)
        self.owned = self.owned - indexes

    def _where(self, index: int) -> TopicPartition:
        return TopicPartition(self.place.topic, index)


class SimClassicMember(SimMember):
    """A member of the classic protocol, with the simplest eager assignor."""

    async def _stay(self, client: SimClient) -> None:
        if self.epoch >= 0:
            asked_s = self.now_s
            request = HeartbeatRequest(group_id=self.place.group, generation_id=self.epoch, member_id=self.member_id)
            error = Error((await client.call(request)).error_code)
            if error is Error.NONE:
                self._heard(asked_s)
                return
            if error is not Error.REBALANCE_IN_PROGRESS:
                self.check(error)
        await self._join(client)

    def check(self, error: Error) -> None:
        if error is Error.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        super().check(error)

    async def _join(self, client: SimClient) -> None:
        self._give_up(self.owned)
        self.epoch = -1
        asked_s = self.now_s
        answer: JoinGroupResponse = await client.call(self._join_request())
        if answer.error_code == Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await client.call(self._join_request())
        self.check(Error(answer.error_code))
        self.member_id = answer.member_id
        self._heard(asked_s)
        synced = await client.call(
            SyncGroupRequest(
                group_id=self.place.group,
                generation_id=answer.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=answer.protocol_name,
                assignments=self._assign(answer) if answer.leader == answer.member_id else [],
            )
        )
        error = Error(synced.error_code)
        if error is Error.REBALANCE_IN_PROGRESS:
            return  # another round
        self.check(error)
        self.epoch = answer.generation_id
        found, _ = decode(ConsumerProtocolAssignment, 0, synced.assignment, 2)
        given = {index for row in found.assigned_partitions for index in row.partitions}
        self._take(given, self.epoch)

    def _join_request(self) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=[self.place.topic])
        return JoinGroupRequest(
            group_id=self.place.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="turns", metadata=b"\x00\x00" + encode(subscription, 0))],
        )

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Each in turn."""
        ids = sorted(member.member_id for member in joined.members)
        rows = []
        for turn, member_id in enumerate(ids):
            indexes = list(range(turn, self.place.partitions, len(ids)))
            part = ConsumerProtocolAssignmentTopicPartition(topic=self.place.topic, partitions=indexes)
            assignment = ConsumerProtocolAssignment(assigned_partitions=[part] if indexes else [])
            rows.append(SyncGroupRequestAssignment(member_id=member_id, assignment=b"\x00\x00" + encode(assignment, 0)))
        return rows

    async def _leave(self, client: SimClient) -> None:
        member = LeaveGroupRequestMember(member_id=self.member_id)
        await client.call(LeaveGroupRequest(group_id=self.place.group, members=[member]))


class SimConsumerMember(SimMember):
    """A member of the newer protocol: the broker assigns, the member gives up and takes over step by step."""

    def __init__(
        self, routes: Routes, place: Place, name: str, history: GroupHistory, work: Work | None = None
    ) -> None:
        super().__init__(routes, place, name, history, work)
        self.member_id = str(UUID(bytes=self.world.random.randbytes(16), version=4))
        self._says_all = True

    def _note_error(self, error: OSError | ApiError) -> None:
        super()._note_error(error)
        self._says_all = True  # what was answered may have been lost

    async def _stay(self, client: SimClient) -> None:
        is_joining = self.epoch < 0
        asked_s = self.now_s
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.place.group, member_id=self.member_id, member_epoch=0 if is_joining else self.epoch
        )
        if is_joining or self._says_all:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self.place.topic]
            request.server_assignor = "uniform"
            request.topic_partitions = self._owned_rows()
        answer = await client.call(request, 1)
        self.check(Error(answer.error_code))
        self._heard(asked_s)
        self.epoch = answer.member_epoch
        self._says_all = False
        if answer.assignment is not None:
            given = {index for row in answer.assignment.topic_partitions for index in row.partitions}
            if given != self.owned:
                self._give_up(self.owned - given)
                self._take(given - self.owned)
                self._says_all = True

    def _owned_rows(self) -> list[ConsumerGroupHeartbeatRequestTopic]:
        if not self.owned:
            return []
        return [ConsumerGroupHeartbeatRequestTopic(topic_id=self.place.topic_id, partitions=sorted(self.owned))]

    async def _leave(self, client: SimClient) -> None:
        await client.call(
            ConsumerGroupHeartbeatRequest(group_id=self.place.group, member_id=self.member_id, member_epoch=-1), 1
        )
