"""What a connection can do before its login and after the end of it, byte by byte."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.sasl.scram import ScramClient
from penstock.security.api_rights import API_RIGHTS
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.codec import decode, encode
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

from .secure_broker import PASSWORD, USER, SecureBroker, secure_broker

pytestmark = pytest.mark.clients

NONCE = "n" * 24
LIFETIME_MS = 2000
BEFORE_LOGIN = {17, 18, 36}
DEADLINE_S = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("gate"), connections_max_reauth_ms=str(LIFETIME_MS)) as broker:
        yield broker


class Raw:
    """A plain socket that speaks version 1 of SASL's requests."""

    def __init__(self, broker: SecureBroker) -> None:
        self.socket = socket.create_connection(("localhost", broker.ports["SASL_PLAINTEXT"]), DEADLINE_S)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, message: Any) -> None:
        self.send_frame(struct.pack(">hhih", key, version, 7, -1) + encode(message, version))

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """One frame; None if the broker has closed the connection."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(struct.unpack(">i", head)[0])
        except ConnectionResetError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            if not part:
                return None
            received += part
        return received

    def ask(self, key: int, version: int, message: Any, answer: type[Any]) -> Any:
        self.send(key, version, message)
        frame = self.receive()
        assert frame is not None
        return decode(answer, version, frame, 4)[0]

    def choose(self, mechanism: str = "SCRAM-SHA-256") -> SaslHandshakeResponse:
        chosen: SaslHandshakeResponse = self.ask(
            17, 1, SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse
        )
        return chosen

    def step(self, message: bytes) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.ask(
            36, 1, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
        )
        return answer

    def log_in(self) -> SaslAuthenticateResponse:
        assert self.choose().error_code == 0
        client = ScramClient("SCRAM-SHA-256", USER, PASSWORD, NONCE)
        message: bytes | None = client.first()
        while True:
            answer = self.step(message or b"")
            assert answer.error_code == 0, answer.error_message
            message = client.answer(answer.auth_bytes)
            if client.is_done:
                return answer

    def metadata(self) -> bytes | None:
        self.send(3, 1, MetadataRequest(topics=[]))
        return self.receive()


def test_before_the_login_only_versions_and_the_login(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        versions = raw.ask(18, 0, ApiVersionsRequest(), ApiVersionsResponse)
        assert {17, 36} <= {row.api_key for row in versions.api_keys}
        assert raw.metadata() is None


def test_every_api_but_those_of_the_login_closes_the_connection(broker: SecureBroker) -> None:
    """Whatever else it asks for: who has not logged in learns nothing, not even which APIs there are."""
    for key, rights in API_RIGHTS.items():
        if key in BEFORE_LOGIN:
            assert not rights.rights
            continue
        api = (APIS | OWN_APIS)[key]
        for version in {api.min_version, api.max_version}:
            with Raw(broker) as raw:
                raw.send_frame(struct.pack(">hhih", key, version, 7, -1) + bytes(64))
                assert raw.receive() is None, f"{api.name} {version}"


def test_large_requests_before_the_login_close_the_connection(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        raw.socket.sendall(struct.pack(">i", 600_000) + b"\0\x12\0\0\0\0\0\1")
        assert raw.receive() is None


def test_steps_out_of_turn(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        assert raw.step(b"\0alice\0x").error_code == Error.SASL_AUTHENTICATION_FAILED
        assert raw.receive() is None
    with Raw(broker) as raw:
        refused = raw.choose("GSSAPI")
        assert refused.error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert "SCRAM-SHA-256" in refused.mechanisms
        assert raw.receive() is None


def test_a_refusal_ends_the_connection(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        raw.choose("PLAIN")
        answer = raw.step(b"\0alice\0wrong")
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert raw.receive() is None


def test_messages_without_requests_around_them(broker: SecureBroker) -> None:
    """After a handshake of version 0."""
    with Raw(broker) as raw:
        assert raw.ask(17, 0, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse).error_code == 0
        raw.send_frame(f"\0{USER}\0{PASSWORD}".encode())
        assert raw.receive() == b""
        assert raw.metadata() is not None
    with Raw(broker) as raw:
        raw.ask(17, 0, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        raw.send_frame(b"\0a\0b")
        assert raw.receive() is None


def test_a_login_ends_and_is_made_again(broker: SecureBroker) -> None:
    with Raw(broker) as raw, Raw(broker) as lazy:
        assert 0 < raw.log_in().session_lifetime_ms <= LIFETIME_MS
        lazy.log_in()
        began_s = time.monotonic()
        while (answer := lazy.metadata()) is not None:
            assert time.monotonic() < began_s + DEADLINE_S
        assert answer is None
        assert raw.choose().error_code in (0, Error.ILLEGAL_SASL_STATE)


def test_a_fetch_that_waits_for_longer_than_the_login_lasts_is_told_nothing(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        raw.log_in()
        raw.send(
            19,
            2,
            CreateTopicsRequest(
                topics=[CreateTopicsRequestTopic(name="waiting", num_partitions=1, replication_factor=1)],
                timeout_ms=10_000,
            ),
        )
        assert raw.receive() is not None
        partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchRequestTopic(topic="waiting", partitions=[partition])
        raw.send(1, 4, FetchRequest(max_wait_ms=2 * LIFETIME_MS, min_bytes=1, max_bytes=1000, topics=[topic]))
        assert raw.receive() is None


def test_the_user_stays_the_same(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        raw.log_in()
        assert raw.choose("PLAIN").error_code == Error.UNSUPPORTED_SASL_MECHANISM
        assert raw.receive() is None


def test_the_same_login_again(broker: SecureBroker) -> None:
    with Raw(broker) as raw:
        raw.log_in()
        assert 0 < raw.log_in().session_lifetime_ms <= LIFETIME_MS
        assert raw.choose().error_code == Error.ILLEGAL_SASL_STATE  # not twice in a second
        assert raw.metadata() is not None


@pytest.mark.fuzz
def test_any_bytes_before_the_login(broker: SecureBroker) -> None:
    """Nobody gets in, and others are served."""
    chance = random.Random(8)
    with Raw(broker) as good:
        good.log_in()
        for _ in range(200):
            with Raw(broker) as raw:
                head = struct.pack(">hhih", chance.choice([17, 18, 36, 3]), chance.randrange(4), 1, -1)
                raw.send_frame(head + chance.randbytes(chance.randrange(60)))
                raw.socket.shutdown(socket.SHUT_WR)
                while raw.receive() is not None:
                    pass
    with Raw(broker) as good:
        good.log_in()
        assert good.metadata() is not None
