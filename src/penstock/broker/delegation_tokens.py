"""The delegation tokens of the cluster: as logins find them, and as the controller makes, renews and removes them.

Tokens live in `/config/tokens/<id>` (`security/delegation_tokens.py` says what is kept of one: nothing secret). Without
`delegation.token.secret.key` there are none, whatever the znodes have.

A login with a token is one of SCRAM with the token's id as the user and its HMAC as the password. What SCRAM needs for
it is worked out when a token is first used, and remembered for as long as there is the token.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import random_uuid, uuid_to_text
from penstock.base.settings import Settings
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, Plan
from penstock.sasl.exchange import Login
from penstock.sasl.scram import HASH_NAMES
from penstock.sasl.scram_server import Credential, Found, fake_credential, new_credential
from penstock.security.delegation_tokens import (
    Lifetimes,
    Token,
    expired,
    hmac_of,
    new_token,
    renewed,
    stored_values,
    token_of,
)
from penstock.security.principal import Principal
from penstock.zookeeper.znodes import TOKEN_CONFIGS

logger = logging.getLogger(__name__)

TOKENS_PER_REQUESTER_MAX = 5_000
"""Everybody who can log in can make tokens, and each is a znode."""
REMOVED_AT_ONCE_MAX = 1_000
_PREFIX = f"{TOKEN_CONFIGS}/"


class Asked(NamedTuple):
    """A token as somebody asks for it; a lifetime that is not positive is the longest there is."""

    owner: Principal
    requester: Principal
    renewers: Collection[Principal] = ()
    lifetime_ms: int = -1


class DelegationTokens:
    """See the head of this file. `login_secret` is the one from which salts are made."""

    def __init__(
        self, world: World, view: ClusterView, role: ControllerRole, settings: Settings, login_secret: bytes
    ) -> None:
        self._world = world
        self._view = view
        self._role = role
        self._login_secret = login_secret
        self._secret = settings.optional_text("delegation.token.secret.key") or ""
        self._lifetimes = Lifetimes(
            settings.integer("delegation.token.max.lifetime.ms"), settings.integer("delegation.token.expiry.time.ms")
        )
        self._tokens: dict[str, Token] = {}
        self._id_of_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], Credential] = {}  # by mechanism and id
        self._take(name for name in view.configs if name.startswith(_PREFIX))
        view.on_change(self._view_changed)

    @property
    def is_on(self) -> bool:
        return bool(self._secret)

    async def _view_changed(self, change: ViewChange) -> None:
        self._take(name for name in change.configs if name.startswith(_PREFIX))

    def _take(self, names: Iterable[str]) -> None:
        """What the view has of these tokens."""
        if not self.is_on:
            return
        for name in names:
            token_id = name.removeprefix(_PREFIX)
            values = self._view.config_values(TOKEN_CONFIGS, token_id)
            try:
                token = token_of(token_id, values) if values else None
            except ValueError as error:
                logger.error("%s", error)
                token = None
            if token is not None:
                self._tokens[token_id] = token
                self._id_of_hmac[self.hmac_of(token)] = token_id
            elif (gone := self._tokens.pop(token_id, None)) is not None:
                self._forget(gone)

    def _forget(self, token: Token) -> None:
        del self._id_of_hmac[self.hmac_of(token)]
        for mechanism in HASH_NAMES:
            self._credentials.pop((mechanism, token.token_id), None)

    # ── for logins ───────────────────────────────────────────────────────────────────────────────────────────────

    def find(self, mechanism: str, token_id: str) -> Found | None:
        """A token's credential, and whose login it is; None if there is no such token."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            salt = fake_credential(mechanism, token_id, self._login_secret).salt
            credential = new_credential(mechanism, b64encode(self.hmac_of(token)).decode(), salt)
            self._credentials[mechanism, token_id] = credential
        until_ms = min(token.expires_ms, token.max_ms)
        return Found(credential, Login(token.owner.name, until_ms=until_ms, token_id=token_id))

    def holds(self, token_id: str) -> bool:
        """Whether a token that was logged in with is still one."""
        token = self._tokens.get(token_id)
        return token is not None and not token.has_expired(self._world.clock.wall_ms())

    # ── for those who ask ────────────────────────────────────────────────────────────────────────────────────────

    def check_is_on(self) -> None:
        if not self.is_on:
            raise ApiError(Error.DELEGATION_TOKEN_AUTH_DISABLED)

    def hmac_of(self, token: Token) -> bytes:
        return hmac_of(self._secret, token.token_id)

    def all(self) -> list[Token]:
        """The oldest first; those that have expired and were not removed yet are there as well."""
        return sorted(self._tokens.values(), key=lambda token: (token.issued_ms, token.token_id))

    # ── at the controller ────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, asked: Asked) -> Token:
        """A new token; ApiError."""
        token_id = uuid_to_text(random_uuid(self._world.random))
        now_ms = self._world.clock.wall_ms()
        token = new_token(token_id, *asked, self._lifetimes, now_ms)
        if sum(each.requester == asked.requester for each in self._tokens.values()) >= TOKENS_PER_REQUESTER_MAX:
            raise ApiError(Error.POLICY_VIOLATION, f"more than {TOKENS_PER_REQUESTER_MAX} tokens of one user")
        await self._role.decide(lambda _state: [self._write(token)])
        return token

    async def renew(self, shown_hmac: bytes, by: Principal, period_ms: int) -> Token:
        """The token with its new end; ApiError."""
        now_ms = self._world.clock.wall_ms()
        return await self._change(shown_hmac, lambda token: renewed(token, by, period_ms, self._lifetimes, now_ms))

    async def expire(self, shown_hmac: bytes, by: Principal, period_ms: int) -> Token:
        """The token with its new end, which may be now; ApiError."""
        now_ms = self._world.clock.wall_ms()
        token = await self._change(shown_hmac, lambda token: expired(token, by, period_ms, now_ms))
        return replace(token, expires_ms=now_ms) if period_ms < 0 else token

    async def remove_expired(self) -> list[Token]:
        """Some of those that have expired, and are removed."""
        now_ms = self._world.clock.wall_ms()
        removed: list[Token] = []

        def decide(_state: ClusterState) -> list[Plan]:
            removed[:] = [token for token in self.all() if token.has_expired(now_ms)][:REMOVED_AT_ONCE_MAX]
            return [self._remove(token) for token in removed]

        await self._role.decide(decide)
        return removed

    async def _change(self, shown_hmac: bytes, change: Callable[[Token], Token | None]) -> Token:
        """The token as it is after a change, or as it was if that removes it."""
        changed: list[Token] = []

        def decide(_state: ClusterState) -> list[Plan]:
            token_id = self._id_of_hmac.get(shown_hmac)
            if token_id is None:
                raise ApiError(Error.DELEGATION_TOKEN_NOT_FOUND)
            token = self._tokens[token_id]
            after = change(token)
            changed[:] = [after or token]
            return [self._remove(token) if after is None else self._write(after)]

        await self._role.decide(decide)
        return changed[0]

    def _write(self, token: Token) -> Plan:
        version = self._view.config_version(TOKEN_CONFIGS, token.token_id)
        return set_configs(TOKEN_CONFIGS, token.token_id, stored_values(token), version)

    def _remove(self, token: Token) -> Plan:
        return set_configs(TOKEN_CONFIGS, token.token_id, {}, self._view.config_version(TOKEN_CONFIGS, token.token_id))
