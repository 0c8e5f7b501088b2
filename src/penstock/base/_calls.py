"""The three calls of the operating system that every small request makes: receive, write to the log, send.

Compiled modules that use them get the same from `_calls.pxd`, without what Python's own modules do around the call.
"""

from __future__ import annotations

import os
from socket import socket

from penstock.base.world import Buffer


def receive(connected: socket, fd: int, buffer: Buffer) -> int:
    """Receive what is there; BlockingIOError if that is nothing. `fd` is that of the socket."""
    return connected.recv_into(buffer)


def send(connected: socket, fd: int, data: Buffer) -> int:
    """Send what there is room for; BlockingIOError if that is nothing."""
    return connected.send(data)


def write_at(fd: int, data: Buffer, offset: int) -> int:
    """Write to a place in a file; perhaps not all."""
    return os.pwrite(fd, data, offset)
