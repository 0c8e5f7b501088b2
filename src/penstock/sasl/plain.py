"""PLAIN (RFC 4616): user and password as they are; for connections with TLS."""

from __future__ import annotations

MECHANISM = "PLAIN"


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
