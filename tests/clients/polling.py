"""Members that are polled all the time, each by a thread of its own, for scenarios that look at them from outside.

A rebalance needs all members to go on, so none may stand still while a scenario looks at another. What a scenario wants
of a member is done by the member's thread, between two polls: clients are for one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from threading import Condition, Event, Thread
from typing import Any, TypeVar

from penstock.base.identifiers import TopicPartition

from .client import DEADLINE_S, Message, Refused
from .group_client import GroupClient, Member, MemberOptions, NobodyWatches, Watcher

PATIENCE_S = 60.0
POLL_S = 0.05

T = TypeVar("T")
#: Notified whenever a member has been polled.
_turn = Condition()


def wait_until(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Wait for something about members."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S} s: {what()}"
        with _turn:
            _turn.wait(POLL_S)


class PolledMember:
    """See the head of this file."""

    def __init__(self, groups: GroupClient, options: MemberOptions, watcher: Watcher | None = None) -> None:
        #: Why it is polled no more.
        self.refusal: Exception | None = None
        self._come: list[Message] = []
        self._wanted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_leaving = Event()
        self._member = groups.join(options, watcher or NobodyWatches())
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self, count: int) -> list[Message]:
        """The next messages; fails if they do not come. What comes beyond them is for the next call."""
        wait_until(lambda: len(self._come) >= count or self.refusal is not None, lambda: f"{len(self._come)} came")
        if len(self._come) < count and self.refusal is not None:
            raise self.refusal
        taken, self._come[:count] = self._come[:count], []
        return taken

    def has(self, count: int) -> bool:
        """Have so many messages come?"""
        return len(self._come) >= count

    def do(self, work: Callable[[Member], T]) -> T:
        """Let the member's thread do something with the client; gives what it gives."""
        answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

        def run() -> None:
            try:
                answers.put((work(self._member), None))
            except Exception as error:
                answers.put((None, error))

        self._wanted.put(run)
        answer, error = answers.get(timeout=DEADLINE_S + PATIENCE_S)
        if error is not None:
            raise error
        result: T = answer
        return result

    def assignment(self) -> set[TopicPartition]:
        return self._member.assignment()

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.do(lambda member: member.commit(offsets))

    def committed(self, where: TopicPartition) -> int | None:
        return self.do(lambda member: member.committed(where))

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Go elsewhere, and forget what came before that and was not taken."""

        def seek(member: Member) -> None:
            member.seek(where, offset)
            self._come.clear()

        self.do(seek)

    def leave(self) -> None:
        self._is_leaving.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a member cannot leave"

    def _run(self) -> None:
        """A member that was refused goes on answering, and polls no more."""
        while not self._is_leaving.is_set():
            try:
                self._wanted.get(timeout=POLL_S if self.refusal else 0.0001)()
            except Empty:
                pass
            if self.refusal is None:
                self._poll()
        try:
            self._member.close()
        except Refused:
            pass  # a member that was fenced cannot leave

    def _poll(self) -> None:
        try:
            self._come += self._member.poll(POLL_S)
        except Exception as refusal:
            self.refusal = refusal
        with _turn:
            _turn.notify_all()


@contextmanager
def joined(
    groups: GroupClient, *options: MemberOptions, watcher: Watcher | None = None
) -> Iterator[list[PolledMember]]:
    """Members that leave at the end."""
    with ExitStack() as stack:
        members = []
        for one in options:
            members.append(PolledMember(groups, one, watcher))
            stack.callback(members[-1].leave)
        yield members


def take_from_all(members: Sequence[PolledMember], count: int) -> list[Message]:
    """Wait until so many messages have come to the members together, and take them."""

    def total() -> int:
        return sum(len(member._come) for member in members)

    wait_until(lambda: total() >= count, lambda: f"{total()} of {count} came")
    return [message for member in members for message in member.take(len(member._come))]


def shares(members: Sequence[PolledMember], partitions: int) -> list[set[TopicPartition]]:
    """Wait until the partitions are shared out evenly; gives what each member has."""

    def is_shared() -> bool:
        parts = [member.assignment() for member in members]
        sizes = [len(part) for part in parts]
        return len(set().union(*parts)) == sum(sizes) == partitions and max(sizes) - min(sizes) <= 1

    wait_until(is_shared, lambda: [(member.assignment(), member.refusal) for member in members])
    return [member.assignment() for member in members]
