"""Delegation tokens (KIP-48): short-lived logins that a user hands to others, who then act as that user.

A token has an owner, as whom its holder acts; a requester, who asked for it; and renewers, who may prolong and end it
as the owner may. It ends at `expires_ms`, which can be moved, but never past `max_ms`.

Nothing secret is kept of a token. What its holder shows is the HMAC of its id under a secret that only the brokers have
(`delegation.token.secret.key`), and every broker works it out for itself.

The rules, and the order in which they are asked, are those of Kafka's controller. Times are milliseconds since 1970.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.base.errors import ApiError, Error
from penstock.security.principal import USER, Principal

TIME_MS_MAX = (1 << 63) - 1
RENEWERS_MAX = 200
NAME_LENGTH_MAX = 1000


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long tokens live: at most, and without being renewed."""

    max_ms: int
    renewal_ms: int


@dataclass(frozen=True, slots=True)
class Token:
    """All that is kept of a token."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def has_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Whether somebody may renew and expire it: who only asked for it on behalf of its owner may not."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principals: Collection[Principal]) -> bool:
        """Whether any of these has to do with it, and so may see it; give a set where there may be many."""
        return any(each in principals for each in (self.owner, self.requester, *self.renewers))


def hmac_of(secret: str, token_id: str) -> bytes:
    """What the holder of a token shows; as the password of a login it is written in base64."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Collection[Principal],
    asked_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> Token:
    """A lifetime that is not positive is the longest there is; ApiError for an owner or renewer that cannot be."""
    if any(principal.kind != USER for principal in (owner, *renewers)):
        raise ApiError(Error.INVALID_PRINCIPAL_TYPE, "owners and renewers of tokens are users")
    if len(renewers) > RENEWERS_MAX or any(len(each.name) > NAME_LENGTH_MAX for each in (owner, *renewers)):
        raise ApiError(
            Error.POLICY_VIOLATION,
            f"a token has at most {RENEWERS_MAX} renewers, with names of at most {NAME_LENGTH_MAX} characters",
        )
    lifetime_ms = min(asked_lifetime_ms, lifetimes.max_ms) if asked_lifetime_ms > 0 else lifetimes.max_ms
    max_ms = min(now_ms + lifetime_ms, TIME_MS_MAX)
    expires_ms = min(max_ms, now_ms + lifetimes.renewal_ms)
    return Token(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expires_ms)


def renewed(token: Token, by: Principal, period_ms: int, lifetimes: Lifetimes, now_ms: int) -> Token:
    """With a later end; a period that is not positive is the usual one."""
    if token.has_expired(now_ms):
        raise ApiError(Error.DELEGATION_TOKEN_EXPIRED)
    _check_changed_by(token, by)
    lasts_ms = min(period_ms, lifetimes.renewal_ms) if period_ms > 0 else lifetimes.renewal_ms
    return replace(token, expires_ms=min(token.max_ms, now_ms + lasts_ms))


def expired(token: Token, by: Principal, period_ms: int, now_ms: int) -> Token | None:
    """With an end after this period; None if it is negative: the token is to be removed at once."""
    _check_changed_by(token, by)
    if period_ms < 0:
        return None
    if token.has_expired(now_ms):
        raise ApiError(Error.DELEGATION_TOKEN_EXPIRED)
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def _check_changed_by(token: Token, principal: Principal) -> None:
    if not token.may_be_changed_by(principal):
        raise ApiError(Error.DELEGATION_TOKEN_OWNER_MISMATCH)


# ── as it is stored ──────────────────────────────────────────────────────────────────────────────────────────────────


def stored_values(token: Token) -> dict[str, str]:
    """The content of a token's znode, which is called after its id."""
    return {
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": json.dumps([str(each) for each in token.renewers]),
        "issued_ms": str(token.issued_ms),
        "max_ms": str(token.max_ms),
        "expires_ms": str(token.expires_ms),
    }


def token_of(token_id: str, values: Mapping[str, str]) -> Token:
    """ValueError if that is not the content of a token."""
    try:
        return Token(
            token_id,
            _principal(values["owner"]),
            _principal(values["requester"]),
            tuple(map(_principal, json.loads(values["renewers"]))),
            int(values["issued_ms"]),
            int(values["max_ms"]),
            int(values["expires_ms"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the token {token_id!r} cannot be read: {error!r}") from None


def _principal(text: str) -> Principal:
    """Kafka takes renewers without a name, so they are kept; nobody can log in as one."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
