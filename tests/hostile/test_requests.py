"""Requests that are well formed and mean harm: unknown kinds, forged batches, bombs, paths as names, floods of ids."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.testing.raw_client import ConnectionEnded
from penstock.testing.sim_client import BATCH_TIMESTAMP_MS, batch_of, produce_request
from penstock.wire.api import APIS
from penstock.wire.codec import decode, encode
from penstock.wire.compression import Compression, compress
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
)
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.records import seal_batch

MIB = 1 << 20
SOON_S = 3.0
API_VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


def produce(target: Any, topic: str, batch: bytes) -> Any:
    target.create_topic(topic)
    with target.connect() as client:
        return client.call(produce_request(topic, 0, batch), 11).responses[0].partition_responses[0]


def list_offset(target: Any, topic: str, timestamp: int) -> Any:
    part = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
    row = ListOffsetsRequestTopic(name=topic, partitions=[part])
    with target.connect() as client:
        return client.call(ListOffsetsRequest(replica_id=-1, topics=[row])).topics[0].partitions[0]


# ── the language ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [5, 6, 99, 32767, -1])
def test_a_future_api_versions_is_answered_in_the_oldest_language(target: Any, version: int) -> None:
    with target.connect() as client:
        client.send(client.frame(18, version, b"whatever the future brings"))
        frame = client.receive_frame()
        answer, end = decode(ApiVersionsResponse, 0, frame, 4)
        assert end == len(frame)
        assert answer.error_code == Error.UNSUPPORTED_VERSION
        assert {row.api_key for row in answer.api_keys} >= {0, 1, 3, 18}
        assert client.call(API_VERSIONS, 3).error_code == 0


@pytest.mark.parametrize("key", [-1, -32768, 4, 5, 6, 7, 93, 1000, 32767])
def test_unknown_kinds_of_request_close(target: Any, key: int) -> None:
    with target.connect() as client:
        client.send(client.frame(key, 0, bytes(50)))
        assert client.is_closed_within(SOON_S)


def test_versions_that_are_not_served_close(target: Any) -> None:
    with target.connect() as client:
        served = client.call(API_VERSIONS, 3).api_keys
    for row in served:
        if row.api_key != 18:
            for version in (row.min_version - 1, row.max_version + 1, -32768, 32767):
                with target.connect() as client:
                    client.send(client.frame(row.api_key, version, bytes(50)))
                    assert client.is_closed_within(SOON_S), (row.api_key, version)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">ihhi", 8, 18, 3, 1),
        struct.pack(">ihhih", 10, 18, 3, 1, -1),
        struct.pack(">ihhih", 12, 3, 1, 1, 30000) + b"xx",
        struct.pack(">ihhih", 14, 3, 1, 1, 2) + b"\xff\xfe" + b"\0\0",
        struct.pack(">ihhih", 16, 3, 12, 1, 1) + b"c" + b"\xff\xff\xff\xff\xff",
        struct.pack(">ihhih", 17, 3, 12, 1, 1) + b"c" + b"\x01\x00\xff\xff\xff\x7f",
    ],
    ids=["no client id", "no tags", "long client id", "not utf-8", "long varint", "tag beyond the frame"],
)
def test_broken_headers_close(target: Any, frame: bytes) -> None:
    with target.connect() as client:
        client.send(frame)
        assert client.is_closed_within(SOON_S)


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_forged_control_batches_are_refused(target: Any) -> None:
    answer = produce(target, "forged", batch_of([b"x"], control=True))
    assert answer.error_code == Error.INVALID_RECORD


def test_forged_transactional_batches_are_refused(target: Any) -> None:
    batch = batch_of([b"x"], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    answer = produce(target, "forged", batch)
    assert answer.error_code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_only_what_was_appended_can_be_read_after_refusals(target: Any) -> None:
    refused = [
        (b"", Error.INVALID_RECORD),
        (bytes(61), Error.INVALID_RECORD),
        (batch_of([b"x"])[:-1], Error.INVALID_RECORD),
        (batch_of([b"x"]) + b"!", Error.INVALID_RECORD),
        (batch_of([b"x"]) * 2, Error.INVALID_RECORD),
        (batch_of([b"x"])[:-3] + b"abc", Error.CORRUPT_MESSAGE),
        (_batch(b"", 0, last_offset_delta=-1), Error.INVALID_RECORD),
        (_batch(b"", 5, last_offset_delta=2**31 - 1), Error.INVALID_RECORD),
    ]
    for batch, error in refused:
        answer = produce(target, "refusals", batch)
        assert answer.error_code == error, (batch[:80], Error(answer.error_code))
    assert produce(target, "refusals", batch_of([b"good"])).base_offset == 0


def _batch(area: bytes, count: int, *, last_offset_delta: int, codec: Compression = Compression.NONE) -> bytes:
    """A batch with a sound checksum around anything."""
    return bytes(
        seal_batch(
            memoryview(area),
            count,
            last_offset_delta=last_offset_delta,
            base_timestamp=BATCH_TIMESTAMP_MS,
            max_timestamp=BATCH_TIMESTAMP_MS + 1000,
            compression=codec,
        )
    )


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_a_bomb_harms_only_its_readers(target: Any, codec: Compression) -> None:
    """A quarter of a gigabyte in a small batch: stored as it is; looking for a time in it stops in mid-stream."""
    topic = f"bomb-{codec.name.lower()}"
    bomb = _batch(bytes(256 * MIB), 1000, last_offset_delta=999, codec=codec)
    if len(bomb) > MIB:
        bomb = _batch(bytes(15 * MIB), 1000, last_offset_delta=999, codec=codec)
    target.forget_peak()
    before = target.peak_bytes()
    assert produce(target, topic, bomb).error_code == 0
    began = time.monotonic()
    answer = list_offset(target, topic, BATCH_TIMESTAMP_MS + 500)
    assert time.monotonic() - began < 5
    assert answer.error_code != Error.UNKNOWN_SERVER_ERROR
    list_offset(target, topic, -3)
    assert target.peak_bytes() - before < 200 * MIB
    assert produce(target, topic, batch_of([b"after"])).base_offset == 1000


@pytest.mark.parametrize("count", [1, 1000, 2**30])
@pytest.mark.parametrize("area", [b"", b"\x02", b"\xff" * 30, batch_of([b"one record"])[61:]], ids=len)
def test_batches_that_lie_about_their_records_harm_only_their_readers(target: Any, area: bytes, count: int) -> None:
    topic = f"liar-{len(area)}-{count}"
    target.forget_peak()
    before = target.peak_bytes()
    answer = produce(target, topic, _batch(area, count, last_offset_delta=count - 1))
    assert answer.error_code in (0, Error.INVALID_RECORD)
    list_offset(target, topic, BATCH_TIMESTAMP_MS + 1)
    list_offset(target, topic, -3)
    assert list_offset(target, topic, -1).error_code == 0
    assert target.peak_bytes() - before < 50 * MIB


def test_a_batch_that_names_an_unknown_codec_is_refused(target: Any) -> None:
    batch = bytearray(_batch(compress(Compression.GZIP, b"x"), 1, last_offset_delta=0))
    batch[22] = 6
    sealed = bytearray(_batch(b"", 1, last_offset_delta=0))
    sealed[:] = batch
    answer = produce(target, "codec", bytes(sealed))
    assert answer.error_code == Error.CORRUPT_MESSAGE  # the checksum covers it


# ── replicas, names, ids ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("replica", [0, 1, 2**31 - 1])
def test_forged_replica_ids_get_nothing(target: Any, replica: int) -> None:
    produce(target, "replica", batch_of([b"x"]))
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchRequestTopic(topic="replica", partitions=[part])
    with target.connect() as client:
        old = FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=0, topics=[topic])
        found = client.call(old, 12).responses[0].partitions[0]
        assert found.error_code != 0 and not found.records
        state = FetchRequestReplicaState(replica_id=replica, replica_epoch=1)
        new = FetchRequest(
            replica_state=state, max_wait_ms=0, min_bytes=0, topics=[FetchRequestTopic(partitions=[part])]
        )
        found = client.call(new, 17).responses[0].partitions[0]
        assert found.error_code != 0 and not found.records


NAMES = ["../x", "..", ".", "", "a/b", "a\\b", "a\0b", "x" * 250, "ä", "a b", "/etc/passwd", "a\n", "%2e%2e"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_that_are_paths_never_become_paths(target: Any, name: str) -> None:
    before = sorted(path.name for path in target.process.data.parent.iterdir())
    row = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    with target.connect() as client:
        created = client.call(CreateTopicsRequest(topics=[row])).topics[0]
        assert created.error_code == Error.INVALID_TOPIC_EXCEPTION
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        assert client.call(asked, 9).topics[0].error_code == Error.INVALID_TOPIC_EXCEPTION
        answer = client.call(produce_request(name, 0, batch_of([b"x"])), 11).responses[0].partition_responses[0]
        assert Error(answer.error_code) in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name=name)], timeout_ms=1000)
        deleted = client.call(deletion).responses[0]
        assert Error(deleted.error_code) in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION)
    assert sorted(path.name for path in target.process.data.parent.iterdir()) == before
    logs = target.process.data / "logs"
    folders = [path.name for path in logs.iterdir() if path.is_dir() and path.name != "audit"]
    assert not [folder for folder in folders if folder.rpartition("-")[0] in ("", name)]


def test_nobody_writes_lines_of_his_own_into_the_log(target: Any) -> None:
    """With acks=0 a refusal closes the connection, and the log says why."""
    forged = "x\n2026-01-01 00:00:00,000 ERROR   this broker is on fire\x1b[2J\u2028\x85end"
    deadline = time.monotonic() + 10
    while "this broker is on fire" not in (text := target.process.log_text()):  # at most one line a second
        assert time.monotonic() < deadline
        with target.connect() as client:
            request = produce_request(forged, 0, batch_of([b"x"]))
            request.acks = 0
            client.send(client.frame(0, 11, encode(request, 11)))
            with pytest.raises(ConnectionEnded):
                client.receive_frame()
    (line,) = (line for line in text.splitlines() if "this broker is on fire" in line)
    assert "closed the connection" in line and line.rstrip().isprintable()
    assert "\\n2026" in line and "\\x1b[2J" in line


def test_a_flood_of_producer_ids_costs_little(target: Any) -> None:
    """Anybody can invent producer ids; each costs the broker a little memory until it expires."""
    target.create_topic("ids")
    before = target.resident_bytes()
    count = 5000
    with target.connect() as client:
        frames = []
        for producer_id in range(count):
            batch = batch_of([b"x"], producer_id=10**9 + producer_id, producer_epoch=0, base_sequence=0)
            frames.append(client.frame_of(produce_request("ids", 0, batch), 11))
        for first in range(0, count, 100):
            client.send(b"".join(frames[first : first + 100]))
            for _ in range(100):
                client.receive_frame()
    assert (target.resident_bytes() - before) / count < 4000


def test_a_huge_request_of_many_small_parts_is_bounded(target: Any) -> None:
    """Few bytes on the wire can be many objects: a frame of names that are one letter long."""
    count = 8 * MIB // 3
    body = struct.pack(">i", count) + b"\0\1a" * count
    target.forget_peak()
    before = target.peak_bytes()
    with target.connect() as client:
        client.send(client.frame(3, 1, body))
        try:
            client.receive_frame(30)
        except ConnectionEnded:
            pass
    assert target.peak_bytes() - before < 600 * MIB


def test_every_served_key_is_declared(target: Any) -> None:
    with target.connect() as client:
        for row in client.call(API_VERSIONS, 3).api_keys:
            api = APIS[row.api_key]
            assert api.min_version <= row.min_version <= row.max_version <= api.max_version


def test_fetch_sessions_that_name_very_much_are_bounded(target: Any) -> None:
    parts = [FetchRequestPartition(partition=index, partition_max_bytes=1) for index in range(30_000)]
    topic = FetchRequestTopic(topic="nowhere", partitions=parts)
    before = target.resident_bytes()
    with target.connect() as client:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[topic])
        sessions = [client.call(request, 12).session_id for _ in range(12)]
    assert sessions[0] and not sessions[-1]
    assert target.resident_bytes() - before < 120 * MIB
