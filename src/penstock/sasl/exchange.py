"""Either side of any mechanism: bytes from one to the other and back, until both are content.

    message = client.first()
    while not client.is_done:
        message = client.answer(send(message))

The server's side answers each message of the client, until it knows who that is:

    while server.login is None:
        send(server.answer(receive()))

A mechanism never sees a socket, a clock or a user store, and never makes up a nonce: whoever drives it brings them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LoginFailed(Exception):
    """One side refused the other, or did not prove what it had to; the text has no secrets."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who has logged in; `until_ms` (since 1970) if what they showed holds only so long."""

    user: str
    until_ms: int | None = None
    token_id: str | None = None
    """Of the delegation token that was used in place of a password."""


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


class ServerExchange(Protocol):
    """The same login as the server has it."""

    @property
    def claimed(self) -> str:
        """Who the client says to be; empty before it has."""
        ...

    @property
    def login(self) -> Login | None:
        """Who it is, once that is proven."""
        ...

    def answer(self, message: bytes) -> bytes:
        """What is sent back; LoginFailed if the client is refused, always with the same text for the same reason
        whether or not there is such a user."""
        ...
