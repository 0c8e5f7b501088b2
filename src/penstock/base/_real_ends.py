"""What every small request needs of this machine's files and sockets: the upper halves of `RealFile` and `RealStream`.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_real_ends.pxd`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from socket import socket

from penstock.base import _calls
from penstock.base.world import Buffer


class FileEnd:
    """The upper half of `RealFile`."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        if offset < 0:  # -1 would mean the cursor
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        total = len(data)
        written = _calls.write_at(self.fd, data, offset)
        if written != total:
            self._write_rest(data, written, offset)
        return total

    def _write_rest(self, data: Buffer, written: int, offset: int) -> None:
        rest = memoryview(data)
        while written < len(data):
            count = os.pwrite(self.fd, rest[written:], offset + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            written += count


class StreamEnd:
    """The upper half of `RealStream`."""

    __slots__ = ("_fd", "_socket")

    def __init__(self, connected: socket) -> None:
        self._socket = connected
        self._fd = connected.fileno()

    def recv_into(self, buffer: Buffer) -> int:
        return _calls.receive(self._socket, self._fd, buffer)

    def send(self, data: Buffer) -> int:
        return _calls.send(self._socket, self._fd, data)
