"""What each listener asks of those who connect: nothing, TLS, a login, or both; and where their answers are checked.

The rules come from the settings, and are read again when those change (`use`): what is wrong then is logged and the
rules stay as they were. A new rule is for new connections.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable

from penstock.base.listeners import Listener
from penstock.base.settings import Settings, SettingsError
from penstock.base.world import Stream, World
from penstock.broker.connection import Connection, Dispatch
from penstock.broker.login_settings import login_rules, plain_users
from penstock.broker.sasl_login import LoginRules, Record, SaslLogin
from penstock.broker.users import Users
from penstock.sasl import plain, scram
from penstock.sasl.exchange import ServerExchange
from penstock.sasl.plain import PlainServer
from penstock.sasl.scram_server import Found, ScramServer

logger = logging.getLogger(__name__)

NONCE_BYTES = 24


class ListenerGreeting:
    """Of one listener; see `server.Greeting`."""

    def __init__(
        self, listener: Listener, world: World, settings: Settings, users: Users, behind: Dispatch, record: Record
    ) -> None:
        self._listener = listener
        self._world = world
        self._users = users
        self._behind = behind
        self._record = record
        self._rules: LoginRules | None = None
        self._plain_users: dict[str, str] = {}
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Take the rules from the settings; SettingsError if they do not make sense, and then nothing is changed."""
        if self._listener.protocol.has_login:
            rules = login_rules(settings, self._listener)
            self._plain_users = plain_users(settings, self._listener.name)
            self._rules = rules

    def secured(self, stream: Stream) -> Stream:
        return stream

    def meet(self, connection: Connection) -> None:
        if self._rules is not None:
            connection.login = SaslLogin(
                connection, self._rules, self._exchange, self._behind, self._world.clock, self._record
            )

    def _exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == plain.MECHANISM:
            return PlainServer(self._plain_users.get)
        assert mechanism in scram.HASH_NAMES

        def find(user: str, is_token: bool) -> Found | None:
            return None if is_token else self._users.find(self._listener.name, mechanism, user)

        return ScramServer(mechanism, find, self._nonce(), self._users.secret)

    def _nonce(self) -> str:
        return base64.urlsafe_b64encode(self._world.random.randbytes(NONCE_BYTES)).decode()


class Greetings:
    """Of all listeners."""

    def __init__(self, world: World, users: Users, record: Record) -> None:
        self._world = world
        self._users = users
        self._record = record
        self._of_listener: dict[str, ListenerGreeting] = {}

    def of(self, listener: Listener, settings: Settings, behind: Dispatch) -> ListenerGreeting | None:
        """What a new listener asks for; SettingsError if its settings do not make sense."""
        if not (listener.protocol.has_login or listener.protocol.has_tls):
            return None
        greeting = ListenerGreeting(listener, self._world, settings, self._users, behind, self._record)
        self._of_listener[listener.name] = greeting
        return greeting

    def use(self, settings: Settings) -> None:
        """The settings have changed."""
        for name, greeting in self._of_listener.items():
            try:
                greeting.use(settings)
            except SettingsError as error:
                logger.error("listener %s keeps its security settings: %s", name, _joined(error.problems))


def _joined(problems: Iterable[str]) -> str:
    return "; ".join(problems)
