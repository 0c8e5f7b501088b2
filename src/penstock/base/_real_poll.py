"""Who has something to receive: the sockets of all connections in one epoll, which the event loop watches as one.

Waking a callback of the event loop for each socket costs more than receiving from it. And where many have something,
it pays to receive from all of them before anything is sent (`after_reading`): the first answer wakes the client, and
the others find it awake; to wake a sleeping process is the dearest part of a small answer.

For the same reason the poll does not fall asleep at once. A client that asks, waits for the answer and asks again
comes back sooner than a sleeping process wakes up. So after it has answered the poll looks again for a moment, as long
as that turns out to be worth it: each look that was in vain costs some of its trust, and without any it tries only now
and then.

This file is plain Python. With a C compiler, Cython builds the same file with the types of `_real_poll.pxd`.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

READS_PER_WAKE = 32  # more would let clients wait for each other
LOOK_AGAIN_S = 100e-6  # about what it takes to fall asleep and to wake up
AWAY_S = 500e-6  # so long the event loop may have to wait for its other work
TRUST_MAX = 8
TRY_ONE_IN = 61  # of the wakes, while there is no trust; odd, so that of two who take turns each is met

_AWAY_S = AWAY_S
_LOOK_AGAIN_S = LOOK_AGAIN_S
_TRUST_MAX = TRUST_MAX
_TRY_ONE_IN = TRY_ONE_IN


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
        self._trust = 0
        self._untried = 0  # wakes without trust since it last tried

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
        now_s = perf_counter()
        back_s = now_s + _AWAY_S
        ready = self._epoll.poll(0, READS_PER_WAKE)
        while ready:
            self._handle(ready)
            now_s = perf_counter()
            if now_s > back_s:
                self._loop.call_soon(self._read)  # before it sleeps, and after everything else that waits for the loop
                return
            ready = self._look_again(now_s)

    def _handle(self, ready: list[tuple[int, int]]) -> None:
        self._is_reading = True
        callbacks = self._callbacks
        for fd, _ in ready:
            callback = callbacks.get(fd)  # one of the others may have ended it
            if callback is not None:
                self._call(callback)
        self._is_reading = False
        if self._after:
            after, self._after = self._after, []
            for callback in after:
                self._call(callback)

    def _look_again(self, now_s: float) -> list[tuple[int, int]]:
        """Who comes back at once, if that is to be expected."""
        if self._trust == 0:
            self._untried += 1
            if self._untried < _TRY_ONE_IN:
                return []
            self._untried = 0
        end_s = now_s + _LOOK_AGAIN_S
        while True:
            ready = self._epoll.poll(0, READS_PER_WAKE)
            if ready:
                self._trust = min(self._trust + 1, _TRUST_MAX)
                return ready
            if perf_counter() >= end_s:
                self._trust = max(self._trust - 2, 0)
                return []

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": "a connection failed", "exception": error})
