"""The login of one connection: which mechanism, its messages, and then who the peer is, for as long as that holds.

A connection on a listener with a login begins at a gate: `SaslLogin` itself is where its frames go. The gate lets
ApiVersions and the two requests of SASL pass to the dispatcher, whose handlers come back here, and nothing else. Once
the peer is known, frames go to the dispatcher directly: a login costs later requests nothing.

A login may end (`connections.max.reauth.ms`, a token that expires, a delegation token that was taken away). The client
can log in again on the same connection, at any time before, as the same principal and with the same mechanism. When the
time is over the gate is closed again: the next request that is not a login ends the connection, and so does the answer
to one that has waited for it. A token that is no more ends its connections at once.

After a handshake of version 0 the messages come without a request around them, each just a frame.

A refusal is answered late (`connection.failed.authentication.delay.ms`), and then the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from penstock.base.errors import Error
from penstock.base.world import Clock
from penstock.broker.connection import FRAME_BYTES_MIN, Connection, ConnectionBroken, Dispatch, Response
from penstock.sasl.exchange import Login, LoginFailed, ServerExchange
from penstock.security.principal import USER, Principal
from penstock.wire.messages.k17_sasl_handshake import API as SASL_HANDSHAKE
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeResponse
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k36_sasl_authenticate import API as SASL_AUTHENTICATE
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateResponse

AGAIN_S_MIN = 1.0
_ROUNDS_MAX = 8
_BEFORE_LOGIN = frozenset({SASL_HANDSHAKE.key, API_VERSIONS.key, SASL_AUTHENTICATE.key})
_KEY = Struct(">h")
_SIZE = Struct(">i")


@dataclass(frozen=True, slots=True)
class LoginRules:
    """What a listener asks for, from its settings."""

    mechanisms: tuple[str, ...]
    request_bytes_max: int
    message_bytes_max: int
    again_s: float | None
    failure_delay_s: float
    login_s_max: float


class Record(Protocol):
    """Where logins are written down."""

    def __call__(self, event: str, **fields: object) -> None: ...


class SaslLogin:
    """See the head of this file."""

    def __init__(
        self,
        connection: Connection,
        rules: LoginRules,
        new_exchange: Callable[[str], ServerExchange],
        behind: Dispatch,
        clock: Clock,
        record: Record,
        still_holds: Callable[[str], bool],
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._new_exchange = new_exchange
        self._behind = behind
        self._clock = clock
        self._record = record
        self._still_holds = still_holds  # asked with the id of a delegation token
        self._mechanism = ""  # that was chosen, or logged in with
        self._exchange: ServerExchange | None = None
        self._rounds = 0
        self._is_raw = False
        self._is_refused = False
        self._login: Login | None = None
        self._began_again_s = float("-inf")
        self._ends_s: float | None = None
        self.has_ended = False
        """What waits for news, as a fetch may for long, ends as well"""
        self._frame_bytes_max = connection.frame_bytes_max  # once the peer is known
        self._ask_for_login(connection)

    @property
    def token_id(self) -> str | None:
        """Of the delegation token that was logged in with, if it was one."""
        return self._login.token_id if self._login is not None else None

    def _ask_for_login(self, connection: Connection) -> None:
        connection.due_s = self._clock.monotonic() + self._rules.login_s_max
        connection.frame_bytes_max = min(self._rules.request_bytes_max, connection.frame_bytes_max)
        connection.dispatch_with(self)

    # ── the gate ─────────────────────────────────────────────────────────────────────────────────────────────────

    def __call__(self, connection: Connection, frame: memoryview) -> Response | None:
        if len(frame) > self._rules.request_bytes_max:
            raise ConnectionBroken(f"a request of {len(frame)} bytes before the login")
        if self._is_refused:
            raise ConnectionBroken("a request after a login that was refused")
        if self._is_raw:
            return self._take_raw(bytes(frame))
        if len(frame) >= FRAME_BYTES_MIN and _KEY.unpack_from(frame)[0] in _BEFORE_LOGIN:
            return self._behind(connection, frame)
        if self._login is None:
            raise ConnectionBroken("a request before the login, which this listener asks for")
        raise ConnectionBroken(f"a request of {connection.principal} after the login has ended")

    def check(self, now: float) -> None:
        if self.token_id is not None and not self._still_holds(self.token_id):
            self._connection.close("the delegation token that it logged in with is no more")
        elif self._ends_s is not None and now >= self._ends_s:
            self._ends_s, self.has_ended = None, True
            self._connection.dispatch_with(self)

    # ── the two requests ─────────────────────────────────────────────────────────────────────────────────────────

    def choose(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """The client's choice of a mechanism."""
        if not self._may_begin():
            return SaslHandshakeResponse(error_code=Error.ILLEGAL_SASL_STATE, mechanisms=[])
        offered = list(self._rules.mechanisms)
        if mechanism not in offered:
            self._refused(f"the mechanism {mechanism[:50]!r} is not offered")
            self._close_soon("a mechanism that this listener does not offer")
            return SaslHandshakeResponse(error_code=Error.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        if self._login is not None and mechanism != self._mechanism:
            self._refused("another mechanism than before")
            self._close_soon("another mechanism for a login that is to go on")
            return SaslHandshakeResponse(error_code=Error.UNSUPPORTED_SASL_MECHANISM, mechanisms=[self._mechanism])
        self._mechanism = mechanism
        self._exchange = self._new_exchange(mechanism)
        self._rounds = 0
        if version == 0 and self._login is None:
            self._is_raw, self._connection.frame_bytes_min = True, 0
        return SaslHandshakeResponse(mechanisms=offered)

    def _may_begin(self) -> bool:
        if self._exchange is not None or self._is_refused:
            return False
        if self._login is not None:
            now = self._clock.monotonic()
            if now - self._began_again_s < AGAIN_S_MIN:
                return False
            self._began_again_s = now
        return True

    def step(self, message: bytes) -> SaslAuthenticateResponse:
        """One message of the exchange; LoginFailed if the client is refused."""
        if self._exchange is None or self._is_raw:
            raise LoginFailed("a message of a login that was not begun with SaslHandshake")
        answer = self._advance(message)
        return SaslAuthenticateResponse(
            error_message=None,
            auth_bytes=answer,
            session_lifetime_ms=0 if self._exchange is not None else self._lifetime_ms(),
        )

    def _advance(self, message: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        self._rounds += 1
        if len(message) > self._rules.message_bytes_max or self._rounds > _ROUNDS_MAX:
            raise LoginFailed("the login is longer than this listener accepts (sasl.server.max.receive.size)")
        answer = exchange.answer(message)
        if exchange.login is not None:
            self._admit(exchange.login)
        return answer

    def _take_raw(self, message: bytes) -> Response:
        """A message without a request around it; there is no way to say why somebody is refused."""
        try:
            answer = self._advance(message)
        except LoginFailed as failed:
            self.refuse(failed)
            raise ConnectionBroken(f"a login that was refused: {failed}") from None
        if self._exchange is None:
            self._is_raw, self._connection.frame_bytes_min = False, FRAME_BYTES_MIN
        return _SIZE.pack(len(answer)) + answer

    # ── the outcome ──────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, login: Login) -> None:
        connection = self._connection
        principal = Principal(USER, login.user)
        again = self._login is not None
        if again and principal != connection.principal:
            raise LoginFailed("a login that is to go on must be of the same user")
        ends_s = self._end_of(login)
        self._login, self._exchange, self._ends_s, self.has_ended = login, None, ends_s, False
        connection.principal = principal
        connection.due_s = None
        connection.frame_bytes_max = self._frame_bytes_max
        connection.dispatch_with(self._behind)
        self._record("login", again=again or None, token_id=login.token_id, **self._shown(login.user))

    def _end_of(self, login: Login) -> float | None:
        """When the login ends, on the clock that does not jump; LoginFailed if it has ended already."""
        now = self._clock.monotonic()
        ends_s = now + self._rules.again_s if self._rules.again_s is not None else None
        if login.until_ms is not None:
            left_s = (login.until_ms - self._clock.wall_ms()) / 1000
            if left_s <= 0:
                raise LoginFailed("what was shown has expired")
            ends_s = now + left_s if ends_s is None else min(ends_s, now + left_s)
        return ends_s

    def _lifetime_ms(self) -> int:
        return 0 if self._ends_s is None else max(int((self._ends_s - self._clock.monotonic()) * 1000), 1)

    def refuse(self, failed: LoginFailed) -> float:
        """Write a refusal down; returns after how many seconds it is to be told, and the connection closed."""
        self._refused(str(failed))
        return self._rules.failure_delay_s

    def _refused(self, reason: str) -> None:
        user = self._exchange.claimed if self._exchange is not None else None
        self._exchange, self._is_refused = None, True
        self._connection.dispatch_with(self)
        self._record("login_failed", reason=reason, **self._shown(user))

    def _shown(self, user: str | None) -> dict[str, object]:
        connection = self._connection
        return {
            "principal": f"{USER}:{user}" if user else None,
            "mechanism": self._mechanism or None,
            "listener": connection.listener_name,
            "peer": connection.peer.host,
            "client_id": connection.client_id,
        }

    def _close_soon(self, reason: str) -> None:
        """After the answer that is about to be sent."""
        asyncio.get_running_loop().call_later(self._rules.failure_delay_s, self._connection.close, reason)
