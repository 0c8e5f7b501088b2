"""The client's side of any mechanism: bytes to the server, bytes from it, until both sides are content.

    message = client.first()
    while not client.is_done:
        message = client.answer(send(message))

A mechanism never sees a socket and never makes up a nonce: whoever drives it brings both.
"""

from __future__ import annotations

from typing import Protocol


class LoginFailed(Exception):
    """The server refused the login, or did not prove that it knows the user; the text has no secrets."""


class ClientExchange(Protocol):
    """One login. It is used once."""

    @property
    def mechanism(self) -> str:
        """The name under which it is offered, such as SCRAM-SHA-256."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the server has said all that it must say."""
        ...

    def first(self) -> bytes:
        """What the client sends to begin with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What is sent next, or None if nothing is; LoginFailed if the server's bytes are not acceptable."""
        ...
