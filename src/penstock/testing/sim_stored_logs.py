"""What each replica of a partition has on disk, followed from outside: one entry for each batch.

A `Replica` looks at the log of a broker and at the files of its machine, without being a process of it: looking costs
no virtual time and changes nothing. It keeps what it saw last when the broker is not there.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from penstock.log.partition_log import PartitionLog
from penstock.testing.sim_disk import SimDisk

_HEADER = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, checksum, attributes, last offset delta
_LENGTH_ENDS = 12


class StoredBatch(NamedTuple):
    """One batch as it lies in a file."""

    base_offset: int
    next_offset: int
    epoch: int
    checksum: int
    segment: int
    end_position: int

    def is_same(self, other: StoredBatch) -> bool:
        return self[:4] == other[:4]

    def __str__(self) -> str:
        return f"{self.base_offset}..{self.next_offset - 1} of epoch {self.epoch} ({self.checksum:08x})"


class Replica:
    """The batches of one replica, in order; `high_watermark` and `epoch` as the broker had them when last looked at."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.batches: list[StoredBatch] = []
        self.high_watermark = 0
        self.start_offset = 0
        self.epoch = -1
        self.is_leading = False
        self.is_lossy = False  # its machine has lost power, and the controller does not know yet what that has cost
        self.has_lost = False  # the same, until it is in sync again
        self.same_until = 0  # below this offset it was compared with what is committed
        self.end_offset = 0
        self._log: PartitionLog | None = None

    def is_news(self, log: PartitionLog) -> bool:
        """Whether the log is not as it was when last looked at."""
        return log is not self._log or log.end_offset != self.end_offset

    def look(self, log: PartitionLog, disk: SimDisk) -> bool:
        """Take over how the log is now; True if something that was there is gone."""
        is_cut = False
        if log is not self._log:
            is_cut = bool(self.batches)
            self._log, self.batches, self.same_until = log, [], 0
        while self.batches and self.batches[-1].next_offset > log.end_offset:
            self.batches.pop()
            is_cut = True
        self.end_offset = log.end_offset
        self.same_until = min(self.same_until, log.end_offset)
        self._read_on(log, disk)
        return is_cut

    def _read_on(self, log: PartitionLog, disk: SimDisk) -> None:
        bases = [segment.base_offset for segment in log.segments]
        last = self.batches[-1] if self.batches else None
        base, position = (last.segment, last.end_position) if last is not None else (bases[0], 0)
        while (last.next_offset if last is not None else 0) < log.end_offset:
            head = disk.content(f"{log.folder}/{base:020d}.log", position, position + _HEADER.size)
            if len(head) < _HEADER.size:
                later = [each for each in bases if each > base]
                if not later:
                    return  # an empty log that begins later
                base, position = later[0], 0
                continue
            base_offset, length, epoch, _, checksum, _, delta = _HEADER.unpack(head)
            position += _LENGTH_ENDS + length
            last = StoredBatch(base_offset, base_offset + delta + 1, epoch, checksum, base, position)
            self.batches.append(last)

    def forget(self) -> None:
        """What was there is not known any more, until the log is opened again."""
        self._log = None
