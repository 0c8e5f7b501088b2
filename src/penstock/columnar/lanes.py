"""What is on its way to one partition, in order and each batch once, however often it has to be sent.

A batch waits, is in flight, and is done. Its sequence number is given to it when it is sent for the first time and
never changes, so that the broker recognises what it has already. The rules:

- Batches leave in order, and several may be in flight. Until a partition has acknowledged the first batch of a
  producer's epoch only one is: a broker that knows nothing of a producer takes any sequence for its first one, and
  would take the second batch if the first were refused.
- After a failure that may pass, nothing new leaves until everything in flight has been answered; then what failed
  is sent again, in order. A later batch that the broker found out of order for want of the failed one has failed too.
- While something is being sent again nothing new leaves: a broker remembers the last five batches, and must remember
  the one that is repeated.
- Out of order without an earlier failure means that something acknowledged has been lost. That is for people to see.

Nothing here touches a socket or a clock: the producer says what was answered, and when.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.compression import Compression
from penstock.wire.records import sealed_header

SEQUENCE_MASK = 0x7FFFFFFF  # they wrap at 2^31
SOON_SHARE = 0.1  # the transaction before is finished within milliseconds

_IS_THERE = frozenset({Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition; the header is empty until they are sent for the first time."""

    records: memoryview
    count: int
    base_timestamp: int
    max_timestamp: int
    header: bytes = b""
    is_repeated: bool = False

    @property
    def size_bytes(self) -> int:
        return HEADER_SIZE + len(self.records)


@dataclass(frozen=True, slots=True)
class Seal:
    """What a producer says of itself in every batch."""

    producer: ProducerEpoch
    compression: Compression
    is_transactional: bool


@dataclass(slots=True, eq=False)
class Lane:
    """One partition."""

    where: TopicPartition
    backoff_s: float
    """before it is tried again; doubled every time, up to the next one"""
    backoff_max_s: float
    next_sequence: int = 0
    is_known: bool = False
    """the partition has acknowledged a batch of this producer in this epoch"""
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: deque[Batch] = field(default_factory=deque)
    failed: list[Batch] = field(default_factory=list)
    """of those in flight, the ones that have to be sent again once all are answered"""
    failing_since: float | None = None
    failure: ApiError | OSError | None = None
    """the last one, if nothing has been acknowledged since"""
    not_before: float = 0.0
    _attempts: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.in_flight or self.failed)

    def may_send(self, now: float) -> bool:
        """Whether the first batch that waits may leave."""
        if not self.waiting or self.failed or now < self.not_before:
            return False
        if not self.in_flight:
            return True
        return self.is_known and (self.waiting[0].is_repeated or not any(batch.is_repeated for batch in self.in_flight))

    def send(self, seal: Seal) -> Batch:
        """The first batch that waits is in flight now."""
        batch = self.waiting.popleft()
        if not batch.header:
            batch.header = self._seal(batch, seal)
        self.in_flight.append(batch)
        return batch

    def answer(self, error: ApiError | None, now: float) -> Batch | None:
        """The oldest batch in flight was answered; returned if it is done. ApiError if that is the end."""
        batch = self.in_flight.popleft()
        if error is None or error.error in _IS_THERE:
            self.is_known = True
            self.failing_since = self.failure = None
            self._attempts = 0
        elif error.error.retriable:
            self._note_failure(error, now)
            self.failed.append(batch)
        elif error.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and self.failed:
            self.failed.append(batch)
        else:
            raise error
        is_done = not (self.failed and self.failed[-1] is batch)
        if self.failed and not self.in_flight:
            self._send_again(now)
        return batch if is_done else None

    def lose_connection(self, error: OSError, now: float) -> None:
        """What was in flight will not be answered."""
        if self.in_flight:
            self._note_failure(error, now)
            self.failed += self.in_flight
            self.in_flight.clear()
        if self.failed:
            self._send_again(now)

    def postpone(self, error: ApiError | OSError, now: float) -> None:
        """There is nobody to send to at the moment."""
        self._note_failure(error, now)
        self._back_off(now)

    def new_epoch(self) -> None:
        """The producer has a new epoch, in which sequences begin at 0. Nothing is on its way."""
        assert self.is_empty
        self.next_sequence = 0
        self.is_known = False

    def forget(self) -> None:
        """Nothing more is to be sent of what is here."""
        self.waiting.clear()
        self.in_flight.clear()
        self.failed.clear()
        self.failing_since = self.failure = None

    def _note_failure(self, error: ApiError | OSError, now: float) -> None:
        self.failure = error
        if self.failing_since is None:
            self.failing_since = now

    def _send_again(self, now: float) -> None:
        for batch in self.failed:
            batch.is_repeated = True
        self.waiting.extendleft(reversed(self.failed))
        self.failed.clear()
        self._back_off(now)

    def _back_off(self, now: float) -> None:
        pause_s = self.backoff_s
        if isinstance(self.failure, ApiError) and self.failure.error is Error.CONCURRENT_TRANSACTIONS:
            pause_s *= SOON_SHARE
        self.not_before = now + min(pause_s * 2 ** min(self._attempts, 30), self.backoff_max_s)
        self._attempts += 1

    def _seal(self, batch: Batch, seal: Seal) -> bytes:
        sequence = self.next_sequence
        self.next_sequence = (sequence + batch.count) & SEQUENCE_MASK
        return sealed_header(
            batch.records,
            batch.count,
            last_offset_delta=batch.count - 1,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
            compression=seal.compression,
            producer_id=seal.producer.producer_id,
            producer_epoch=seal.producer.producer_epoch,
            base_sequence=sequence,
            transactional=seal.is_transactional,
        )
