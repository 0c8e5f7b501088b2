"""The two mechanisms of one message."""

from __future__ import annotations

import pytest

from penstock.sasl.exchange import ClientExchange, LoginFailed
from penstock.sasl.oauthbearer import OAuthBearerClient
from penstock.sasl.plain import PlainClient


def test_plain_is_user_and_password() -> None:
    login: ClientExchange = PlainClient("alice", "päss")
    assert login.first() == b"\0alice\0p\xc3\xa4ss"
    assert login.answer(b"") is None
    assert login.is_done


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("a\0b", "x"), ("a", "x\0y")])
def test_plain_cannot_carry_everything(user: str, password: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        PlainClient(user, password)


def test_bearer_is_the_token() -> None:
    login: ClientExchange = OAuthBearerClient("abc.def-1==")
    assert login.first() == b"n,,\x01auth=Bearer abc.def-1==\x01\x01"
    assert login.answer(b"") is None
    assert login.is_done


def test_bearer_is_told_why_it_was_refused() -> None:
    with pytest.raises(LoginFailed, match="invalid_token"):
        OAuthBearerClient("abc").answer(b'{"status":"invalid_token"}')


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "é"])
def test_bearer_takes_tokens_only(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        OAuthBearerClient(token)
