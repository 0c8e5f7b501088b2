"""Copies of logs: whatever happens to the log in between, in the end the copy has what the log has."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.broker.log_copy import copy_batches, cut_copy
from penstock.log.config import LogConfig
from penstock.log.partition_log import PartitionLog
from penstock.testing.log_compaction import compact
from penstock.testing.log_machine import FixedClock, read_all
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import each_batch, read_header
from penstock.wire.records import Record, build_batch

PARTITION = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=1000)
TOPIC_ID = UUID(int=9)


class Logs:
    """A log, and its copy in another folder."""

    def __init__(self) -> None:
        clock = FixedClock()
        disk = SimDisk(wall_ms=clock.wall_ms)
        disk.make_dirs("/a")
        disk.make_dirs("/b")
        self.log, self.copy = (
            PartitionLog.open(disk, clock, path, PARTITION, CONFIG, topic_id=TOPIC_ID, clean_shutdown=True)
            for path in ("/a", "/b")
        )
        self.epoch = 0
        self.seen_cuts = -1

    def append(self, epoch: int, count: int = 1, records: int = 1) -> None:
        """What an epoch has at an offset is always the same, as with leaders."""
        for _ in range(count):
            offset = self.log.end_offset
            rows = [Record(offset + n, 1000, None, b"%d %d " % (epoch, offset) + bytes(90)) for n in range(records)]
            batch = bytearray(build_batch(rows, base_offset=offset, leader_epoch=epoch))
            self.log.append_as_follower(memoryview(batch))
        self.epoch = max(self.epoch, epoch)

    def copy_some(self, max_bytes: int) -> int:
        if self.log.cuts != self.seen_cuts:
            self.seen_cuts = self.log.cuts
            cut_copy(self.log, self.copy)
        return copy_batches(self.log, self.copy, max_bytes)

    def check_level(self) -> None:
        while self.copy_some(500):
            pass
        log, copy = self.log, self.copy
        assert (copy.end_offset, copy.start_offset) == (log.end_offset, log.start_offset)
        assert content(copy) == content(log)
        if log.start_offset < log.end_offset:
            assert copy.epochs.latest == log.epochs.latest


def content(log: PartitionLog) -> list[bytes]:
    """The batches from the start on."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = log.read(offset, 1 << 20, end_offset=log.end_offset)
        for header, batch in each_batch(memoryview(part.file.read(part.size_bytes, part.position))):
            found.append(bytes(batch))
            offset = header.next_offset
    return found


def test_a_log_is_copied_in_pieces() -> None:
    logs = Logs()
    logs.append(0, 20)
    assert logs.copy_some(1000) > 500
    assert 0 < logs.copy.end_offset < 20
    logs.append(1, 5)
    logs.check_level()
    assert logs.copy_some(1000) == 0


def test_a_log_that_begins_inside_a_batch() -> None:
    logs = Logs()
    logs.append(0, 5, records=4)
    logs.log.advance_start_offset(6)
    logs.check_level()
    assert logs.copy.start_offset == 6


def test_an_empty_log_that_begins_elsewhere() -> None:
    logs = Logs()
    logs.append(0, 5)
    logs.check_level()
    logs.log.truncate_fully_and_start_at(50)
    logs.check_level()
    logs.append(3, 2)
    logs.check_level()


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 5)),
    st.tuples(st.just("copy"), st.integers(1, 2000)),
    st.tuples(st.just("cut"), st.integers(0, 30)),
    st.tuples(st.just("start"), st.integers(0, 30)),
    st.tuples(st.just("anew"), st.integers(0, 60)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=20))
def test_whatever_happens_the_copy_becomes_level(steps: list[tuple[str, int] | tuple[str, int, int]]) -> None:
    logs = Logs()
    for kind, number, *more in steps:
        log = logs.log
        if kind == "append":
            logs.append(max(0, log.epochs.latest) + number, more[0], records=1)
        elif kind == "copy":
            logs.copy_some(number)
        elif kind == "cut":
            log.truncate_to(max(log.start_offset, log.end_offset - number))
        elif kind == "start":
            log.advance_start_offset(min(log.end_offset, log.start_offset + number))
        else:
            log.truncate_fully_and_start_at(number)
    logs.check_level()


def test_a_compacted_log_is_copied_with_its_gaps() -> None:
    logs = Logs()
    for number in range(30):
        records = [Record(n, number, b"key %d" % (number % 3), b"x" * 90) for n in range(2)]
        batch = memoryview(bytearray(build_batch(records)))
        logs.log.append_as_leader(batch, read_header(batch), 0, number)
    logs.log.roll(1)
    logs.log.flush()
    compact(logs.log, 1)
    before = read_all(logs.log)
    assert len(before) == 3
    while copy_batches(logs.log, logs.copy, 200):
        pass
    assert read_all(logs.copy) == before
    assert logs.copy.end_offset == logs.log.end_offset
