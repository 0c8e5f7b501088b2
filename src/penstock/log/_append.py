"""What every append touches: the end of a partition's log, the end of its last segment, and the producer that writes.

These are the upper halves of `PartitionLog`, `Segment` and `ProducerStates`; everything that happens less often than
once for each batch is in the classes made of them. This file is plain Python. With a C compiler, Cython builds the same
file with the types of `_append.pxd`; offsets, sizes and timestamps are 64 bits wide there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from penstock.base.errors import ApiError, Error
from penstock.base.world import File
from penstock.log.append_checks import refuse_timestamps
from penstock.log.config import LogConfig
from penstock.log.epochs import LeaderEpochs
from penstock.wire._batch import BatchHeader, stamp
from penstock.wire.batch import CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL
from penstock.wire.batch import stamp_append_time as _stamp_append_time

BATCHES_KEPT = 5
RECENT_BATCHES_MAX = 512
NO_TIME = -1
NO_EPOCH = -1
NO_OFFSET = -1
NO_SEQUENCE = -1
ALL_STABLE = 2**63 - 1  # the first unstable offset where no transaction is unstable
SEQUENCE_MASK = 0x7FFFFFFF

# The recent batches: the offset after the batch before them, and for each its last offset and its position. The three
# are replaced together: a thread that reads may hold the old ones.
Recent = tuple[int, "array[int]", "array[int]"]

# The same numbers where C works with them.
_NONE = -1
_BATCHES_KEPT = BATCHES_KEPT
_RECENT_BATCHES_MAX = RECENT_BATCHES_MAX
_SEQUENCE_MASK = SEQUENCE_MASK
_CONTROL = CONTROL
_LOG_APPEND_TIME = LOG_APPEND_TIME
_TRANSACTIONAL = TRANSACTIONAL


class Appended:
    """Where a batch is. A duplicate was there before and has not been written again."""

    __slots__ = ("base_offset", "duplicate", "last_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, last_offset: int, log_append_time_ms: int, duplicate: bool) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.duplicate = duplicate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Appended, tuple)) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        return iter((self.base_offset, self.last_offset, self.log_append_time_ms, self.duplicate))


class ProducedBatch:
    """One batch of a producer: which sequence numbers it had and which offsets it got."""

    __slots__ = ("first_offset", "first_sequence", "last_offset", "last_sequence", "timestamp")

    def __init__(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.timestamp = timestamp

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducedBatch):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProducedBatch({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class ProducerState:
    """One producer as the partition knows it."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_first_offset")

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducedBatch] = []  # oldest first, all of the current epoch
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_EPOCH
        self.transaction_first_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProducerState({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class ProducerTable:
    """The upper half of `ProducerStates`: is a batch the next one of its producer; now it is in the log."""

    __slots__ = ("_by_id", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self._by_id: dict[int, ProducerState] = {}
        self._open: dict[int, int] = {}  # producer id → first offset of its open transaction
        self.first_unstable_offset = ALL_STABLE

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch this one repeats, or None if it may be appended; ApiError if it may not."""
        sequence = header.base_sequence
        epoch = header.producer_epoch
        if sequence < 0 or epoch < 0:
            raise ApiError(
                Error.INVALID_RECORD, f"producer {header.producer_id} without a sequence number or without an epoch"
            )
        state = self._by_id.get(header.producer_id)
        if state is None:
            return None
        if epoch != state.epoch:
            _check_new_epoch(state, header)
        else:
            batches = state.batches
            expected = 0
            if batches:
                last = batches[-1]
                expected = (last.last_sequence + 1) & _SEQUENCE_MASK
            if sequence != expected:
                return _find_duplicate(state, header, expected)
        if state.transaction_first_offset != _NONE and not header.attributes & _TRANSACTIONAL:
            raise ApiError(
                Error.INVALID_TXN_STATE, f"producer {state.producer_id} has a transaction open and wrote outside of it"
            )
        return None

    def note(self, header: BatchHeader, base_offset: int) -> None:
        """A batch of records of a producer is in the log, at this offset."""
        producer_id = header.producer_id
        state = self._by_id.get(producer_id)
        if state is None:
            state = self._add(producer_id)
        batches = state.batches
        epoch = header.producer_epoch
        if state.epoch != epoch:
            state.epoch = epoch
            batches.clear()
        elif len(batches) == _BATCHES_KEPT:
            del batches[0]
        delta = header.last_offset_delta
        sequence = header.base_sequence
        last_sequence = (sequence + delta) & _SEQUENCE_MASK if sequence >= 0 else _NONE
        timestamp = header.max_timestamp
        state.last_timestamp = timestamp
        batches.append(ProducedBatch(sequence, last_sequence, base_offset, base_offset + delta, timestamp))
        if state.transaction_first_offset == _NONE and header.attributes & _TRANSACTIONAL:
            state.transaction_first_offset = base_offset
            self._open[producer_id] = base_offset
            if base_offset < self.first_unstable_offset:
                self.first_unstable_offset = base_offset

    def _add(self, producer_id: int) -> ProducerState:
        """A producer that nobody knew."""
        state = self._by_id[producer_id] = ProducerState(producer_id)
        return state


def _check_new_epoch(state: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch < state.epoch:
        raise epoch_is_over(state, header.producer_epoch)
    if header.base_sequence != 0:
        raise ApiError(
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"a new epoch of producer {state.producer_id} begins with sequence {header.base_sequence}, not 0",
        )


def epoch_is_over(state: ProducerState, epoch: int) -> ApiError:
    return ApiError(
        Error.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {state.producer_id} is over: {state.epoch}"
    )


def _find_duplicate(state: ProducerState, header: BatchHeader, expected: int) -> ProducedBatch:
    batch = same_batch(state, header)
    if batch is None:
        raise ApiError(
            Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {state.producer_id} sent sequence {header.base_sequence}, expected was {expected}",
        )
    return batch


def same_batch(state: ProducerState, header: BatchHeader) -> ProducedBatch | None:
    """The one of a producer's last batches that this one is again, if there is one."""
    last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK
    for batch in state.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


class SegmentEnd:
    """The upper half of `Segment`: where it ends, and which of its batches were written last."""

    __slots__ = (
        "_bytes_since_index",
        "_recent",
        "base_offset",
        "file",
        "first_timestamp",
        "max_timestamp_offset",
        "max_timestamp_value",
        "next_offset",
        "size_bytes",
        "sure_offset",
        "sure_size",
        "sure_timestamp",
    )

    def __init__(self, base_offset: int, recent: Recent) -> None:
        self.base_offset = base_offset
        self.file: File | None = None  # held open while the segment is being written
        self.size_bytes = 0
        self.next_offset = base_offset
        self.first_timestamp: int | None = None  # of the first batch; None until it is known
        self.max_timestamp_value = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.sure_size = self.sure_offset = self.sure_timestamp = -1  # see `Segment.be_sure`
        self._bytes_since_index = 0
        self._recent = recent

    def note_batch(self, last_offset: int, timestamp: int, size_bytes: int, interval_bytes: int) -> None:
        """Account for a batch that lies at the end of the file now."""
        position = self.size_bytes
        if position == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp_value:
            self.max_timestamp_value = timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > interval_bytes:
            self._add_index_entries(last_offset, position)
        self._bytes_since_index += size_bytes
        _from_offset, lasts, positions = self._recent
        if len(lasts) >= _RECENT_BATCHES_MAX:
            half = _RECENT_BATCHES_MAX // 2
            self._recent = _, lasts, positions = lasts[half - 1] + 1, lasts[half:], positions[half:]
        positions.append(position)
        lasts.append(last_offset)
        self.next_offset = last_offset + 1
        self.size_bytes = position + size_bytes

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        """It is time for an entry of the indexes."""
        self._bytes_since_index = 0


class LogEnd:
    """The upper half of `PartitionLog`: one more batch."""

    __slots__ = (
        "_active",
        "_create_time",
        "appended_bytes",
        "appended_records",
        "config",
        "end_offset",
        "epochs",
        "producers",
        "size_bytes",
    )

    _active: SegmentEnd
    _create_time: bool
    appended_bytes: int
    appended_records: int
    config: LogConfig
    end_offset: int
    epochs: LeaderEpochs
    producers: ProducerTable
    size_bytes: int

    def append_as_leader(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """Append one sound batch of a client; its offset, leader epoch and (if so set) its time are filled in."""
        config = self.config
        if len(batch) > config.max_message_bytes:
            raise ApiError(
                Error.MESSAGE_TOO_LARGE,
                f"a batch of {len(batch)} bytes is over the limit of {config.max_message_bytes}",
            )
        if header.attributes & _CONTROL:
            raise ApiError(Error.INVALID_RECORD, "clients may not write control records")
        has_producer = header.producer_id >= 0
        if has_producer:
            repeated = self.producers.check(header)
            if repeated is not None:
                time_ms = NO_TIME if self._create_time else repeated.timestamp
                return Appended(repeated.first_offset, repeated.last_offset, time_ms, True)
        append_time_ms = NO_TIME
        if not self._create_time:
            append_time_ms = now_ms
            header = _stamp_append_time(batch, header, now_ms)
        elif (
            header.max_timestamp - now_ms > config.timestamp_after_max_ms
            or now_ms - header.base_timestamp > config.timestamp_before_max_ms
            or header.attributes & _LOG_APPEND_TIME
        ):
            refuse_timestamps(header, now_ms)
        base_offset = self._append(batch, header, leader_epoch, now_ms)
        if has_producer:
            self.producers.note(header, base_offset)
        return Appended(base_offset, self.end_offset - 1, append_time_ms, False)

    def _append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """Give a batch the next offsets and write it; returns its base offset."""
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        timestamp = header.max_timestamp
        size_bytes = len(batch)
        latest_epoch = self.epochs.latest
        if leader_epoch < latest_epoch:
            raise ApiError(Error.FENCED_LEADER_EPOCH, f"epoch {leader_epoch} is over: the log has {latest_epoch}")
        active = self._active
        if (
            active.size_bytes + size_bytes > active.sure_size
            or last_offset > active.sure_offset
            or timestamp > active.sure_timestamp
        ):
            active = self._active_for(size_bytes, last_offset, timestamp, now_ms)
        stamp(batch, base_offset, leader_epoch)
        self._write(active, batch)
        if leader_epoch != latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        active.note_batch(last_offset, timestamp, size_bytes, self.config.index_interval_bytes)
        self.end_offset = last_offset + 1
        self.size_bytes += size_bytes
        self.appended_bytes += size_bytes
        self.appended_records += self.end_offset - base_offset
        return base_offset

    def _active_for(self, size_bytes: int, last_offset: int, timestamp: int, now_ms: int) -> SegmentEnd:
        """The segment that takes the next batch, rolled if that is due, with its file open."""
        raise NotImplementedError

    def _write(self, active: SegmentEnd, batch: memoryview) -> None:
        """Write at the end of the file; after an error the file is put back to what it was."""
        file = active.file
        assert file is not None
        try:
            file.write((batch,), active.size_bytes)
        except OSError as error:
            self._put_back(active, error)

    def _put_back(self, active: SegmentEnd, error: OSError) -> None:
        """A write failed: raises what the client is told."""
        raise NotImplementedError
