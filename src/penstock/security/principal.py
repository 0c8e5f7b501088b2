"""Who somebody is, once a connection has been taken: a kind and a name, written `User:alice`."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """Compared letter by letter, the kind as well as the name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """ValueError unless it is `Kind:name`; the name may have colons."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is no principal: it is written as User:alice")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever comes without a login and without a certificate."""
