"""Members of groups on plain sockets, both protocols, as cheap as they can be, so that the broker is what is measured.

A member is a small machine: an answer comes in, the next request goes out. It never waits by itself: while a `Crowd` is
in a hurry, every member that has nothing else to say sends its next heartbeat as soon as the last one is answered. So
the intervals of heartbeats, which are the clients' own business, are not in the figures. Frames that do not change are
encoded once.
"""

from __future__ import annotations

import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from bench.load import MeasurementFailed
from penstock.base.errors import Error
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decode, encode
from penstock.wire.headers import RequestHeader, encode_request_header
from penstock.wire.messages import k11_join_group as k11
from penstock.wire.messages import k12_heartbeat as k12
from penstock.wire.messages import k13_leave_group as k13
from penstock.wire.messages import k14_sync_group as k14
from penstock.wire.messages import k68_consumer_group_heartbeat as k68
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

REBALANCE_TIMEOUT_MS = 60_000
RESTING_BEAT_S = 0.1
CORRELATION_ID = 7
NOT_READY = {Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR}
JOIN_AGAIN = NOT_READY | {Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION, Error.MEMBER_ID_REQUIRED}
PROTOCOL = "range"
LEAVE_EPOCH = -1


class Topic:
    """What the members read."""

    def __init__(self, name: str, topic_id: UUID, partitions: int) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = frozenset(range(partitions))


def frame_of(api: Api, version: int, request: Any) -> bytes:
    """A whole request; all have the same correlation id, for a member has one question at a time."""
    out = bytearray(4)
    encode_request_header(RequestHeader(api.key, version, CORRELATION_ID, "bench"), out)
    out += encode(request, version)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


class Member(ABC):
    """One connection and one member. `round` grows with every assignment; `owned` is None while there is none."""

    def __init__(self, port: int, group: str, topic: Topic) -> None:
        self.group = group
        self.topic = topic
        self.round = -1
        self.owned: frozenset[int] | None = None
        self.is_idle = True
        self.heard_s = 0.0
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, frame: bytes) -> None:
        self.is_idle = False
        self.socket.sendall(frame)

    def receive(self) -> None:
        """Take what has come; a whole answer leads to the next step."""
        part = self.socket.recv(1 << 16)
        if not part:
            raise MeasurementFailed("the broker closed a member's connection")
        self._received += part
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 + size:
            return
        answer, self._received = self._received[4 : 4 + size], b""
        self.is_idle = True
        self.heard_s = time.monotonic()
        self.on_answer(answer)

    def close(self) -> None:
        self.socket.close()

    @abstractmethod
    def join(self) -> None:
        """Begin to be a member."""

    @abstractmethod
    def beat(self) -> None:
        """Say that it is alive, and hear what is new."""

    @abstractmethod
    def leave(self) -> None:
        """Go, and wait for the answer."""

    @abstractmethod
    def on_answer(self, answer: bytes) -> None:
        """The next step."""


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat. The one that is made leader deals the partitions out in turn."""

    def __init__(self, port: int, group: str, topic: Topic, session_ms: int) -> None:
        super().__init__(port, group, topic)
        self._session_ms = session_ms
        self._id = ""
        self._asked: Api = k11.API
        self._join_frame = self._beat_frame = b""

    def join(self) -> None:
        if not self._join_frame:
            self._join_frame = frame_of(k11.API, 9, self._join_request())
        self._asked, self.owned = k11.API, None
        self.send(self._join_frame)

    def _join_request(self) -> k11.JoinGroupRequest:
        subscription = b"\0\0" + bytes(encode(ConsumerProtocolSubscription(topics=[self.topic.name]), 0))
        return k11.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[k11.JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
        )

    def beat(self) -> None:
        self._asked = k12.API
        self.send(self._beat_frame)

    def leave(self) -> None:
        self._asked = k13.API
        members = [k13.LeaveGroupRequestMember(member_id=self._id)]
        self.send(frame_of(k13.API, 5, k13.LeaveGroupRequest(group_id=self.group, members=members)))

    def on_answer(self, answer: bytes) -> None:
        if self._asked is k12.API:  # correlation id, tags, throttle time, error
            code = int.from_bytes(answer[9:11], "big", signed=True)
            if code:
                self._join_again(code)
        elif self._asked is k11.API:
            self._on_joined(decode(k11.JoinGroupResponse, 9, answer, 5)[0])
        elif self._asked is k14.API:
            self._on_synced(decode(k14.SyncGroupResponse, 5, answer, 5)[0])

    def _join_again(self, code: int) -> None:
        if code not in JOIN_AGAIN:
            raise MeasurementFailed(f"a member of a group was refused: {Error(code).name}")
        self.join()

    def _on_joined(self, answer: k11.JoinGroupResponse) -> None:
        if answer.member_id != self._id:
            self._id, self._join_frame = answer.member_id, b""
        if answer.error_code:
            self._join_again(answer.error_code)
            return
        self.round = answer.generation_id
        self._beat_frame = frame_of(
            k12.API,
            4,
            k12.HeartbeatRequest(group_id=self.group, generation_id=self.round, member_id=self._id),
        )
        shares = self._deal([each.member_id for each in answer.members]) if answer.leader == self._id else []
        self._asked = k14.API
        request = k14.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.round,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        self.send(frame_of(k14.API, 5, request))

    def _deal(self, ids: list[str]) -> list[k14.SyncGroupRequestAssignment]:
        everything = sorted(self.topic.partitions)
        shares = []
        for number, member_id in enumerate(ids):
            mine = ConsumerProtocolAssignmentTopicPartition(
                topic=self.topic.name, partitions=everything[number :: len(ids)]
            )
            assignment = b"\0\0" + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=[mine]), 0))
            shares.append(k14.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
        return shares

    def _on_synced(self, answer: k14.SyncGroupResponse) -> None:
        if answer.error_code:
            self._join_again(answer.error_code)
            return
        assignment = decode(ConsumerProtocolAssignment, 0, bytes(answer.assignment), 2)[0]
        self.owned = frozenset(part for topic in assignment.assigned_partitions for part in topic.partitions)


class NewMember(Member):
    """ConsumerGroupHeartbeat: gives up and takes over at once what it is told to."""

    def __init__(self, port: int, group: str, topic: Topic) -> None:
        super().__init__(port, group, topic)
        self._id = str(uuid4())
        self._beat_frame = b""

    def join(self) -> None:
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._id,
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self.topic.name],
            topic_partitions=[],
        )
        self.send(frame_of(k68.API, 1, request))

    def beat(self) -> None:
        self.send(self._beat_frame)

    def leave(self) -> None:
        request = k68.ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self._id, member_epoch=LEAVE_EPOCH)
        self.send(frame_of(k68.API, 1, request))

    def on_answer(self, answer: bytes) -> None:
        got = decode(k68.ConsumerGroupHeartbeatResponse, 1, answer, 5)[0]
        if got.error_code in NOT_READY and self.round < 0:
            self.join()
            return
        if got.error_code:
            raise MeasurementFailed(f"a member of a group was refused: {Error(got.error_code).name}")
        if got.member_epoch == self.round and got.assignment is None:
            return
        self.round = got.member_epoch
        if got.assignment is not None:
            self.owned = frozenset(part for topic in got.assignment.topic_partitions for part in topic.partitions)
        owned = [k68.ConsumerGroupHeartbeatRequestTopic(topic_id=self.topic.id, partitions=sorted(self.owned or ()))]
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._id,
            member_epoch=self.round,
            topic_partitions=owned if self.owned else [],
        )
        self._beat_frame = frame_of(k68.API, 1, request)


class Crowd:
    """The members of one group, driven by one loop."""

    def __init__(self, topic: Topic, make: Callable[[], Member]) -> None:
        self._topic = topic
        self._make = make
        self._selector = selectors.DefaultSelector()
        self.members: list[Member] = []

    def add(self) -> Member:
        member = self._make()
        self.members.append(member)
        self._selector.register(member.socket, selectors.EVENT_READ, member)
        member.join()
        return member

    def take_out(self, member: Member) -> None:
        """It is no member any more as far as the others are concerned."""
        self.members.remove(member)
        self._selector.unregister(member.socket)

    def is_stable(self) -> bool:
        """Are all in the same round, and has every partition exactly one owner?"""
        owned = [member.owned for member in self.members]
        if any(each is None for each in owned) or len({member.round for member in self.members}) != 1:
            return False
        return sum(map(len, owned)) == len(self._topic.partitions) == len(frozenset().union(*owned))  # type: ignore[arg-type]

    def settle(self, after_round: int, timeout_s: float) -> float:
        """Run, in a hurry, until the group is stable in a later round; the moment at which it was."""
        deadline_s = time.monotonic() + timeout_s
        self._beat(pause_s=0)
        while not (self.is_stable() and self.members[0].round > after_round):
            self._receive()
            self._beat(pause_s=0)
            if time.monotonic() > deadline_s:
                rounds = sorted((member.round, len(member.owned or ())) for member in self.members)
                raise MeasurementFailed(f"a group did not settle in {timeout_s} s: {rounds}")
        return time.monotonic()

    def rest(self) -> None:
        """A moment in which nobody is in a hurry."""
        self._beat(RESTING_BEAT_S)
        self._receive(RESTING_BEAT_S / 2)

    def _receive(self, timeout_s: float = 1) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data.receive()

    def _beat(self, pause_s: float) -> None:
        now_s = time.monotonic()
        for member in self.members:
            if member.is_idle and now_s - member.heard_s >= pause_s:
                member.beat()

    def finish_heartbeats(self) -> None:
        """Run until nobody waits for an answer."""
        while not all(member.is_idle for member in self.members):
            self._receive()

    def close(self) -> None:
        for member in self.members:
            member.close()
        self._selector.close()
