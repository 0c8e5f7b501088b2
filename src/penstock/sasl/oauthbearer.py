"""OAUTHBEARER (RFC 7628) with a token that was given: nothing is fetched and the token is not looked into."""

from __future__ import annotations

import re

from penstock.sasl.exchange import LoginFailed

MECHANISM = "OAUTHBEARER"

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750, 2.1
_SEPARATOR = "\x01"
_ERROR_SHOWN_MAX = 300


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
