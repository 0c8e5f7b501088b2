"""A broker that is killed or stopped and comes back still knows its groups: members notice no more than a retry."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequest
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic

RETRIES_S = 10
RETRIED = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE}


def ask(client: RawClient, request: Any, version: int) -> Any:
    """As clients ask: again, while the coordinator says that it is not ready."""
    deadline = time.monotonic() + RETRIES_S
    while True:
        answer = client.call(request, version)
        if getattr(answer, "error_code", Error.NONE) not in RETRIED or time.monotonic() > deadline:
            return answer


def commit(client: RawClient, member_id: str, generation: int, offset: int) -> Error:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    deadline = time.monotonic() + RETRIES_S
    while True:
        error = Error(client.call(request, 9).topics[0].partitions[0].error_code)
        if error not in RETRIED or time.monotonic() > deadline:
            return error


def committed(client: RawClient) -> int:
    answer = ask(client, OffsetFetchRequest(group_id="g", topics=None), 7)
    (topic,) = answer.topics
    offset: int = topic.partitions[0].committed_offset
    return offset


def join(client: RawClient) -> str:
    """A group of one, stable in generation 1; the member id."""
    joining = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joining.member_id = ask(client, joining, 9).member_id
    assert ask(client, joining, 9).generation_id == 1
    sync(client, joining.member_id, [SyncGroupRequestAssignment(member_id=joining.member_id, assignment=b"all")])
    return joining.member_id


def sync(client: RawClient, member_id: str, assignments: list[SyncGroupRequestAssignment]) -> bytes:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=assignments)
    answer = ask(client, request, 4)
    assert answer.error_code == Error.NONE
    return bytes(answer.assignment)


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.slow)])
def test_a_group_survives_the_broker(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "data", settings={"offsets.topic.num.partitions": "3"}) as broker:
        with RawClient(broker.host, broker.port) as client:
            topic = CreateTopicsRequestTopic(name="t", num_partitions=1, replication_factor=1)
            client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            ask(client, FindCoordinatorRequest(key="g", key_type=0), 3)
            member_id = join(client)
            assert commit(client, member_id, 1, 42) == Error.NONE
        if how == "killed":
            broker.kill()
            broker.start()
        else:
            broker.restart()
        with RawClient(broker.host, broker.port) as client:
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
            assert ask(client, beat, 3).error_code == Error.NONE
            assert committed(client) == 42
            assert sync(client, member_id, []) == b"all"
            assert commit(client, member_id, 1, 43) == Error.NONE
            assert commit(client, "somebody else", 1, 44) == Error.UNKNOWN_MEMBER_ID
            assert commit(client, member_id, 0, 44) == Error.ILLEGAL_GENERATION
            assert committed(client) == 43
            assert ask(client, beat, 3).error_code == Error.NONE
