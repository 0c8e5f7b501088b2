"""Transactions over a log beside a dumb model: what a reader of committed records sees, whatever happens to the log.

The model is the list of all that was appended. A record is to be seen if it is in no transaction, or in one that was
committed; and only below the first transaction that is still open, or whose marker is not below the high watermark.
The reader does what Kafka's clients do: it reads up to the last stable offset, and leaves out what the list of aborted
transactions and the abort markers tell it to.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log.config import FOREVER, LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.testing.log_machine import LogMachine
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import each_batch, read_header
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.records import Record, build_batch, read_records

CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=150,
    retention_ms=-1,
    retention_bytes=-1,
    producer_id_expiration_ms=FOREVER,
)
PRODUCERS = 4


@dataclass
class Entry:
    """One batch: of a transaction (its number), of nobody's (None), or the marker that ends a transaction."""

    base_offset: int
    values: list[bytes]
    transaction: int | None = None
    is_marker: bool = False


@dataclass
class Model:
    """Everything that was appended, and how the transactions ended."""

    entries: list[Entry] = field(default_factory=list)
    committed: dict[int, bool] = field(default_factory=dict)
    """transaction → whether it was committed; open ones are not in it"""

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = [entry.base_offset for entry in self.entries if self._is_unstable(entry, high_watermark)]
        return min([high_watermark, *unstable])

    def _is_unstable(self, entry: Entry, high_watermark: int) -> bool:
        if entry.transaction is None or entry.is_marker:
            return False
        markers = [
            each.base_offset for each in self.entries if each.is_marker and each.transaction == entry.transaction
        ]
        return not markers or markers[0] >= high_watermark

    def visible(self, from_offset: int, last_stable_offset: int) -> list[bytes]:
        return [
            value
            for entry in self.entries
            if not entry.is_marker and (entry.transaction is None or self.committed.get(entry.transaction, False))
            for offset, value in enumerate(entry.values, entry.base_offset)
            if from_offset <= offset < last_stable_offset
        ]

    def cut(self, end_offset: int) -> None:
        """A crash took what was not synced."""
        gone = [entry for entry in self.entries if entry.base_offset >= end_offset]
        self.entries = self.entries[: len(self.entries) - len(gone)]
        for entry in gone:
            if entry.is_marker and entry.transaction is not None:
                self.committed.pop(entry.transaction, None)


class Bench:
    """A log, its model, and the producers that write to it."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.machine = LogMachine(self.disk, CONFIG)
        self.model = Model()
        self.open: dict[int, int] = {}  # producer → its open transaction
        self.epochs = dict.fromkeys(range(PRODUCERS), 0)
        self.transactions = 0
        self.written = 0
        self.high_watermark = 0

    @property
    def log(self) -> PartitionLog:
        return self.machine.log

    def write(self, producer: int | None, count: int) -> None:
        values = [b"%d" % (self.written + n) for n in range(count)]
        self.written += count
        records = [Record(n, 0, None, value + bytes(20)) for n, value in enumerate(values)]
        if producer is None:
            encoded = build_batch(records)
        else:
            state = self.log.producers.get(producer)
            epoch = self.epochs[producer]
            sequence = state.last_sequence + 1 if state is not None and state.epoch == epoch else 0
            encoded = build_batch(
                records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True
            )
            if producer not in self.open:
                self.transactions += 1
                self.open[producer] = self.transactions
        batch = memoryview(bytearray(encoded))
        appended = self.log.append_as_leader(batch, read_header(batch), 0, 0)
        transaction = None if producer is None else self.open[producer]
        self.model.entries.append(Entry(appended.base_offset, values, transaction))

    def end(self, producer: int, *, is_commit: bool, bumps_epoch: bool) -> None:
        """The marker; one that bumps the epoch as the second protocol does. A duplicate if nothing is open."""
        if bumps_epoch:
            self.epochs[producer] += 1
        appended = self.log.append_marker(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer,
            producer_epoch=self.epochs[producer],
            coordinator_epoch=0,
            leader_epoch=0,
            now_ms=0,
            transaction_version=2 if bumps_epoch else 1,
        )
        transaction = self.open.pop(producer, None)
        self.model.entries.append(Entry(appended.base_offset, [b""], transaction, is_marker=True))
        if transaction is not None:
            self.model.committed[transaction] = is_commit

    def advance(self, share: float) -> None:
        """The high watermark moves, not always to the end, but to the end of a batch."""
        ends = [entry.base_offset for entry in self.model.entries if entry.base_offset >= self.high_watermark]
        ends.append(self.log.end_offset)
        self.high_watermark = max(self.high_watermark, ends[round((len(ends) - 1) * share)])
        self.log.producers.high_watermark_moved(self.high_watermark)

    def start_again(self) -> None:
        """As a broker: what recovery kept is committed. Open transactions are known from the log."""
        self.model.cut(self.log.end_offset)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        self.open = {
            producer: transaction
            for producer, transaction in ((producer, self._open_transaction(producer)) for producer in range(PRODUCERS))
            if transaction is not None
        }
        for producer in range(PRODUCERS):
            state = self.log.producers.get(producer)
            self.epochs[producer] = state.epoch if state is not None else 0
        self.advance(1)

    def _open_transaction(self, producer: int) -> int | None:
        state = self.log.producers.get(producer)
        if state is None or state.transaction_first_offset < 0:
            return None
        (entry,) = [each for each in self.model.entries if each.base_offset == state.transaction_first_offset]
        return entry.transaction

    def check(self, chance: random.Random) -> None:
        log = self.log
        stable = min(self.high_watermark, log.producers.first_unstable_offset)
        assert stable == self.model.last_stable_offset(self.high_watermark)
        for start in {0, chance.randrange(stable + 1)}:
            assert read_committed(log, start, stable, chance) == self.model.visible(start, stable)


def read_committed(log: PartitionLog, offset: int, end_offset: int, chance: random.Random) -> list[bytes]:
    """As a client: fetch after fetch, each with its own list of aborted transactions."""
    seen: list[bytes] = []
    while offset < end_offset:
        found = log.read(offset, chance.choice([1, 200, 1000]), end_offset=end_offset)
        assert found.size_bytes
        aborted = log.aborted_transactions(offset, found.offset_bound)
        assert aborted is not None
        waiting = sorted((entry.first_offset, entry.producer_id) for entry in aborted)
        left_out: set[int] = set()
        for header, batch in each_batch(memoryview(found.file.read(found.size_bytes, found.position))):
            while waiting and waiting[0][0] <= header.last_offset:
                left_out.add(waiting.pop(0)[1])
            if header.is_control:
                if read_control_record(batch).type is ControlType.ABORT:
                    left_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                records = [record for record in read_records(batch) if record.offset >= offset]
                seen += [bytes(record.value or b"").rstrip(b"\0") for record in records]
            next_offset = header.next_offset
        offset = next_offset
    return seen


producers = st.integers(0, PRODUCERS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.none() | producers, st.integers(1, 3)),
        st.tuples(st.just("write"), producers, st.integers(1, 3)),
        st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
        st.tuples(st.just("advance"), st.sampled_from([0.0, 0.5, 1.0])),
        st.tuples(st.sampled_from(["flush", "roll", "restart", "kill", "crash", "checkpoint"])),
    ),
    max_size=60,
)


def apply(bench: Bench, step: tuple[Any, ...]) -> None:
    kind, *arguments = step
    if kind == "write":
        bench.write(*arguments)
    elif kind == "end":
        producer, is_commit, bumps_epoch = arguments
        bench.end(producer, is_commit=is_commit, bumps_epoch=bumps_epoch)
    elif kind == "advance":
        bench.advance(*arguments)
    elif kind in ("flush", "roll", "checkpoint"):
        getattr(bench.machine, kind)()
    else:
        if kind == "crash":
            bench.disk.crash(lost="all")
            bench.machine.start()
        else:
            getattr(bench.machine, kind)()
        bench.start_again()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(steps, st.integers(0, 1000))
def test_a_reader_of_committed_records_sees_what_was_committed(script: list[tuple[Any, ...]], seed: int) -> None:
    bench = Bench()
    chance = random.Random(seed)
    for number, step in enumerate(script):
        apply(bench, step)
        if number % 7 == 0:
            bench.check(chance)
    bench.advance(1)
    bench.check(chance)
