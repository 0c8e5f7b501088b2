"""PLAIN (RFC 4616): user and password as they are; for connections with TLS."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from penstock.sasl.exchange import Login, LoginFailed

MECHANISM = "PLAIN"
_MESSAGE_BYTES_MAX = 3 * 1024
_REFUSED = "the user or the password is wrong"
#: Compared with what somebody sends whom nobody knows, so that a known user takes no longer.
_NOBODYS_PASSWORD = "\0 no password has this character"


class PlainClient:
    """The client's side; see `exchange`."""

    mechanism = MECHANISM

    def __init__(self, user: str, password: str) -> None:
        if not user or "\0" in user or "\0" in password:
            raise ValueError("a user must not be empty, and neither user nor password can have a NUL character")
        self._message = f"\0{user}\0{password}".encode()
        self.is_done = False

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> None:
        """The server has nothing to say: that it answers without an error is the consent."""
        self.is_done = True


class PlainServer:
    """The server's side; see `exchange`. `password_of` gives None for users who do not exist."""

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self.claimed = ""
        self.login: Login | None = None
        self._password_of = password_of

    def answer(self, message: bytes) -> bytes:
        if self.login is not None or len(message) > _MESSAGE_BYTES_MAX:
            raise LoginFailed("this is not a message of PLAIN")
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginFailed("this is not a message of PLAIN") from None
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise LoginFailed("a message of PLAIN has a user and a password")
        acts_as, self.claimed, password = parts
        user = self.claimed
        known = self._password_of(user)
        is_right = hmac.compare_digest((_NOBODYS_PASSWORD if known is None else known).encode(), password.encode())
        if known is None or not is_right:
            raise LoginFailed(_REFUSED)
        if acts_as not in ("", user):
            raise LoginFailed("nobody can act as somebody else")
        self.login = Login(user)
        return b""
