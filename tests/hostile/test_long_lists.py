"""Short requests with long answers, and long lists: what is asked for again and again is told once, or not at all."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.k15_describe_groups import DescribeGroupsRequest
from penstock.wire.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic

MIB = 1 << 20
PARTITIONS = 50
METADATA = "m" * 4000


@pytest.fixture
def client(target: Any) -> Any:
    target.create_topic("long", PARTITIONS)
    with target.connect() as connected:
        connected.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["long"]), 6)
        deadline = time.monotonic() + 20
        while connected.call(commit(PARTITIONS), 8).topics[0].partitions[0].error_code:
            assert time.monotonic() < deadline
        yield connected


def commit(count: int, metadata: str = METADATA) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition_index=n % PARTITIONS, committed_offset=n, committed_metadata=metadata)
        for n in range(count)
    ]
    return OffsetCommitRequest(group_id="long", topics=[OffsetCommitRequestTopic(name="long", partitions=parts)])


def answer_bytes(client: RawClient, request: Any, version: int) -> int:
    client.send(client.frame_of(request, version))
    return len(client.receive_frame(60))


def test_the_offsets_of_one_group_very_often(client: RawClient) -> None:
    groups = [OffsetFetchRequestGroup(group_id="long", topics=None) for _ in range(5000)]
    assert answer_bytes(client, OffsetFetchRequest(groups=groups), 8) < 40 * MIB
    again = client.call(OffsetFetchRequest(groups=groups), 8).groups
    assert len(again) == 5000
    assert again[0].error_code == Error.NONE and again[-1].error_code == Error.INVALID_REQUEST


def test_the_same_partition_very_often(client: RawClient) -> None:
    indexes = [0] * 50_000
    topics = [OffsetFetchRequestGroupTopic(name="long", partition_indexes=indexes)] * 2
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="long", topics=topics)])
    assert answer_bytes(client, request, 8) < 1 * MIB
    old = OffsetFetchRequest(
        group_id="long", topics=[OffsetFetchRequestTopic(name="long", partition_indexes=[0])] * 10_000
    )
    assert answer_bytes(client, old, 5) < 1 * MIB
    producers = DescribeProducersRequest(
        topics=[DescribeProducersRequestTopic(name="long", partition_indexes=indexes)] * 2
    )
    assert answer_bytes(client, producers, 0) < 1 * MIB


def test_one_large_group_very_often(client: RawClient) -> None:
    def join(member_id: str) -> Any:
        protocol = JoinGroupRequestProtocol(name="p", metadata=bytes(8 * MIB))
        request = JoinGroupRequest(
            group_id="large",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return client.call(request, 9)

    assert join(join("").member_id).error_code == Error.NONE
    assert answer_bytes(client, DescribeGroupsRequest(groups=["large"] * 1000), 5) < 20 * MIB


def test_commits_larger_than_a_batch_should_be(client: RawClient) -> None:
    for request in (commit(2000), commit(30_000, metadata="")):
        answer = client.call(request, 8).topics[0].partitions[0]
        assert answer.error_code == Error.INVALID_COMMIT_OFFSET_SIZE


def test_coordinators_for_very_many(client: RawClient) -> None:
    answer = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["long"] * 20_000), 6)
    assert len(answer.coordinators) == 20_000
