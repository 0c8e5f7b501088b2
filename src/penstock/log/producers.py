"""What a partition knows of the producers that write to it: the ground of idempotence and of transactions.

For every producer id: its epoch, its last five batches and, if a transaction is open, where that began. The leader
checks a batch against this before it writes it (`check`) and notes it afterwards (`note`); followers and recovery only
note. Nothing else changes the state, so that replaying the log gives the same state again.

Sequence numbers count records and wrap after 2^31 - 1. A batch that is one of the last five again is a retry and gets
its old offset. A producer nobody knows may begin anywhere: its past may have been deleted with old segments.

A transaction is *open* from its first batch to its marker, and *unstable* until the high watermark has passed the
marker as well. `first_unstable_offset` is where the oldest unstable one begins. Other threads may read that number;
everything else belongs to the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.base.errors import ApiError, Error
from penstock.log._append import ALL_STABLE as ALL_STABLE
from penstock.log._append import NO_OFFSET as NO_OFFSET
from penstock.log._append import NO_SEQUENCE as NO_SEQUENCE
from penstock.log._append import SEQUENCE_MASK as SEQUENCE_MASK
from penstock.log._append import ProducedBatch as ProducedBatch
from penstock.log._append import ProducerState as ProducerState
from penstock.log._append import ProducerTable, epoch_is_over, same_batch
from penstock.log.txn_index import AbortedTransaction
from penstock.wire.batch import BatchHeader
from penstock.wire.control import ControlType

PRODUCERS_MAX = 20_000  # of one partition; some 400 bytes each
STRICT_SINCE = 2  # the version of transactions whose markers always have an epoch newer than that of their records


class ProducerStates(ProducerTable):
    """All producers of one partition, and its open transactions."""

    __slots__ = ("_silent_since", "decided", "end_offset")

    def __init__(self) -> None:
        super().__init__()
        self._silent_since: dict[int, tuple[int, int]] = {}  # producer id → (its last offset, since when it is that)
        self.decided: list[tuple[int, int]] = []  # (marker's offset, first offset) not yet below the high watermark
        self.end_offset = 0  # the state is that of the log up to here

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._by_id.get(producer_id)

    # -- the leader's checks; the one of every batch is in the upper half

    def repeated(self, header: BatchHeader) -> ProducedBatch | None:
        """The one of a producer's last batches that this one is again, if there is one."""
        state = self._by_id.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            return None
        return same_batch(state, header)

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """ApiError if a newer epoch of the producer has been heard of."""
        state = self._by_id.get(producer_id)
        if state is not None and producer_epoch < state.epoch:
            raise epoch_is_over(state, producer_epoch)

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """ApiError if a newer producer or a newer coordinator has been heard of.

        From version 2 on the coordinator raises the epoch at the end of every transaction. So a marker of the epoch in
        which a transaction is open belongs to an older one, and comes late; without an open one it came before.
        """
        state = self._by_id.get(producer_id)
        if state is None:
            return
        is_open = state.transaction_first_offset != NO_OFFSET
        is_late = transaction_version >= STRICT_SINCE and is_open and producer_epoch == state.epoch
        if producer_epoch < state.epoch or is_late:
            raise epoch_is_over(state, producer_epoch)
        if coordinator_epoch < state.coordinator_epoch:
            raise ApiError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is over: {state.coordinator_epoch}",
            )

    # -- what was appended; batches of records are noted in the upper half

    def _add(self, producer_id: int) -> ProducerState:
        if len(self._by_id) >= PRODUCERS_MAX:
            self._forget_oldest()
        return super()._add(producer_id)

    def note_marker(
        self, header: BatchHeader, kind: ControlType, coordinator_epoch: int, marker_offset: int
    ) -> AbortedTransaction | None:
        """A marker is in the log, at this offset; returns what belongs into the transaction index, if anything."""
        producer_id = header.producer_id
        state = self._by_id.get(producer_id)
        if state is None:
            state = self._add(producer_id)
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = header.max_timestamp
        first_offset, state.transaction_first_offset = state.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._open.pop(producer_id, None)
        self.decided.append((marker_offset, first_offset))
        if kind is not ControlType.ABORT:
            return None
        stable = self.first_open_offset
        return AbortedTransaction(
            producer_id, first_offset, marker_offset, stable if stable is not None else marker_offset + 1
        )

    # -- transactions

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here, in just this epoch."""
        state = self._by_id.get(producer_id)
        return state is not None and state.transaction_first_offset != NO_OFFSET and state.epoch == producer_epoch

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction without a marker begins."""
        return next(iter(self._open.values()), None)  # they are in the order in which they began

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose markers are below the high watermark are stable now."""
        self.decided = [pair for pair in self.decided if pair[0] >= high_watermark]
        first_decided = min((first_offset for _marker, first_offset in self.decided), default=ALL_STABLE)
        self.first_unstable_offset = min(first_decided, next(iter(self._open.values()), ALL_STABLE))

    # -- as a whole

    def _forget_oldest(self) -> None:
        """A flood of producers: let go of the quarter that has been silent for longest."""
        idle = [state for state in self._by_id.values() if state.transaction_first_offset == NO_OFFSET]
        idle.sort(key=lambda state: state.last_offset)
        for state in idle[: max(1, PRODUCERS_MAX // 4)]:
            del self._by_id[state.producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forget producers that have been silent for long and have no transaction open; which ones.

        Called again and again, with the time of a clock that never jumps. The times of records are not asked: they are
        the client's, and one that writes old records must not be forgotten between a batch and its retry.
        """
        silent_since: dict[int, tuple[int, int]] = {}
        expired = []
        for producer_id, state in self._by_id.items():
            last_offset, since_ms = self._silent_since.get(producer_id, (NO_OFFSET, now_ms))
            if last_offset != state.last_offset:
                since_ms = now_ms
            if state.transaction_first_offset == NO_OFFSET and now_ms - since_ms >= expiration_ms:
                expired.append(producer_id)
            else:
                silent_since[producer_id] = state.last_offset, since_ms
        self._silent_since = silent_since
        for producer_id in expired:
            del self._by_id[producer_id]
        return expired

    def forget_before(self, offset: int) -> None:
        """Forget producers whose last batch lies before an offset and that have no transaction open."""
        for state in list(self._by_id.values()):
            if state.last_offset < offset and state.transaction_first_offset == NO_OFFSET:
                del self._by_id[state.producer_id]

    def replace(self, states: Iterable[ProducerState], end_offset: int) -> None:
        """Become what a snapshot at this offset says."""
        self._by_id = {state.producer_id: state for state in states}
        unended = [state for state in self._by_id.values() if state.transaction_first_offset != NO_OFFSET]
        unended.sort(key=lambda state: state.transaction_first_offset)
        self._open = {state.producer_id: state.transaction_first_offset for state in unended}
        self.decided = []
        self.first_unstable_offset = next(iter(self._open.values()), ALL_STABLE)
        self.end_offset = end_offset
