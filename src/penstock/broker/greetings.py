"""What each listener asks of those who connect: nothing, TLS, a login, or both; and where their answers are checked.

The rules come from the settings, and are read again when those change (`use`): what is wrong then is logged and the
rules stay as they were. A new rule is for new connections.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from penstock.base.listeners import Listener
from penstock.base.settings import Settings, SettingsError
from penstock.base.tls_stream import TlsError, TlsStream
from penstock.base.world import Stream, World
from penstock.broker.bearer_tokens import BearerTokens
from penstock.broker.connection import Connection, Dispatch
from penstock.broker.delegation_tokens import DelegationTokens
from penstock.broker.listener_tls import ListenerTls
from penstock.broker.login_settings import login_rules, plain_users
from penstock.broker.sasl_login import LoginRules, Record, SaslLogin
from penstock.broker.users import Users
from penstock.sasl import oauthbearer, plain, scram
from penstock.sasl.exchange import ServerExchange
from penstock.sasl.oauthbearer import OAuthBearerServer
from penstock.sasl.plain import PlainServer
from penstock.sasl.scram_server import Found, ScramServer
from penstock.security.certificate_names import NoRuleError
from penstock.security.principal import USER, Principal

logger = logging.getLogger(__name__)

NONCE_BYTES = 24
FILES_EVERY_S = 5.0


class ListenerGreeting:
    """Of one listener; see `server.Greeting`."""

    def __init__(
        self,
        listener: Listener,
        world: World,
        settings: Settings,
        users: Users,
        delegated: DelegationTokens,
        behind: Dispatch,
        record: Record,
    ) -> None:
        self._listener = listener
        self._world = world
        self._users = users
        self._delegated = delegated
        self._behind = behind
        self._record = record
        self.tokens: BearerTokens | None = None
        self._rules: LoginRules | None = None
        self._plain_users: dict[str, str] = {}
        self._settings = settings
        self._tls = ListenerTls(listener.name, settings) if listener.protocol.has_tls else None
        self._login_s_max = settings.integer("connection.login.timeout.ms") / 1000
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Take the rules from the settings; SettingsError if they do not make sense, and then nothing is changed."""
        if self._tls is not None:
            self._tls.use(settings)
        if self._listener.protocol.has_login:
            rules = login_rules(settings, self._listener)
            if oauthbearer.MECHANISM in rules.mechanisms and self.tokens is None:
                self.tokens = BearerTokens(self._world, settings, self._listener)
            self._plain_users = plain_users(settings, self._listener.name)
            self._rules = rules
        self._settings = settings

    def look_again(self) -> None:
        """Files may have changed in their places."""
        self.use(self._settings)

    def secured(self, stream: Stream) -> Stream:
        return stream if self._tls is None else self._tls.secured(stream)

    def meet(self, connection: Connection, stream: Stream) -> None:
        if self._rules is not None:
            connection.login = SaslLogin(
                connection,
                self._rules,
                self._exchange,
                self._behind,
                self._world.clock,
                self._record,
                self._delegated.holds,
            )
        if isinstance(stream, TlsStream):
            connection.due_s = self._world.clock.monotonic() + self._login_s_max
            stream.on_ready = partial(self._shown, connection)
            stream.on_failure = partial(self._failed, connection)

    def _shown(self, connection: Connection, stream: TlsStream) -> None:
        """The handshake is done: without a login, the certificate says who the peer is."""
        if self._rules is not None:
            return
        assert self._tls is not None
        connection.due_s = None
        try:
            user = self._tls.user_of(stream)
        except NoRuleError as error:
            self._failed(connection, str(error))
            raise TlsError(str(error)) from None
        if user is None:
            return
        connection.principal = Principal(USER, user)
        self._record("login", principal=str(connection.principal), mechanism="TLS", **self._place(connection))

    def _failed(self, connection: Connection, reason: str) -> None:
        self._record("login_failed", reason=reason, mechanism="TLS", **self._place(connection))

    def _place(self, connection: Connection) -> dict[str, object]:
        return {"listener": connection.listener_name, "peer": connection.peer.host}

    def _exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == plain.MECHANISM:
            return PlainServer(self._plain_users.get)
        if mechanism == oauthbearer.MECHANISM:
            assert self.tokens is not None
            return OAuthBearerServer(self.tokens.judge)
        assert mechanism in scram.HASH_NAMES

        def find(user: str, is_token: bool) -> Found | None:
            if is_token:
                return self._delegated.find(mechanism, user)
            return self._users.find(self._listener.name, mechanism, user)

        return ScramServer(mechanism, find, self._nonce(), self._users.secret, self._users.shapes_of(mechanism))

    def _nonce(self) -> str:
        return base64.urlsafe_b64encode(self._world.random.randbytes(NONCE_BYTES)).decode()


class Rules(Protocol):
    """What a listener asks for, and where it is to be changed."""

    def use(self, settings: Settings) -> None: ...

    def look_again(self) -> None: ...


class Greetings:
    """Of all listeners."""

    def __init__(self, world: World, users: Users, delegated: DelegationTokens, record: Record) -> None:
        self._world = world
        self._users = users
        self._delegated = delegated
        self._record = record
        self._of_listener: dict[str, ListenerGreeting] = {}
        self._others: dict[str, Rules] = {}
        self._told: dict[str, str] = {}  # of each listener, what is wrong with its files

    def of(self, listener: Listener, settings: Settings, behind: Dispatch) -> ListenerGreeting | None:
        """What a new listener asks for; SettingsError if its settings do not make sense."""
        if not (listener.protocol.has_login or listener.protocol.has_tls):
            return None
        greeting = ListenerGreeting(listener, self._world, settings, self._users, self._delegated, behind, self._record)
        self._of_listener[listener.name] = greeting
        return greeting

    def add(self, name: str, rules: Rules) -> None:
        """Those of a listener that is served elsewhere are kept up to date as well."""
        self._others[name] = rules

    def use(self, settings: Settings) -> None:
        """The settings have changed."""
        for name, greeting in (self._of_listener | self._others).items():
            try:
                greeting.use(settings)
            except SettingsError as error:
                logger.error("listener %s keeps its security settings: %s", name, _joined(error.problems))

    async def look_again_forever(self) -> None:
        """Certificates that are replaced in their files are taken over, and keys for tokens fetched."""
        fetching: set[BearerTokens] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for greeting in self._of_listener.values():
                    if greeting.tokens is not None and greeting.tokens not in fetching:
                        fetching.add(greeting.tokens)  # a listener may begin to take tokens at any time
                        tasks.create_task(greeting.tokens.fetch_forever())
                await asyncio.sleep(FILES_EVERY_S)
                self._look_for_certificates()

    def _look_for_certificates(self) -> None:
        for name, greeting in (self._of_listener | self._others).items():
            problem = ""
            try:
                greeting.look_again()
            except SettingsError as error:
                problem = _joined(error.problems)
            if problem and problem != self._told.get(name):
                logger.error("listener %s keeps its certificates: %s", name, problem)
            self._told[name] = problem


def _joined(problems: Iterable[str]) -> str:
    return "; ".join(problems)
