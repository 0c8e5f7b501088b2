"""What real clients sent, were told and saw, message by message, and whether the topic that is left agrees with it.

Threads of producers ask for the next value to send and note each acknowledgement; readers note what they see. At the
end the whole topic is read and judged: what was acknowledged or seen is there at its offset (else it was lost, or
changed), nothing is there twice, each producer's messages are in the order in which they were sent, and nothing is
there that nobody sent. `history.py` does the same for the simulator, with batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from threading import Condition
from typing import NamedTuple


class ReadMessage(NamedTuple):
    """A message as a consumer sees it."""

    partition: int
    offset: int
    value: bytes | None


class _Sent(NamedTuple):
    producer: str
    number: int
    partition: int

    def __str__(self) -> str:
        return f"message {self.number} of {self.producer}"


class _Told(NamedTuple):
    value: bytes
    partition: int
    offset: int
    who: str


class MessageHistory:
    """See the head of this file. Any thread may call any method."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._sent: dict[bytes, _Sent] = {}
        self._told: list[_Told] = []
        self._acknowledged = 0
        self.errors: list[str] = []

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    @property
    def sent(self) -> int:
        return len(self._sent)

    def sending(self, producer: str, number: int, partition: int, padding_bytes: int = 0) -> bytes:
        """The value of a producer's next message; no two are equal."""
        value = f"{producer}/{number}/{partition}/".encode().ljust(padding_bytes, b".")
        with self._changed:
            if value in self._sent:
                raise ValueError(f"message {number} of {producer} was sent before")
            self._sent[value] = _Sent(producer, number, partition)
        return value

    def acked(self, value: bytes, partition: int, offset: int) -> None:
        """The producer was told that a message is at an offset."""
        with self._changed:
            self._told.append(_Told(value, partition, offset, "acknowledged"))
            self._acknowledged += 1
            self._changed.notify_all()

    def failed(self, value: bytes, error: Exception) -> None:
        """The producer was told that a message may not have been written: it may be there or not."""
        with self._changed:
            self.errors.append(f"{self._sent[value]}: {error}")
            self._changed.notify_all()

    def saw(self, message: ReadMessage) -> None:
        """A reader saw a message while the test ran."""
        with self._changed:
            self._told.append(_Told(message.value or b"", message.partition, message.offset, "seen"))

    def wait_for_acknowledged(self, total: int, timeout_s: float) -> None:
        """Wait until this many messages were acknowledged; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._acknowledged >= total, timeout_s):
                raise TimeoutError(
                    f"{self._acknowledged} of {total} acknowledged after {timeout_s} s; {self.errors[:3]}"
                )

    def problems(self, messages: Iterable[ReadMessage]) -> list[str]:
        """Everything that is wrong with the topic as it was read from its beginning to its end, in words."""
        by_partition: dict[int, list[ReadMessage]] = defaultdict(list)
        for message in messages:
            by_partition[message.partition].append(message)
        with self._changed:
            found = [problem for stored in by_partition.values() for problem in self._stored_problems(stored)]
            return found + list(self._told_problems(by_partition))

    def _stored_problems(self, stored: list[ReadMessage]) -> Iterator[str]:
        place: dict[_Sent, int] = {}
        last: dict[str, int] = {}
        last_offset = -1
        for partition, offset, value in stored:
            where = f"partition {partition} offset {offset}"
            if offset <= last_offset:
                yield f"out of order: {where} was read after offset {last_offset}"
            last_offset = offset
            sent = self._sent.get(value or b"")
            if sent is None:
                yield f"changed: nobody sent {(value or b'')[:60]!r}, {where}"
            elif sent.partition != partition:
                yield f"misplaced: {sent} was sent to partition {sent.partition}, not to {where}"
            elif sent in place:
                yield f"duplicate: {sent} at {where} was at offset {place[sent]} already"
            else:
                place[sent] = offset
                if sent.number < last.get(sent.producer, -1):
                    yield f"out of order: {sent} at {where} comes after message {last[sent.producer]}"
                last[sent.producer] = max(sent.number, last.get(sent.producer, -1))

    def _told_problems(self, by_partition: dict[int, list[ReadMessage]]) -> Iterator[str]:
        values = {(partition, one.offset): one.value for partition, stored in by_partition.items() for one in stored}
        present = set(values.values())
        for told in self._told:
            sent = self._sent.get(told.value)
            what = f"{sent or told.value[:60]!r}, {told.who} at partition {told.partition} offset {told.offset}"
            if told.value not in present:
                yield f"lost: {what}"
            elif values.get((told.partition, told.offset)) != told.value:
                yield f"changed: {what}, is not what is there now"
