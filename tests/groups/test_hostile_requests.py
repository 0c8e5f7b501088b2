"""Whatever a client asks, a shard answers or lets it wait: a decision that fails would make everybody in it wait.

Requests are made of values that are likely to meet each other (a few names, ids that were given out), and of ones that
nobody should send: extreme numbers, empty and very long texts, bytes that are no subscription.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.steps import ProducerEpoch, Step
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Caller
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestGroupTopic
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopic,
)

from .shard_driver import ShardDriver, subscription

LONG = "ü" * 16_000  # close to the longest text that a frame can have
GROUPS = st.sampled_from(["g", "h", "", LONG])
TEXTS = st.sampled_from(["", "a", "b", "range", "consumer", "\0", LONG])
INSTANCES = st.sampled_from([None, None, "i", "", LONG])
#: "#0" stands for the first member id that was given out.
MEMBERS = st.sampled_from(["", "", "#0", "#1", "#2", "x", LONG])
INT32 = st.sampled_from([0, 1, 2, -1, -2, 10_000, 2**31 - 1, -(2**31)])
INT64 = st.sampled_from([0, 5, -1, -(2**63), 2**63 - 1])
PARTITIONS = st.sampled_from([0, 1, 3, -1, 2**31 - 1])
TOPICS = st.sampled_from(["t", "u"])
TOPIC_IDS = st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=9)])
BLOBS = st.sampled_from([b"", b"\0", b"\xff" * 40, subscription("t"), subscription("t", "u"), bytes(100_000)])


def lists(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=3)


JOINS = st.builds(
    JoinGroupRequest,
    group_id=GROUPS,
    session_timeout_ms=st.sampled_from([10_000, 10_000, 6000, 0, -1, 2**31 - 1]),
    rebalance_timeout_ms=INT32,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    protocol_type=st.sampled_from(["consumer", "consumer", "connect", "", LONG]),
    protocols=lists(
        st.builds(JoinGroupRequestProtocol, name=st.sampled_from(["range", "range", "", LONG]), metadata=BLOBS)
    ),
)
SYNCS = st.builds(
    SyncGroupRequest,
    group_id=GROUPS,
    generation_id=INT32,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    protocol_type=st.none() | TEXTS,
    protocol_name=st.none() | TEXTS,
    assignments=lists(st.builds(SyncGroupRequestAssignment, member_id=MEMBERS, assignment=BLOBS)),
)
HEARTBEATS = st.builds(
    HeartbeatRequest, group_id=GROUPS, generation_id=INT32, member_id=MEMBERS, group_instance_id=INSTANCES
)
LEAVES = st.builds(
    LeaveGroupRequest,
    group_id=GROUPS,
    members=lists(st.builds(LeaveGroupRequestMember, member_id=MEMBERS, group_instance_id=INSTANCES)),
)
COMMITS = st.builds(
    OffsetCommitRequest,
    group_id=GROUPS,
    generation_id_or_member_epoch=INT32,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    retention_time_ms=INT64,
    topics=lists(
        st.builds(
            OffsetCommitRequestTopic,
            name=TOPICS,
            topic_id=TOPIC_IDS,
            partitions=lists(
                st.builds(
                    OffsetCommitRequestPartition,
                    partition_index=PARTITIONS,
                    committed_offset=INT64,
                    committed_leader_epoch=INT32,
                    committed_metadata=st.none() | TEXTS,
                )
            ),
        )
    ),
)
TXN_COMMITS = st.builds(
    TxnOffsetCommitRequest,
    transactional_id=TEXTS,
    group_id=GROUPS,
    producer_id=st.sampled_from([1, 2]),
    producer_epoch=st.just(0),
    generation_id=INT32,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    topics=lists(
        st.builds(
            TxnOffsetCommitRequestTopic,
            name=TOPICS,
            partitions=lists(
                st.builds(
                    TxnOffsetCommitRequestPartition,
                    partition_index=PARTITIONS,
                    committed_offset=INT64,
                    committed_metadata=st.none() | TEXTS,
                )
            ),
        )
    ),
)
FETCHES = st.builds(
    OffsetFetchRequestGroup,
    group_id=GROUPS,
    member_id=st.none() | MEMBERS,
    member_epoch=INT32,
    topics=st.none()
    | lists(
        st.builds(OffsetFetchRequestGroupTopic, name=TOPICS, topic_id=TOPIC_IDS, partition_indexes=lists(PARTITIONS))
    ),
)
OFFSET_DELETES = st.builds(
    OffsetDeleteRequest,
    group_id=GROUPS,
    topics=lists(
        st.builds(
            OffsetDeleteRequestTopic,
            name=TOPICS,
            partitions=lists(st.builds(OffsetDeleteRequestPartition, partition_index=PARTITIONS)),
        )
    ),
)
CONSUMER_HEARTBEATS = st.builds(
    ConsumerGroupHeartbeatRequest,
    group_id=GROUPS,
    member_id=MEMBERS,
    member_epoch=INT32,
    instance_id=INSTANCES,
    rack_id=st.none() | TEXTS,
    rebalance_timeout_ms=INT32,
    subscribed_topic_names=st.none() | lists(st.sampled_from(["t", "u", "", LONG])),
    subscribed_topic_regex=st.none() | st.sampled_from(["t.*", "(", "", LONG]),
    server_assignor=st.none() | st.sampled_from(["range", "uniform", "x"]),
    topic_partitions=st.none()
    | lists(st.builds(ConsumerGroupHeartbeatRequestTopic, topic_id=TOPIC_IDS, partitions=lists(PARTITIONS))),
)
NAMES = st.tuples(st.sampled_from(["delete", "describe", "describe new"]), GROUPS)
EVENTS = st.tuples(st.just("time"), st.sampled_from([1, 3000, 10_000, 600_000])) | st.sampled_from(
    [("crash", 0), ("commit", 1), ("abort", 1), ("commit", 2)]
)
REQUESTS = st.one_of(
    JOINS,
    JOINS,
    SYNCS,
    HEARTBEATS,
    LEAVES,
    COMMITS,
    TXN_COMMITS,
    FETCHES,
    OFFSET_DELETES,
    CONSUMER_HEARTBEATS,
    NAMES,
    EVENTS,
)


class Hostile:
    """A shard, and the member ids that it has given out."""

    def __init__(self) -> None:
        self.driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=0, size_max=3, consumer_size_max=3))
        self.given: list[str] = []

    def do(self, request: Any, version: int) -> None:
        if isinstance(request, tuple):
            self.happen(*request)
        else:
            self.fill_in(request)
            token = self.driver.send(lambda token: self.step(token, request, version))
            member_id = getattr(self.driver.answers.get(token), "member_id", None)
            if member_id and member_id not in self.given:
                self.given.append(member_id)

    def fill_in(self, message: Any) -> None:
        """Ids that were given out, in place of their numbers."""
        for each in (message, *getattr(message, "members", ()), *getattr(message, "assignments", ())):
            member_id = getattr(each, "member_id", None)
            if member_id and member_id.startswith("#"):
                number = int(member_id[1:])
                each.member_id = self.given[-1 - number] if number < len(self.given) else ""

    def happen(self, what: str, detail: Any) -> None:
        driver, shard = self.driver, self.driver.shard
        if what == "time":
            driver.pass_time(detail)
        elif what == "crash":
            driver.crash()
        elif what == "delete":
            driver.send(lambda token: shard.delete_group(token, detail))
        elif what == "describe":
            driver.send(lambda token: shard.describe_group(token, detail, Caller(6, "", "")))
        elif what == "describe new":
            driver.send(lambda token: shard.describe_consumer_group(token, detail))
        else:
            driver.marker(ProducerEpoch(detail, 0), is_commit=what == "commit")

    def step(self, token: int, request: Any, version: int) -> Step:
        shard, now, caller = self.driver.shard, self.driver.now, Caller(version, LONG, "/127.0.0.1")
        if isinstance(request, JoinGroupRequest):
            return shard.join_group(token, request, caller, now)
        if isinstance(request, SyncGroupRequest):
            return shard.sync_group(token, request, now)
        if isinstance(request, HeartbeatRequest):
            return shard.heartbeat(token, request, now)
        if isinstance(request, LeaveGroupRequest):
            return shard.leave_group(token, request, now)
        if isinstance(request, OffsetCommitRequest):
            return shard.commit_offsets(token, request, caller, now)
        if isinstance(request, TxnOffsetCommitRequest):
            return shard.txn_commit_offsets(token, request, caller, now)
        if isinstance(request, OffsetFetchRequestGroup):
            return shard.fetch_offsets(token, request, require_stable=bool(version % 2))
        if isinstance(request, OffsetDeleteRequest):
            return shard.delete_offsets(token, request)
        return shard.consumer_group_heartbeat(token, request, caller, now)


QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
LIVES = st.lists(st.tuples(REQUESTS, st.sampled_from([0, 3, 5, 9, 10])), max_size=40)


@QUICK
@given(LIVES)
def test_a_shard_survives_every_request(requests: list[tuple[Any, int]]) -> None:
    survive(requests)


@pytest.mark.slow
@THOROUGH
@given(LIVES)
def test_a_shard_survives_very_many(requests: list[tuple[Any, int]]) -> None:
    survive(requests)


def survive(requests: list[tuple[Any, int]]) -> None:
    hostile = Hostile()
    for request, version in requests:
        hostile.do(request, version)
    hostile.driver.pass_time(700_000)
    assert not hostile.driver.waiting
    hostile.driver.crash()
