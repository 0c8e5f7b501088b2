"""What a follower reads of a Fetch response, against the declared message: the same, in every version that it reads."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.api import APIS
from penstock.wire.codec import encode
from penstock.wire.fetch_answer import TOPIC_IDS_SINCE, FetchAnswer, FollowerAnswer, read_fetch_answer
from penstock.wire.messages.k01_fetch import (
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    FetchResponsePartition,
    FetchResponseTopic,
)
from penstock.wire.schema import ProtocolError

VERSIONS = range(TOPIC_IDS_SINCE, APIS[1].max_version + 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)

partitions = st.builds(
    FetchResponsePartition,
    partition_index=INT32,
    error_code=st.integers(-1, 120),
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    diverging_epoch=st.builds(FetchResponseEpochEndOffset, epoch=st.integers(-1, 9), end_offset=st.integers(-1, 9)),
    current_leader=st.builds(FetchResponseLeaderIdAndEpoch, leader_id=st.integers(-1, 3), leader_epoch=INT32),
    aborted_transactions=st.none()
    | st.lists(st.builds(FetchResponseAbortedTransaction, producer_id=INT64, first_offset=INT64), max_size=3),
    preferred_read_replica=INT32,
    records=st.none() | st.binary(max_size=300),
)
responses = st.builds(
    FetchResponse,
    throttle_time_ms=INT32,
    error_code=st.integers(-1, 120),
    session_id=INT32,
    responses=st.lists(
        st.builds(FetchResponseTopic, topic_id=st.uuids(), partitions=st.lists(partitions, max_size=4)), max_size=4
    ),
)


def expected(message: FetchResponse) -> FetchAnswer:
    """The same, by the declared message."""
    rows = [
        FollowerAnswer(
            topic.topic_id.bytes,
            row.partition_index,
            row.error_code,
            row.high_watermark,
            row.log_start_offset,
            _diverging(row),
            memoryview(bytes(row.records)) if row.records else None,
        )
        for topic in message.responses
        for row in topic.partitions
    ]
    return FetchAnswer(message.error_code, message.session_id, rows)


def _diverging(row: FetchResponsePartition) -> tuple[int, int] | None:
    found = row.diverging_epoch.epoch, row.diverging_epoch.end_offset
    return None if found == (-1, -1) else found


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60)
@given(message=responses)
def test_it_is_what_the_declared_message_says(version: int, message: FetchResponse) -> None:
    frame = b"head" + encode(message, version)
    assert read_fetch_answer(memoryview(frame), 4) == expected(message)


def test_fields_that_a_follower_does_not_know_are_skipped() -> None:
    node = FetchResponseNodeEndpoint(node_id=1, host="h", port=2)
    message = FetchResponse(error_code=70, session_id=5, node_endpoints=[node])
    assert read_fetch_answer(memoryview(encode(message, 18)), 0) == FetchAnswer(70, 5, [])


def test_records_are_not_copied() -> None:
    row = FetchResponsePartition(partition_index=0, error_code=0, high_watermark=0, records=b"records")
    message = FetchResponse(responses=[FetchResponseTopic(topic_id=UUID(int=7), partitions=[row])])
    frame = bytearray(encode(message, 17))
    (answer,) = read_fetch_answer(memoryview(frame), 0).partitions
    frame[frame.index(b"records")] = ord("R")
    assert answer.records is not None and bytes(answer.records) == b"Records"


@settings(max_examples=200)
@given(message=responses, data=st.data())
def test_frames_that_are_cut_or_spoiled_are_refused_or_read(message: FetchResponse, data: st.DataObject) -> None:
    frame = bytearray(encode(message, 18))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    else:
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_fetch_answer(memoryview(frame), 0)
    except ProtocolError:
        pass


@pytest.mark.parametrize("extra", [b"\0", b"\x01\x02"])
def test_bytes_after_the_end_are_refused(extra: bytes) -> None:
    with pytest.raises(ProtocolError, match="after its end"):
        read_fetch_answer(memoryview(encode(FetchResponse(session_id=1), 15) + extra), 0)
