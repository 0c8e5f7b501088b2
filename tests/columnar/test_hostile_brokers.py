"""Brokers that say nothing, nonsense, or too much: an error in words, in time, and with little memory."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Address
from penstock.columnar.cluster import Cluster
from penstock.columnar.connecting import connect
from penstock.columnar.decode import ColumnChoice
from penstock.columnar.errors import BrokerAway, ColumnarError, NotTrusted, Refused, TopicGone
from penstock.columnar.fetch import RangeReader
from penstock.columnar.groups import commit_offsets
from penstock.columnar.offsets import offsets_at
from penstock.columnar.settings import ClientSettings
from penstock.testing.broker_process import free_port
from penstock.wire.messages.k01_fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from penstock.wire.messages.k02_list_offsets import ListOffsetsResponse
from penstock.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.k08_offset_commit import OffsetCommitResponse
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorResponse
from penstock.wire.messages.k18_api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion

from .fake_broker import fake_broker, frame_of, versions

API_VERSIONS, METADATA, FETCH = 18, 3, 1
ANSWERS_WITHOUT_CONTENT = {2: ListOffsetsResponse(), 8: OffsetCommitResponse(), 10: FindCoordinatorResponse()}
WHERE = TopicPartition("t", 0)


def settings_for(*addresses: str) -> ClientSettings:
    return ClientSettings.parse(
        {
            "bootstrap.servers": ",".join(addresses),
            "request.timeout.ms": "200",
            "default.api.timeout.ms": "600",
            "retry.backoff.ms": "10",
            "fetch.max.wait.ms": "10",
        }
    )


def key_of(request: bytes) -> int:
    (key,) = struct.unpack_from(">h", request)
    return int(key)


def honest_but(**answers: Callable[[socket.socket, bytes], None]) -> Callable[[socket.socket, bytes], None]:
    """Answers ApiVersions and Metadata as one should, but for what is given, by the number of the API."""

    def answer(connection: socket.socket, request: bytes) -> None:
        key = key_of(request)
        if own := answers.get(f"k{key}"):
            own(connection, request)
        elif key == API_VERSIONS:
            connection.sendall(frame_of(request, versions()))
        elif key == METADATA:
            connection.sendall(frame_of(request, metadata(connection.getsockname()[1])))

    return answer


def metadata(port: int, epoch: int = 5) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=0, leader_epoch=epoch, replica_nodes=[0], isr_nodes=[0]
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=port)],
        topics=[MetadataResponseTopic(error_code=0, name="t", partitions=[partition])],
    )


def silent(connection: socket.socket, request: bytes) -> None:
    """Says nothing."""


def hang_up(connection: socket.socket, request: bytes) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def say(data: bytes) -> Callable[[socket.socket, bytes], None]:
    return lambda connection, request: connection.sendall(data)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (silent, "no answer to ApiVersions in time"),
        (hang_up, "closed the connection|reset"),
        (say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is it a Kafka broker"),
        (say(b"\x7f\xff\xff\xff"), "is it a Kafka broker"),
        (say(b"\xff\xff\xff\xff"), "is it a Kafka broker"),
        (say(b"\0\0\0\0"), "is it a Kafka broker"),
        (say(b"\0\0\0\x08\0\0\0\x63\0\0\0\0"), "answers request 99 where 1 is due"),
        (say(b"\0\0\0\x07\0\0\0\x01\0\0\0"), "cannot be read"),
        (say(b"\0\0\0\x0a\0\0\0\x01\0\0\x7f\xff\xff\xff"), "cannot be read"),
    ],
    ids=["silence", "hang-up", "http", "2-GB", "negative", "empty", "wrong-number", "too-short", "huge-array"],
)
def test_what_is_no_broker(answer: Callable[[socket.socket, bytes], None], reason: str) -> None:
    with fake_broker(answer) as broker, Cluster(settings_for(broker.address)) as cluster:
        with pytest.raises(BrokerAway, match=rf"tried {broker.address}; the last reason: .*({reason})"):
            cluster.topics()
        assert broker.connections >= 1


def test_what_was_not_asked() -> None:
    with (
        fake_broker(silent, greeting=b"SSH-2.0-OpenSSH\r\n") as broker,
        Cluster(settings_for(broker.address)) as cluster,
        pytest.raises(BrokerAway, match="cannot be read"),
    ):
        cluster.topics()


def test_a_broker_without_tls_where_tls_is_asked_for() -> None:
    for greeting, reason in ((b"", "no TLS: .*timed out"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS")):
        with fake_broker(silent, greeting) as broker:
            given = {"bootstrap.servers": broker.address, "security.protocol": "SSL"}
            quick = {"socket.connection.setup.timeout.ms": "200", "default.api.timeout.ms": "400"}
            with (
                Cluster(ClientSettings.parse({**given, **quick})) as cluster,
                pytest.raises((BrokerAway, NotTrusted), match=reason),
            ):
                cluster.topics()


def test_large_claims_cost_nothing() -> None:
    """An answer that says it has 60 MB, and then has only a few bytes."""
    with fake_broker(say(struct.pack(">i", 60 << 20) + b"abc")) as broker:
        address = Address("127.0.0.1", int(broker.address.split(":")[1]))
        tracemalloc.start()
        try:
            with pytest.raises(TimeoutError):
                connect(address, settings_for(broker.address), None)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 << 20


def test_answers_that_trickle_are_not_waited_for_without_end() -> None:
    over = threading.Event()

    def trickle(connection: socket.socket, request: bytes) -> None:
        connection.sendall(struct.pack(">i", 1000))
        while not over.wait(0.02):
            connection.sendall(b"\0")

    with fake_broker(trickle) as broker:
        try:
            with pytest.raises(TimeoutError, match="no answer to ApiVersions in time"):
                connect(Address("127.0.0.1", int(broker.address.split(":")[1])), settings_for(broker.address), None)
        finally:
            over.set()


def test_a_good_address_among_bad_ones() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with (
        fake_broker(silent) as bad,
        fake_broker(honest_but()) as good,
        Cluster(settings_for(nobody, bad.address, good.address)) as cluster,
    ):
        assert cluster.topics(["t"])["t"].partitions == 1


def test_a_broker_that_knows_only_the_oldest_versions() -> None:
    """It answers our first ApiVersions in version 0, with an error, and we ask again as it can."""

    def old(connection: socket.socket, request: bytes) -> None:
        rows = [ApiVersionsResponseApiVersion(api_key=key, min_version=0, max_version=2) for key in (0, 1, 3, 18)]
        is_new = struct.unpack_from(">h", request, 2)[0] > 2
        error = Error.UNSUPPORTED_VERSION if is_new else Error.NONE
        connection.sendall(
            frame_of(request, ApiVersionsResponse(error_code=error, api_keys=rows), 0 if is_new else None)
        )

    with fake_broker(honest_but(k18=old)) as broker, Cluster(settings_for(broker.address)) as cluster:
        assert cluster.any().versions[METADATA] == (0, 2)
        assert cluster.topics(["t"])["t"].partitions == 1
        with pytest.raises(Refused, match=r"Fetch at the broker .*in versions 0-2, and we know 4-"):
            list(RangeReader(cluster, WHERE, 0, 1, ColumnChoice(), committed=True))
        assert broker.requests.count(API_VERSIONS) == 2


def test_a_broker_that_refuses_the_first_request() -> None:
    def refuse(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, ApiVersionsResponse(error_code=Error.INVALID_REQUEST)))

    with (
        fake_broker(honest_but(k18=refuse)) as broker,
        Cluster(settings_for(broker.address)) as cluster,
        pytest.raises(Refused, match="INVALID_REQUEST"),
    ):
        cluster.topics()


def fetched(records: bytes, error: int = 0) -> FetchResponse:
    partition = FetchResponsePartition(
        partition_index=0, error_code=error, high_watermark=100, last_stable_offset=100, records=records
    )
    return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[partition])])


@pytest.mark.parametrize(
    "records", [b"\xff" * 200, b"\0" * 200, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 4 + b"\2" + b"\0" * 100]
)
def test_records_that_are_none(records: bytes) -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(records)))

    with (
        fake_broker(honest_but(k1=answer)) as broker,
        Cluster(settings_for(broker.address)) as cluster,
        pytest.raises(ColumnarError, match="t"),
    ):
        list(RangeReader(cluster, WHERE, 0, 10, ColumnChoice(), committed=True))


def test_errors_that_do_not_pass_end_in_time() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(b"", Error.NOT_LEADER_OR_FOLLOWER)))

    with fake_broker(honest_but(k1=answer)) as broker, Cluster(settings_for(broker.address)) as cluster:
        with pytest.raises(BrokerAway, match=r"could not read t-0 within 0.6 s: .*NOT_LEADER_OR_FOLLOWER"):
            list(RangeReader(cluster, WHERE, 0, 10, ColumnChoice(), committed=True))
        assert broker.requests.count(METADATA) > 2  # it looked again, each time


def test_errors_that_do_not_exist() -> None:
    def answer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(b"", 9999)))

    with (
        fake_broker(honest_but(k1=answer)) as broker,
        Cluster(settings_for(broker.address)) as cluster,
        pytest.raises(Refused, match=r"could not read t-0: .*UNKNOWN_SERVER_ERROR"),
    ):
        list(RangeReader(cluster, WHERE, 0, 10, ColumnChoice(), committed=True))


def test_older_leader_epochs_are_not_believed() -> None:
    epochs = [5, 3, 3, 6]

    def answer(connection: socket.socket, request: bytes) -> None:
        port = connection.getsockname()[1]
        connection.sendall(frame_of(request, metadata(port, epochs[0] if len(epochs) == 1 else epochs.pop(0))))

    with fake_broker(honest_but(k3=answer)) as broker, Cluster(settings_for(broker.address)) as cluster:
        cluster.leader(WHERE)
        assert cluster.leader_epoch(WHERE) == 5
        cluster.stale(WHERE)
        cluster.leader(WHERE)  # two answers of the past are passed over
        assert cluster.leader_epoch(WHERE) == 6


def test_answers_that_leave_out_what_was_asked() -> None:
    def nothing(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, ANSWERS_WITHOUT_CONTENT[key_of(request)]))

    with (
        fake_broker(honest_but(k2=nothing, k8=nothing, k10=nothing)) as broker,
        Cluster(settings_for(broker.address)) as cluster,
    ):
        with pytest.raises(BrokerAway, match="t-0: its leader does not say"):
            offsets_at(cluster, [WHERE], -1, committed=True)
        with pytest.raises(BrokerAway, match="could not commit offsets to group g"):
            commit_offsets(cluster, "g", {WHERE: 1})
        with pytest.raises(TopicGone):
            cluster.leader(TopicPartition("another", 0))


def test_addresses_that_are_none() -> None:
    def lie(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, metadata(99_999)))

    with (
        fake_broker(honest_but(k3=lie)) as broker,
        Cluster(settings_for(broker.address)) as cluster,
        pytest.raises(BrokerAway, match="99999: this is no address"),
    ):
        cluster.leader(WHERE)


def test_a_broker_that_lags_behind_is_not_the_only_one_asked() -> None:
    """It knows the former leader, which is itself and does not lead any more."""

    def not_leader(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(b"", Error.NOT_LEADER_OR_FOLLOWER)))

    def empty(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(b"")))

    def newer(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, metadata(connection.getsockname()[1], epoch=6)))

    with (
        fake_broker(honest_but(k1=not_leader)) as behind,
        fake_broker(honest_but(k3=newer, k1=empty)) as leader,
        Cluster(settings_for(behind.address)) as cluster,
    ):
        cluster.leader(WHERE)
        cluster.settings = settings_for(behind.address, leader.address)
        assert list(RangeReader(cluster, WHERE, 0, 10, ColumnChoice(), committed=True)) == []
        assert cluster.leader_epoch(WHERE) == 6


def test_a_gap_without_a_batch_is_passed_over_after_a_while() -> None:
    def empty(connection: socket.socket, request: bytes) -> None:
        connection.sendall(frame_of(request, fetched(b"")))

    with fake_broker(honest_but(k1=empty)) as broker, Cluster(settings_for(broker.address)) as cluster:
        reader = RangeReader(cluster, WHERE, 0, 100, ColumnChoice(), committed=True)
        assert list(reader) == []
        assert reader.position == 100
        assert broker.requests.count(FETCH) > 2


def test_a_connection_that_was_closed_while_idle_is_made_anew() -> None:
    with fake_broker(honest_but()) as broker, Cluster(settings_for(broker.address)) as cluster:
        cluster.topics()
        broker._open[0].shutdown(socket.SHUT_RDWR)
        assert cluster.any().ask(MetadataRequest(topics=[]), 1).brokers
        assert broker.connections == 2
