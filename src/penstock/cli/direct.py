"""Requests that confluent-kafka does not offer, sent with our own codec over a plain socket.

Some commands need them: those for groups, transactions and the cluster (through `cli.cluster`), the defaults of all
brokers (librdkafka refuses the empty name they have), eligible leaders, users, and the versions that a broker serves.
One `DirectClient` is one connection; it asks ApiVersions first and then speaks the highest version that both sides
know. TLS and logins are those of the client settings; `can_ask` says whether we know how to do them.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TypeVar

from penstock import __version__
from penstock.base.errors import Error
from penstock.cli.connection import Connection, parse_addresses
from penstock.cli.direct_security import Security, parse_security
from penstock.cli.failure import ExitCode, Failure
from penstock.sasl.exchange import ClientExchange, LoginFailed
from penstock.wire.codec import decode, encode
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.schema import Message, ProtocolError, schema_of

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 20
API_VERSIONS_KEY = 18
API_VERSIONS_VERSION = 3
CLIENT_ID = b"penstock"
LOGIN_ROUNDS_MAX = 10
REFUSED_ERRORS = {
    Error.CLUSTER_AUTHORIZATION_FAILED,
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Error.DELEGATION_TOKEN_OWNER_MISMATCH,
}

Answer = TypeVar("Answer", bound=Message)


def can_ask(connection: Connection) -> bool:
    """Can we connect in the way that the settings ask for?"""
    try:
        parse_security(connection.settings)
    except Failure:
        return False
    return True


class DirectClient:
    """One connection to one broker, one request at a time."""

    def __init__(
        self, address: tuple[str, int], timeout_s: float = TIMEOUT_S, security: Security | None = None
    ) -> None:
        self._address = address
        security = security or Security()
        try:
            self._socket: socket.socket = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise self._unreachable(error) from error
        self._correlation_id = 0
        try:
            self._socket = self._secured(security)
            self.versions = self._ask_versions()
            if (login := security.login()) is not None:
                self._log_in(login)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> DirectClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._socket.close()

    def ask(
        self, api_key: int, request: Message, answer: type[Answer], *, lowest: int = 0, highest: int = 1 << 15
    ) -> Answer:
        """Sends one request in the highest common version, within the bounds, and waits for its answer."""
        ours = schema_of(type(request)).versions
        served_lowest, served_highest = self.versions.get(api_key, (0, -1))
        fitting = range(min(highest, served_highest), max(lowest, served_lowest) - 1, -1)
        version = next((version for version in fitting if version in ours), None)
        if version is None:
            name = type(request).__name__.removesuffix("Request")
            raise Failure(f"the broker at {self._shown()} does not serve {name}, or in no version that we know")
        return self._exchange(api_key, version, request, answer)

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        answer = self._exchange(API_VERSIONS_KEY, API_VERSIONS_VERSION, request, ApiVersionsResponse)
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _secured(self, security: Security) -> socket.socket:
        try:
            return security.secured(self._socket, self._address[0])
        except OSError as error:
            raise self._unreachable(error) from error

    def _log_in(self, exchange: ClientExchange) -> None:
        what = f"logging in at {self._shown()} with {exchange.mechanism}"
        chosen = self._exchange(17, 1, SaslHandshakeRequest(mechanism=exchange.mechanism), SaslHandshakeResponse)
        if chosen.error_code:
            raise Failure(f"{what}: the listener offers {', '.join(chosen.mechanisms) or 'none'}", ExitCode.REFUSED)
        message: bytes | None = exchange.first()
        for _ in range(LOGIN_ROUNDS_MAX):
            answer = self._exchange(36, 1, SaslAuthenticateRequest(auth_bytes=message or b""), SaslAuthenticateResponse)
            if answer.error_code:
                raise Failure(f"{what}: {error_text(answer.error_code, answer.error_message)}", ExitCode.REFUSED)
            try:
                message = exchange.answer(answer.auth_bytes)
            except LoginFailed as failed:
                raise Failure(f"{what}: {failed}", ExitCode.REFUSED) from None
            if exchange.is_done:
                return
        raise Failure(f"{what}: the broker does not come to an end", ExitCode.REFUSED)

    def _exchange(self, api_key: int, version: int, request: Message, answer: type[Answer]) -> Answer:
        flexible = version in schema_of(type(request)).flexible
        self._correlation_id += 1
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        body = header + (b"\0" if flexible else b"") + encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(body)) + body)
            (size_bytes,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
                raise Failure(f"what answers at {self._shown()} does not speak Kafka's protocol")
            frame = self._receive(size_bytes)
        except OSError as error:
            raise self._unreachable(error) from error
        # An answer's header is flexible where the request is, but for ApiVersions; nobody puts tagged fields in it.
        position = 5 if flexible and api_key != API_VERSIONS_KEY else 4
        try:
            return decode(answer, version, frame, position)[0]
        except ProtocolError as error:
            raise Failure(f"the answer of the broker at {self._shown()} cannot be read: {error}") from error

    def _receive(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            part = self._socket.recv(min(size_bytes - len(received), 1 << 20))
            if not part:
                raise ConnectionResetError("connection closed")
            received += part
        return bytes(received)

    def _shown(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _unreachable(self, error: OSError) -> Failure:
        return Failure(f"no answer from the broker at {self._shown()} ({error})", ExitCode.UNREACHABLE)


def connect_directly(connection: Connection, timeout_s: float = TIMEOUT_S) -> DirectClient:
    """A connection to the first bootstrap broker that answers."""
    security = parse_security(connection.settings)
    connection.reach()
    failure = Failure("no bootstrap brokers given", ExitCode.USAGE)
    for address in parse_addresses(connection.bootstrap):
        try:
            return DirectClient(address, timeout_s, security)
        except Failure as next_failure:
            failure = next_failure
    raise failure


def check_error(code: int, message: str | None, subject: str) -> None:
    """Fails with a sentence if the broker's answer is an error."""
    if code != Error.NONE:
        refused = code in REFUSED_ERRORS
        raise Failure(f"{subject}: {error_text(code, message)}", ExitCode.REFUSED if refused else ExitCode.FAILED)


def error_text(code: int, message: str | None = None) -> str:
    """What the broker says of an error, or else what it means."""
    known = Error._value2member_map_.get(code)
    text = message or (known.text if isinstance(known, Error) else f"error {code}")
    return text.rstrip(".")
