"""What it takes to go on with a session, or to end it, and how it is written down in a broker's folder.

Whoever has it can end the session of a broker that is gone: the broker's watcher, and the broker itself when it starts
again. It is a secret: the file is for its owner alone, and nothing of the password is ever shown.

This module imports next to nothing, because the watcher does.
"""

from __future__ import annotations

import json
from typing import NamedTuple

SESSION_FILE = "session"
LOCK_FILE = "lock"  # beside it; held by whoever may write the session, for as long as the broker runs
VERSION = 1


class Session(NamedTuple):
    """The two things that the coordination service asks for: a secret."""

    session_id: int
    password: bytes

    def __repr__(self) -> str:
        return f"Session({self.session_id:#x})"


NO_SESSION = Session(0, bytes(16))


def encode_session(session: Session) -> bytes:
    content = {"version": VERSION, "session_id": session.session_id, "password": session.password.hex()}
    return json.dumps(content).encode() + b"\n"


def decode_session(content: bytes) -> Session | None:
    """None if the content is none of ours: a session that is not known ends by itself."""
    try:
        found = json.loads(content)
        if found["version"] != VERSION:
            return None
        return Session(int(found["session_id"]), bytes.fromhex(found["password"]))
    except (ValueError, KeyError, TypeError):
        return None
