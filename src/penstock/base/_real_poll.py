"""Who has something to receive: the sockets of all connections in one epoll, which the event loop watches as one.

Waking a callback of the event loop for each socket costs more than receiving from it. And where many have something,
it pays to receive from all of them before anything is sent (`after_reading`): the first answer wakes the client, and
the others find it awake; to wake a sleeping process is the dearest part of a small answer.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_real_poll.pxd`.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

READS_PER_WAKE = 32  # more would let clients wait for each other


class ReadPoll(Protocol):
    """Tells the connections of one event loop."""

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back whenever there is something to receive."""

    def forget(self, fd: int) -> None:
        """The end of a watch, if there is one; before the socket is closed."""

    def after_reading(self, callback: Callable[[], None]) -> None:
        """Call back once the sockets that are ready now have been read."""


def read_poll(loop: asyncio.AbstractEventLoop) -> ReadPoll:
    """What this system has."""
    return EpollPoll(loop) if hasattr(select, "epoll") else LoopPoll(loop)


class LoopPoll:
    """Every socket is watched by the event loop, where there is no epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self._loop.add_reader(fd, callback)

    def forget(self, fd: int) -> None:
        self._loop.remove_reader(fd)

    def after_reading(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)


class EpollPoll:
    """See the head of this file."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._after: list[Callable[[], None]] = []
        self._is_reading = False

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        if fd not in self._callbacks:
            if not self._callbacks:
                self._loop.add_reader(self._epoll.fileno(), self._read)
            self._epoll.register(fd, select.EPOLLIN)
        self._callbacks[fd] = callback

    def forget(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            if not self._callbacks:
                self._loop.remove_reader(self._epoll.fileno())

    def after_reading(self, callback: Callable[[], None]) -> None:
        if self._is_reading:
            self._after.append(callback)
        else:
            self._loop.call_soon(callback)

    def _read(self) -> None:
        self._is_reading = True
        callbacks = self._callbacks
        for fd, _ in self._epoll.poll(0, READS_PER_WAKE):
            callback = callbacks.get(fd)  # one of the others may have ended it
            if callback is not None:
                self._call(callback)
        self._is_reading = False
        if self._after:
            after, self._after = self._after, []
            for callback in after:
                self._call(callback)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": "a connection failed", "exception": error})
