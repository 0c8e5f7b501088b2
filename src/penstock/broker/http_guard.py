"""Who asks over HTTP, and whether they may: the same users, certificates and rules as on the listeners for clients.

`metrics.security.protocol` says it in the same words as for other listeners, and their settings can be given for this
one alone, as `listener.name.metrics.…`:

- `SSL`: TLS; with `ssl.client.auth=required` the certificate is the login.
- `SASL_SSL` (and without TLS `SASL_PLAINTEXT`): a user's name and password, by HTTP basic authentication, checked
  against the users with SCRAM and those that PLAIN has on this listener.

Beside them `metrics.login` is a name and a password for this purpose alone; whoever has it needs no rights.

HTTP sends the password itself, so that what SCRAM keeps has to be made from it at each request. That is some
milliseconds of work on purpose: it is done beside the loop, one at a time, and the same for users who do not exist.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address

from penstock.base.listeners import Listener, SecurityProtocol
from penstock.base.settings import Settings, SettingsError
from penstock.base.tls_stream import TlsStream
from penstock.base.world import Address, Stream, World
from penstock.broker.audit_log import Record
from penstock.broker.listener_tls import ListenerTls
from penstock.broker.login_settings import plain_users
from penstock.broker.rights import Rights
from penstock.broker.users import Users
from penstock.sasl import plain, scram
from penstock.sasl.exchange import LoginFailed
from penstock.sasl.plain import PlainServer
from penstock.sasl.scram_server import is_password
from penstock.security.certificate_names import NoRuleError
from penstock.security.principal import USER, Principal

LISTENER_NAME = "METRICS"
_PROTOCOL = "metrics.security.protocol"
_WRONG = "the user or the password is wrong"


class HttpGuard:
    """See the head of this file. SettingsError if the settings do not make sense."""

    def __init__(self, where: Address, world: World, settings: Settings, users: Users, rights: Rights, record: Record):
        protocol = SecurityProtocol[settings.text(_PROTOCOL)]
        self._listener = Listener(LISTENER_NAME, protocol, where, where)
        self._world = world
        self._users = users
        self._rights = rights
        self._record = record
        self._settings = settings
        self._turn = asyncio.Lock()
        self._own_login = settings.optional_text("metrics.login") or None
        self._tls = ListenerTls(LISTENER_NAME, settings) if protocol.has_tls else None
        self._mechanisms: list[str] = []
        self._plain_users: dict[str, str] = {}
        self._failure_delay_s = 0.0
        self._is_open = False
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Take the rules from the settings, as they are now; SettingsError, and then nothing is changed."""
        mechanisms = settings.for_listener(LISTENER_NAME).list("sasl.enabled.mechanisms")
        of_plain = plain_users(settings, LISTENER_NAME) if plain.MECHANISM in mechanisms else {}
        self._check(settings)
        if self._tls is not None:
            self._tls.use(settings)
        self._is_open = self._needs_no_login(settings)  # and on loopback
        self._mechanisms, self._plain_users = mechanisms, of_plain
        self._failure_delay_s = settings.integer("connection.failed.authentication.delay.ms") / 1000
        self._settings = settings

    def look_again(self) -> None:
        """Files may have changed in their places."""
        self.use(self._settings)

    def _check(self, settings: Settings) -> None:
        where, protocol = self._listener.bind, self._listener.protocol
        of_listener = settings.for_listener(LISTENER_NAME)
        if self._own_login is not None and ":" not in self._own_login:
            raise SettingsError(["metrics.login is a user and a password, as user:password"])
        if _is_loopback(where.host):
            return
        if self._needs_no_login(settings):
            raise SettingsError(
                [
                    f"metrics.listener={where} may be reached from other machines: give metrics.login or {_PROTOCOL}, "
                    "too, or use 127.0.0.1"
                ]
            )
        if protocol is SecurityProtocol.SASL_PLAINTEXT and not of_listener.flag("sasl.plain.without.tls.enable"):
            raise SettingsError(
                [
                    f"{_PROTOCOL}=SASL_PLAINTEXT would send users' passwords over connections without TLS; use "
                    "SASL_SSL, or allow it with listener.name.metrics.sasl.plain.without.tls.enable=true"
                ]
            )

    def _needs_no_login(self, settings: Settings) -> bool:
        protocol = self._listener.protocol
        certificate = settings.for_listener(LISTENER_NAME).text("ssl.client.auth") if protocol.has_tls else "none"
        return self._own_login is None and not protocol.has_login and certificate != "required"

    # ── those who come ───────────────────────────────────────────────────────────────────────────────────────────

    def secured(self, stream: Stream) -> Stream:
        return stream if self._tls is None else self._tls.secured(stream)

    async def meet(self, stream: Stream, given: str | None) -> Callable[[str], bool] | None:
        """Who it is, by the certificate or by what was given as `user:password`: what that one may ask for, as a
        question about a path; None for whoever has to log in first."""
        if self._is_own_login(given):
            return _may_everything
        if self._listener.protocol.has_login:
            principal = None if given is None else await self._user_of(stream, given)
        else:
            principal = await self._shown_by(stream)
        if principal is not None:
            return partial(self._rights.allows_route, principal, stream.peer.host)
        if self._is_open:
            return _may_everything
        if self._own_login is not None and not self._listener.protocol.has_login and given is not None:
            await self._refuse(stream, _WRONG, given.partition(":")[0])
        return None

    def _is_own_login(self, given: str | None) -> bool:
        if self._own_login is None or given is None:
            return False
        return hmac.compare_digest(given.encode(), self._own_login.encode())

    async def _shown_by(self, stream: Stream) -> Principal | None:
        """The user whom the certificate names."""
        if self._tls is None or not isinstance(stream, TlsStream):
            return None
        try:
            user = self._tls.user_of(stream)
        except NoRuleError as error:
            await self._refuse(stream, str(error))
            return None
        return None if user is None else Principal(USER, user)

    async def _user_of(self, stream: Stream, given: str) -> Principal | None:
        user, _, password = given.partition(":")
        is_user = await self._is_scram_user(user, password)
        if not is_user and not self._is_plain_user(user, password):
            await self._refuse(stream, _WRONG, user)
            return None
        return Principal(USER, user)

    def _is_plain_user(self, user: str, password: str) -> bool:
        try:
            PlainServer(self._plain_users.get).answer(f"\0{user}\0{password}".encode())
        except LoginFailed:
            return False
        return True

    async def _is_scram_user(self, user: str, password: str) -> bool:
        found = [
            (mechanism, self._users.find(LISTENER_NAME, mechanism, user))
            for mechanism in self._mechanisms
            if mechanism in scram.HASH_NAMES
        ]

        def is_right() -> bool:
            matches = False
            for mechanism, known in found:
                credential = self._users.made_up(mechanism, user) if known is None else known.credential
                matches |= is_password(mechanism, credential, password) and known is not None
            return matches

        async with self._turn:
            return await self._world.disk.run("read", is_right)

    async def _refuse(self, stream: Stream, reason: str, user: str | None = None) -> None:
        self._record(
            "login_failed",
            reason=reason,
            principal=f"{USER}:{user}" if user else None,
            mechanism="HTTP",
            listener=LISTENER_NAME,
            peer=stream.peer.host,
        )
        await asyncio.sleep(self._failure_delay_s)


def _may_everything(_path: str) -> bool:
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
