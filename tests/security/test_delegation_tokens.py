"""The rules of delegation tokens, and what is kept of one."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.security.delegation_tokens import (
    RENEWERS_MAX,
    TIME_MS_MAX,
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

ALICE, BOB, CAROL, DORA = (Principal("User", name) for name in ("alice", "bob", "carol", "dora"))
LIFETIMES = Lifetimes(max_ms=1000, renewal_ms=100)
NOW_MS = 5000


def made(lifetime_ms: int = -1, lifetimes: Lifetimes = LIFETIMES) -> Token:
    """Alice's; Bob may renew it, and Carol asked for it."""
    return new_token("id", ALICE, CAROL, [BOB], lifetime_ms, lifetimes, NOW_MS)


def error_of(*arguments: object) -> Error:
    change, *rest = arguments
    with pytest.raises(ApiError) as refused:
        change(*rest)  # type: ignore[operator]
    return refused.value.error


@pytest.mark.parametrize(
    "asked_ms, max_ms, expires_ms", [(-1, 1000, 100), (0, 1000, 100), (50, 50, 50), (9999, 1000, 100)]
)
def test_how_long_a_token_lives(asked_ms: int, max_ms: int, expires_ms: int) -> None:
    token = made(asked_ms)
    assert (token.issued_ms, token.max_ms, token.expires_ms) == (NOW_MS, NOW_MS + max_ms, NOW_MS + expires_ms)
    assert not token.has_expired(token.expires_ms) and token.has_expired(token.expires_ms + 1)


def test_times_do_not_overflow() -> None:
    endless = Lifetimes(TIME_MS_MAX, TIME_MS_MAX)
    token = made(TIME_MS_MAX, endless)
    assert token.max_ms == token.expires_ms == TIME_MS_MAX
    assert renewed(token, ALICE, TIME_MS_MAX, endless, NOW_MS).expires_ms == TIME_MS_MAX


def test_who_has_to_do_with_a_token() -> None:
    token = made()
    assert [token.may_be_changed_by(each) for each in (ALICE, BOB, CAROL, DORA)] == [True, True, False, False]
    assert [token.concerns([each]) for each in (ALICE, BOB, CAROL, DORA)] == [True, True, True, False]
    for other in (CAROL, DORA):
        assert error_of(renewed, token, other, -1, LIFETIMES, NOW_MS) == Error.DELEGATION_TOKEN_OWNER_MISMATCH
        assert error_of(expired, token, other, -1, NOW_MS) == Error.DELEGATION_TOKEN_OWNER_MISMATCH


def test_renewing() -> None:
    token = made()
    later_ms = NOW_MS + 60
    assert renewed(token, BOB, -1, LIFETIMES, later_ms).expires_ms == later_ms + 100
    assert renewed(token, ALICE, 30, LIFETIMES, later_ms).expires_ms == later_ms + 30
    assert renewed(token, ALICE, 9999, LIFETIMES, later_ms).expires_ms == later_ms + 100
    old = token_of("id", stored_values(token) | {"expires_ms": str(token.max_ms)})
    assert renewed(old, ALICE, -1, LIFETIMES, token.max_ms).expires_ms == token.max_ms
    over_ms = token.expires_ms + 1
    assert error_of(renewed, token, DORA, -1, LIFETIMES, over_ms) == Error.DELEGATION_TOKEN_EXPIRED


def test_expiring() -> None:
    token = made()
    assert expired(token, BOB, -1, NOW_MS) is None
    assert expired(token, ALICE, -1, token.expires_ms + 1) is None, "what has expired can still be removed"
    sooner = expired(token, ALICE, 20, NOW_MS)
    assert sooner is not None and sooner.expires_ms == NOW_MS + 20
    longest = expired(token, ALICE, TIME_MS_MAX, NOW_MS)
    assert longest is not None and longest.expires_ms == token.max_ms
    assert error_of(expired, token, ALICE, 20, token.expires_ms + 1) == Error.DELEGATION_TOKEN_EXPIRED


def test_owners_and_renewers_are_users_and_not_too_many() -> None:
    group = Principal("Group", "root")
    for owner, renewers in ((group, []), (ALICE, [group])):
        refused = error_of(new_token, "id", owner, ALICE, renewers, -1, LIFETIMES, NOW_MS)
        assert refused == Error.INVALID_PRINCIPAL_TYPE
    many = [BOB] * (RENEWERS_MAX + 1)
    assert error_of(new_token, "id", ALICE, ALICE, many, -1, LIFETIMES, NOW_MS) == Error.POLICY_VIOLATION


def test_the_hmac_is_that_of_the_id_under_the_secret() -> None:
    assert hmac_of("secret", "id") == hmac.new(b"secret", b"id", hashlib.sha512).digest()


NAMES = st.text(max_size=20)


@given(NAMES, NAMES, st.lists(NAMES, max_size=4), st.integers(0, TIME_MS_MAX))
def test_what_is_kept_is_what_was_made(owner: str, requester: str, renewers: list[str], time_ms: int) -> None:
    users = [Principal("User", name) for name in renewers]
    token = Token("id", Principal("User", owner), Principal("User", requester), tuple(users), time_ms, time_ms, 0)
    assert token_of("id", stored_values(token)) == token


@pytest.mark.parametrize("broken", [{}, {"owner": "User:a"}, {"renewers": "3"}, {"renewers": "["}, {"max_ms": "soon"}])
def test_what_cannot_be_read_is_an_error(broken: dict[str, str]) -> None:
    values = stored_values(made()) | broken if len(broken) == 1 and "owner" not in broken else broken
    with pytest.raises(ValueError):
        token_of("id", values)
