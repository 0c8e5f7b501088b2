"""How this broker reaches the others on the listener between brokers: TCP, TLS where it has it, and the login.

A login that ends is made again in time on the same connection, as any client does it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from penstock.base.listeners import Listener
from penstock.base.settings import Settings
from penstock.base.tls_settings import TlsFiles, client_context, read_tls
from penstock.base.tls_stream import TlsStream
from penstock.base.world import Stream, World
from penstock.broker.login_settings import OwnLogin, own_login
from penstock.sasl import oauthbearer, plain
from penstock.sasl.exchange import ClientExchange, LoginFailed
from penstock.sasl.oauthbearer import OAuthBearerClient
from penstock.sasl.plain import PlainClient
from penstock.sasl.scram import ScramClient
from penstock.wire.api_declaration import Api
from penstock.wire.messages.k17_sasl_handshake import API as SASL_HANDSHAKE
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from penstock.wire.messages.k36_sasl_authenticate import API as SASL_AUTHENTICATE
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.schema import Message

logger = logging.getLogger(__name__)

NONCE_BYTES = 24
_ROUNDS_MAX = 10
_LIFETIME_USED = 0.8
_HANDSHAKE_VERSION = _AUTHENTICATE_VERSION = 1


class Link(Protocol):
    """A connection on which one can ask."""

    async def ask(self, api: Api, version: int, message: Message, /) -> Any: ...

    def end(self, reason: str) -> None: ...


class InterBroker:
    """See the head of this file. Without a listener everything is plain."""

    def __init__(
        self, world: World, listener: Listener | None = None, settings: Callable[[], Settings] | None = None
    ) -> None:
        self._world = world
        self._listener = listener
        self._settings = settings
        self._tls: tuple[TlsFiles, ssl.SSLContext] | None = None
        self._again: set[asyncio.Task[None]] = set()

    def check(self, settings: Settings) -> None:
        """SettingsError if these settings would not do."""
        assert self._listener is not None
        if self._listener.protocol.has_tls:
            client_context(read_tls(settings.for_listener(self._listener.name)))
        if self._listener.protocol.has_login:
            own_login(settings, self._listener.name)

    async def connect(self, host: str, port: int) -> Stream:
        """OSError if there is no way; whoever waits has a deadline."""
        stream = await self._world.network.connect(host, port)
        if self._listener is None or not self._listener.protocol.has_tls:
            return stream
        secured = TlsStream(stream, self._context(), server_hostname=host, is_server=False)
        await secured.shake_hands()
        return secured

    def _context(self) -> ssl.SSLContext:
        assert self._listener is not None and self._settings is not None
        files = read_tls(self._settings().for_listener(self._listener.name))
        if self._tls is None or self._tls[0] != files:
            self._tls = (files, client_context(files))
        return self._tls[1]

    async def log_in(self, link: Link) -> None:
        """Where the listener asks for it; LoginFailed, or whatever `ask` raises."""
        if self._listener is None or self._settings is None or not self._listener.protocol.has_login:
            return
        login = own_login(self._settings(), self._listener.name)
        chosen = await link.ask(SASL_HANDSHAKE, _HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=login.mechanism))
        if chosen.error_code:
            offered = ", ".join(chosen.mechanisms[:10]) or "none"
            raise LoginFailed(f"the other broker does not offer {login.mechanism}, but {offered}")
        lifetime_s = await self._exchange(link, self._client(login))
        if lifetime_s is not None:
            asyncio.get_running_loop().call_later(lifetime_s * _LIFETIME_USED, self._log_in_again, link)

    async def _exchange(self, link: Link, exchange: ClientExchange) -> float | None:
        message: bytes | None = exchange.first()
        for _ in range(_ROUNDS_MAX):
            answer = await link.ask(
                SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, SaslAuthenticateRequest(auth_bytes=message or b"")
            )
            if answer.error_code:
                raise LoginFailed(f"the other broker refused the login: {answer.error_message}")
            message = exchange.answer(answer.auth_bytes)
            if exchange.is_done:
                return answer.session_lifetime_ms / 1000 if answer.session_lifetime_ms > 0 else None
        raise LoginFailed("the login does not come to an end")

    def _client(self, login: OwnLogin) -> ClientExchange:
        if login.mechanism == plain.MECHANISM:
            return PlainClient(login.user, login.password)
        if login.mechanism == oauthbearer.MECHANISM:
            return OAuthBearerClient(login.token)
        nonce = base64.urlsafe_b64encode(self._world.random.randbytes(NONCE_BYTES)).decode()
        return ScramClient(login.mechanism, login.user, login.password, nonce)

    def _log_in_again(self, link: Link) -> None:
        async def again() -> None:
            try:
                await self.log_in(link)
            except Exception as error:  # of the link, or a refusal: another connection will be made
                logger.info("a connection to another broker ends: %s", error)
                link.end("the login could not be made again")

        task = asyncio.get_running_loop().create_task(again())
        self._again.add(task)
        task.add_done_callback(self._again.discard)
