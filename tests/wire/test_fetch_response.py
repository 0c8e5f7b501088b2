"""The hand-written Fetch response against the declared one: the same bytes, in every version."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import Error
from penstock.wire.api import APIS
from penstock.wire.codec import encode_into
from penstock.wire.fetch_response import EndpointAnswer, PartitionAnswer, TopicAnswer, encode_fetch_response
from penstock.wire.headers import encode_response_header
from penstock.wire.messages.k01_fetch import (
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)

KEY = 1
VERSIONS = range(APIS[KEY].min_version, APIS[KEY].max_version + 1)


@dataclass(frozen=True)
class Range:
    """Records that are somewhere else; here they are here."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)


def declared(
    version: int,
    correlation_id: int,
    topics: list[TopicAnswer[Range]],
    throttle_ms: int,
    error: Error,
    session_id: int,
    endpoints: list[EndpointAnswer] | None = None,
) -> bytes:
    """The same through the declared message."""
    rows = [
        FetchResponseTopic(
            topic=topic.name if version < 13 else "",
            topic_id=topic.topic_id if version >= 13 else UUID(int=0),
            partitions=[_partition(version, answer) for answer in topic.partitions],
        )
        for topic in topics
    ]
    message = FetchResponse(throttle_time_ms=throttle_ms, responses=rows)
    if version >= 7:
        message.error_code, message.session_id = error, session_id
    if version >= 16:
        message.node_endpoints = [
            FetchResponseNodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in endpoints or ()
        ]
    out = bytearray(4)
    encode_response_header(KEY, version, correlation_id, out)
    encode_into(message, version, out)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def _partition(version: int, answer: PartitionAnswer[Range]) -> FetchResponsePartition:
    row = FetchResponsePartition(
        partition_index=answer.index,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        aborted_transactions=None
        if answer.aborted is None
        else [
            FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in answer.aborted
        ],
        records=answer.records.content if answer.records is not None else b"",
    )
    if version >= 11:
        row.preferred_read_replica = answer.preferred_read_replica
    if version >= 12:
        if answer.diverging is not None:
            epoch, end_offset = answer.diverging
            row.diverging_epoch = FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset)
        if answer.current_leader is not None:
            node, epoch = answer.current_leader
            row.current_leader = FetchResponseLeaderIdAndEpoch(leader_id=node, leader_epoch=epoch)
    return row


def joined(parts: list[bytearray | Range]) -> bytes:
    return b"".join(part.content if isinstance(part, Range) else part for part in parts)


INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
ANSWERS = st.builds(
    PartitionAnswer,
    index=INT32,
    error=st.sampled_from([Error.NONE, Error.OFFSET_OUT_OF_RANGE, Error.KAFKA_STORAGE_ERROR]),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    diverging=st.none() | st.tuples(INT32, st.integers(0, 2**63 - 1)),
    current_leader=st.none() | st.tuples(INT32, INT32),
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    preferred_read_replica=st.integers(-1, 5),
    records=st.none() | st.builds(Range, st.binary(max_size=40) | st.integers(100, 40_000).map(bytes)),
)
TOPICS = st.lists(
    st.builds(
        TopicAnswer,
        name=st.text("abc.-_é", min_size=1, max_size=200),
        topic_id=st.uuids(),
        partitions=st.lists(ANSWERS, max_size=4),
    ),
    max_size=4,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25, deadline=None)
@given(correlation_id=INT32, topics=TOPICS, throttle_ms=INT32, error=st.sampled_from(Error), session_id=INT32)
def test_same_bytes_as_the_declared_message(
    version: int, correlation_id: int, topics: list[TopicAnswer[Range]], throttle_ms: int, error: Error, session_id: int
) -> None:
    parts = encode_fetch_response(
        version, correlation_id, topics, throttle_ms=throttle_ms, error=error, session_id=session_id
    )
    assert joined(parts) == declared(version, correlation_id, topics, throttle_ms, error, session_id)


def test_more_topics_and_partitions_than_one_byte_counts() -> None:
    """A compact count of 127 or more has two bytes."""
    topics = [
        TopicAnswer("t", UUID(int=7), [PartitionAnswer(index, records=Range(b"xyz")) for index in range(300)])
        for _ in range(200)
    ]
    for version in (4, 12, 18):
        assert joined(encode_fetch_response(version, 1, topics)) == declared(version, 1, topics, 0, Error.NONE, 0)


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_where_leaders_are(version: int) -> None:
    endpoints = [EndpointAnswer(1, "one", 9092, None), EndpointAnswer(2, "h" * 200, 9093, "rack")]
    refused: PartitionAnswer[Range] = PartitionAnswer(0, Error.NOT_LEADER_OR_FOLLOWER, current_leader=(1, 5))
    topics = [TopicAnswer("t", UUID(int=7), [refused])]
    encoded = joined(encode_fetch_response(version, 1, topics, endpoints=endpoints))
    assert encoded == declared(version, 1, topics, 0, Error.NONE, 0, endpoints)
