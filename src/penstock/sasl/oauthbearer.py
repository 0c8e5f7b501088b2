"""OAUTHBEARER (RFC 7628): a token in place of a name and a password. What a token is worth is judged elsewhere.

The client sends a token that it was given; nothing is fetched, and the token is not looked into. A server that refuses
one says so in JSON, and the client sends one byte more before the login has failed: the RFC wants it so.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.sasl.exchange import Login, LoginFailed

MECHANISM = "OAUTHBEARER"

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, 2.1
_SEPARATOR = "\x01"
_ERROR_SHOWN_MAX = 300
_MESSAGE_BYTES_MAX = 64 * 1024
_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01", re.DOTALL)
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9\-._~+/]+=*)")
_INVALID_TOKEN = b'{"status":"invalid_token"}'
_NOT_OURS = "this is not a message of OAUTHBEARER"


class OAuthBearerClient:
    """The client's side; see `exchange`."""

    mechanism = MECHANISM

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise ValueError("a bearer token has letters, digits and -._~+/ only")
        self._message = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()
        self.is_done = False

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> None:
        """Empty is consent; otherwise it is the server's reason, in JSON."""
        if challenge:
            raise LoginFailed(f"the token was refused: {challenge[:_ERROR_SHOWN_MAX].decode(errors='replace')}")
        self.is_done = True


class OAuthBearerServer:
    """The server's side; see `exchange`. `judge` says whose token it is, or raises LoginFailed."""

    def __init__(self, judge: Callable[[str], Login]) -> None:
        self.claimed = ""  # nothing in a token is believed before its signature
        self.login: Login | None = None
        self._judge = judge
        self._refused: LoginFailed | None = None

    def answer(self, message: bytes) -> bytes:
        if self._refused is not None:
            raise self._refused
        token, authzid = _read(message)
        try:
            login = self._judge(token)
            if authzid not in ("", login.user):
                raise LoginFailed("nobody can act as somebody else")
        except LoginFailed as refused:
            self._refused = refused
            return _INVALID_TOKEN
        self.login, self.claimed = login, login.user
        return b""


def _read(message: bytes) -> tuple[str, str]:
    """The token, and whom the client wants to act as."""
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LoginFailed(_NOT_OURS)
    try:
        first = _FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        raise LoginFailed(_NOT_OURS) from None
    if first is None:
        raise LoginFailed(_NOT_OURS)
    pairs = [pair.partition("=") for pair in first["pairs"].split(_SEPARATOR) if pair]
    given = [value for name, _, value in pairs if name.lower() == "auth"]
    bearer = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if bearer is None:
        raise LoginFailed(_NOT_OURS)
    return bearer[1], first["authzid"] or ""
