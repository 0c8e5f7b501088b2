"""Looking again before falling asleep: now and then at first, always while it pays, never so that others wait for long.

The sockets of a pair have their bytes at once, and the clock goes on by a microsecond whenever it is looked at.
"""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.base import _real_poll
from penstock.base._real_poll import TRUST_MAX, TRY_ONE_IN, EpollPoll

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll here")

IN_LOCK_STEP = 20
FOR_EVER = 1 << 30


class Loop:
    """What a poll asks of an event loop."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        pass

    def remove_reader(self, fd: int) -> None:
        pass

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context)


class Client:
    """Says something, and again whenever it was heard, until it has said it all."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.poll = EpollPoll(self.loop)  # type: ignore[arg-type]
        self.ours, self.theirs = socket.socketpair()
        self.heard = self.left = 0
        self.poll.watch(self.ours.fileno(), self._hear)

    def _say(self) -> None:
        if self.left:
            self.left -= 1
            self.theirs.send(b"x")

    def _hear(self) -> None:
        self.ours.recv(1)
        self.heard += 1
        self._say()

    def heard_in_one_wake(self, times: int) -> int:
        """How often it is heard before the poll returns for the first time."""
        self.heard, self.left = 0, times
        self._say()
        self.poll._read()
        return self.heard

    def say_the_rest(self) -> None:
        while self.left:
            self.poll._read()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    microseconds = itertools.count()
    monkeypatch.setattr(_real_poll, "perf_counter", lambda: next(microseconds) * 1e-6)
    client = Client()
    yield client
    client.poll.forget(client.ours.fileno())
    client.ours.close()
    client.theirs.close()


def trusted(client: Client) -> None:
    while client.heard_in_one_wake(IN_LOCK_STEP) != IN_LOCK_STEP:
        client.say_the_rest()


def test_what_pays_is_tried_now_and_then_and_then_done_always(client: Client) -> None:
    heard = [client.heard_in_one_wake(1) for _ in range(TRY_ONE_IN - 1)]
    heard += [client.heard_in_one_wake(IN_LOCK_STEP) for _ in range(5)]
    assert heard == [1] * (TRY_ONE_IN - 1) + [IN_LOCK_STEP] * 5


def test_without_trust_nothing_is_looked_for(client: Client) -> None:
    assert client.heard_in_one_wake(IN_LOCK_STEP) == 1


def test_trust_is_lost_when_nobody_comes_back(client: Client) -> None:
    trusted(client)
    for _ in range(TRUST_MAX):
        client.heard_in_one_wake(1)
    assert client.heard_in_one_wake(IN_LOCK_STEP) == 1


def test_who_always_has_something_to_say_leaves_the_loop_its_turn(client: Client) -> None:
    trusted(client)
    assert IN_LOCK_STEP < client.heard_in_one_wake(FOR_EVER) < FOR_EVER
    assert client.loop.soon == [client.poll._read]
    heard = client.heard
    client.loop.soon.pop()()
    assert client.heard > heard
