"""Ends the session of a broker that is gone, at its ZooKeeper, so that nobody waits for its timeout.

Plain blocking sockets and two kinds of frames, written by hand: this is all that a watcher ever says to ZooKeeper, and
with the client that brokers use it would be twice as large in memory. To attach to a session one sends its id and
password; the answer has a timeout of 0 if there is no such session any more. Then one sends the request that closes it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterable, Sequence

from penstock.zookeeper.session import LOCK_FILE, SESSION_FILE, Session, decode_session

Server = tuple[str, int]

ASKED_TRIES_S = 2.0  # how long it is tried where somebody waits for us to end
TRY_S_MAX = 1.0
PAUSE_S = 0.05
FRAME_BYTES_MAX = 1 << 16
CLOSE_XID = 1
CLOSE_OPERATION = -11

_LENGTH = struct.Struct(">i")
_CONNECT = struct.Struct(">iqiqi")  # protocol, last zxid seen, timeout, session id, length of password
_CONNECTED = struct.Struct(">iiq")  # protocol, timeout, session id
_HEADER = struct.Struct(">ii")  # xid, operation
_REPLY = struct.Struct(">iqi")  # xid, zxid, error


def end_session_of(folder: str, servers: Sequence[Server], *, timeout_ms: int, tries_s: float) -> bool:
    """Both together: True if the folder's last broker has surely no session any more."""
    session = read_session(folder)
    if session is None:
        return True
    return end_session(servers, session, timeout_ms=timeout_ms, tries_s=tries_s)


def read_session(folder: str) -> Session | None:
    """The session that the folder's last broker had; None if there is none, or if a broker has the folder now.

    That one ends the old session itself, and what is written there is, or soon will be, its own.
    """
    try:
        lock = os.open(f"{folder}/{LOCK_FILE}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(f"{folder}/{SESSION_FILE}", "rb") as file:
            return decode_session(file.read())
    except OSError:
        return None
    finally:
        os.close(lock)


def end_session(servers: Sequence[Server], session: Session, *, timeout_ms: int, tries_s: float) -> bool:
    """Ask one server after the other until one says that the session is over; False if none did for `tries_s`."""
    deadline_s = time.monotonic() + tries_s
    while True:
        for host, port in servers:
            left_s = deadline_s - time.monotonic()
            try:
                with socket.create_connection((host, port), timeout=max(min(left_s, TRY_S_MAX), PAUSE_S)) as server:
                    _end_at(server, session, timeout_ms)
                    return True
            except OSError:
                if left_s <= 0:
                    return False
        time.sleep(PAUSE_S)


def _end_at(server: socket.socket, session: Session, timeout_ms: int) -> None:
    """OSError unless this server has said that the session is over."""
    asked = _CONNECT.pack(0, 0, timeout_ms, session.session_id, len(session.password))
    _send(server, (asked, session.password, b"\0"))
    _, granted_ms, _ = _CONNECTED.unpack_from(_receive(server, _CONNECTED.size))
    if granted_ms <= 0:
        return
    _send(server, (_HEADER.pack(CLOSE_XID, CLOSE_OPERATION),))
    while True:
        xid, _, error = _REPLY.unpack_from(_receive(server, _REPLY.size))
        if xid == CLOSE_XID:
            if error:
                raise ConnectionError(f"the session could not be closed: error {error}")
            return


def _send(server: socket.socket, parts: Iterable[bytes]) -> None:
    body = b"".join(parts)
    server.sendall(_LENGTH.pack(len(body)) + body)


def _receive(server: socket.socket, size_min: int) -> bytes:
    """One frame."""
    (size,) = _LENGTH.unpack(_receive_all(server, _LENGTH.size))
    if not size_min <= size <= FRAME_BYTES_MAX:
        raise ConnectionError(f"a frame of {size} bytes is not an answer of ZooKeeper")
    return _receive_all(server, size)


def _receive_all(server: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = server.recv(count - len(received))
        if not piece:
            raise ConnectionError("the connection was closed")
        received += piece
    return received
