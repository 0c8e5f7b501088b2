"""A member of a group that does what members do: poll, handle, commit what it handled, and so on until it leaves.

It runs in a thread. What it does is noted by a `Recorder`: the history of the group itself where both are in one
process, or a pipe to it (`member_process.py`). It commits only what it was given since it owns the partition: a
partition that was handed over meanwhile is no longer its business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from threading import Event, Lock, Thread
from typing import Protocol

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import Outcome

from .client import Message, Refused
from .group_client import GroupClient, Member, MemberOptions

POLL_S = 0.2
#: Answers to a commit after which it is certain that it did not happen.
COMMIT_REFUSALS = {16, 22, 25, 27, 82, 110, 113}


class Commits(StrEnum):
    """When a member commits."""

    AT_ONCE = "at once"  # after each poll, waiting for the answer
    LATER = "later"  # after each poll, without waiting
    NEVER = "never"


class Recorder(Protocol):
    """Where it is noted what members do; `GroupHistory` is one."""

    def assigned(self, member: str, partitions: Iterable[TopicPartition], generation: int | None) -> None: ...
    def revoked(self, member: str, partitions: Iterable[TopicPartition]) -> None: ...
    def lost(self, member: str, partitions: Iterable[TopicPartition]) -> None: ...
    def polled(self, member: str, where: TopicPartition, offset: int, value: bytes | None) -> None: ...
    def committing(self, member: str | None, offsets: Mapping[TopicPartition, int]) -> int: ...
    def committed(self, number: int, outcome: Outcome) -> None: ...


class RunningMember:
    """See the head of this file; it is a `Watcher` of its own client."""

    def __init__(
        self,
        groups: GroupClient,
        options: MemberOptions,
        name: str,
        recorder: Recorder,
        commits: Commits = Commits.AT_ONCE,
        on_error: Callable[[str, Exception], None] = lambda _, __: None,
    ) -> None:
        self.name = name
        self._groups = groups
        self._options = options
        self._recorder = recorder
        self._commits = commits
        self._on_error = on_error
        self._lock = Lock()
        #: What it owns, and up to where it was given the messages of it since then.
        self._given: dict[TopicPartition, int | None] = {}
        self._is_leaving = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> RunningMember:
        self._thread.start()
        return self

    def leave(self, timeout_s: float) -> None:
        """Leave the group and wait until that is done."""
        self._is_leaving.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} has not left within {timeout_s} s"

    def _run(self) -> None:
        try:
            client = self._groups.join(self._options, self)
            try:
                while not self._is_leaving.is_set():
                    if client.poll(POLL_S) and self._commits is not Commits.NEVER:
                        self._commit(client)
            finally:
                client.close()
        except Exception as error:
            self._on_error(self.name, error)

    def _commit(self, client: Member) -> None:
        with self._lock:
            offsets = {where: offset for where, offset in self._given.items() if offset is not None}
        if not offsets:
            return
        number = self._recorder.committing(self.name, offsets)
        if self._commits is Commits.LATER:
            client.commit_later(offsets, lambda error: self._recorder.committed(number, outcome_of(error)))
            return
        try:
            client.commit(offsets)
        except Refused as error:
            self._recorder.committed(number, outcome_of(error))
        else:
            self._recorder.committed(number, Outcome.DONE)

    # Watcher

    def assigned(self, partitions: Iterable[TopicPartition], generation: int | None) -> None:
        with self._lock:
            self._given |= dict.fromkeys(partitions)
            self._recorder.assigned(self.name, partitions, generation)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._recorder.revoked(self.name, self._forget(partitions))

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._recorder.lost(self.name, self._forget(partitions))

    def given(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                assert message.partition is not None
                where = TopicPartition(message.topic, message.partition)
                self._recorder.polled(self.name, where, message.offset, message.value)
                if where in self._given:
                    self._given[where] = message.offset + 1

    def _forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        gone = list(partitions)
        for where in gone:
            self._given.pop(where, None)
        return gone


def outcome_of(error: Exception | None) -> Outcome:
    """What an answer to a commit says about it."""
    if error is None:
        return Outcome.DONE
    return Outcome.REFUSED if isinstance(error, Refused) and error.code in COMMIT_REFUSALS else Outcome.UNKNOWN
