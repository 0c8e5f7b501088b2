"""Looking into the files of a log without opening it: for `penstock log dump` and `penstock log verify`.

Nothing is changed and nothing is trusted. It works on a segment file, on a partition's folder and on a whole log
directory, ours or Apache Kafka's, also on one that a crash has left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from penstock.base.world import Disk, File, read_file
from penstock.log import names
from penstock.log.checkpoints import DamagedCheckpoint, read_epochs
from penstock.log.partition_metadata import read_topic_id
from penstock.log.producer_snapshot import DamagedSnapshot, decode_snapshot
from penstock.log.producers import ProducerState
from penstock.log.scan import header_problem
from penstock.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from penstock.log.transaction_check import TransactionCheck
from penstock.log.txn_index import ENTRY as TXN_ENTRY
from penstock.log.txn_index import AbortedTransaction, read_entries
from penstock.wire.batch import CONTROL, HEADER_SIZE, LOG_OVERHEAD, BatchHeader, problem_of_batch, read_header
from penstock.wire.control import ControlRecord, read_control_record
from penstock.wire.records import Record, RecordError, read_records


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be, and where."""

    path: str
    position: int | None
    text: str


@dataclass(frozen=True, slots=True)
class InspectedBatch:
    """One batch of a segment file. Records are only there if they were asked for."""

    path: str
    position: int
    header: BatchHeader
    problem: str | None
    records: list[Record] = field(default_factory=list)
    control: ControlRecord | None = None


@dataclass(frozen=True, slots=True)
class FolderSummary:
    """What a verification has seen."""

    path: str
    segments: int
    batches: int
    size_bytes: int
    start_offset: int | None
    end_offset: int | None
    open_transactions: int = 0
    first_open_offset: int | None = None


def segment_files(disk: Disk, path: str) -> list[str]:
    """The log files at a path: itself, those of a partition's folder, or those of all partitions of a log directory."""
    if not disk.is_dir(path):
        return [path]
    entries = disk.list_dir(path)
    found = [f"{path}/{name}" for name in entries if names.offset_of(name, names.LOG) is not None]
    if found:
        return found
    folders = [f"{path}/{name}" for name in entries if names.partition_of_folder(name) is not None]
    return [file for folder in folders if disk.is_dir(folder) for file in segment_files(disk, folder)]


def partition_folders(disk: Disk, path: str) -> list[str]:
    """The partitions' folders at a path: itself, or those of a log directory."""
    entries = disk.list_dir(path)
    inside = [f"{path}/{name}" for name in entries if names.partition_of_folder(name) is not None]
    inside = [folder for folder in inside if disk.is_dir(folder)]
    return inside or [path]


def read_segment(disk: Disk, path: str, *, with_records: bool = False) -> Iterator[InspectedBatch | Problem]:
    """The batches of one log file, in order; a `Problem` where no batch can be found any more."""
    file = disk.open(path)
    try:
        yield from _read_segment(file, path, with_records)
    finally:
        file.close()


def _read_segment(file: File, path: str, with_records: bool) -> Iterator[InspectedBatch | Problem]:
    position, end = 0, file.size()
    while position < end:
        head = file.read(HEADER_SIZE, position)
        if len(head) < HEADER_SIZE:
            yield Problem(path, position, f"the last {len(head)} bytes are less than a header")
            return
        header = read_header(head)
        problem = header_problem(header, end - position)
        if problem is not None:
            yield Problem(path, position, problem)
            return
        batch = memoryview(file.read(header.length + LOG_OVERHEAD, position))
        yield _inspect(path, position, header, batch, with_records)
        position += len(batch)


def _inspect(path: str, position: int, header: BatchHeader, batch: memoryview, with_records: bool) -> InspectedBatch:
    problem = problem_of_batch(batch, header)
    is_marker = bool(header.attributes & CONTROL and header.record_count)
    if not (with_records or is_marker) or problem is not None:
        return InspectedBatch(path, position, header, problem)
    try:
        if is_marker:
            return InspectedBatch(path, position, header, None, control=read_control_record(batch))
        return InspectedBatch(path, position, header, None, records=read_records(batch))
    except RecordError as error:
        return InspectedBatch(path, position, header, f"its records cannot be read: {error}")


def verify_folder(disk: Disk, folder: str, *, with_records: bool = False) -> Iterator[Problem | FolderSummary]:
    """Everything that is wrong in a partition's folder, and at the end a summary."""
    logs = [name for name in disk.list_dir(folder) if names.offset_of(name, names.LOG) is not None]
    check = _FolderCheck(disk, folder, with_records)
    for name in logs:
        yield from check.segment(name, is_last=name == logs[-1])
    yield from check.other_files()
    yield check.summary(len(logs))


class _FolderCheck:
    """One walk through a folder."""

    def __init__(self, disk: Disk, folder: str, with_records: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._with_records = with_records
        self._next_offset: int | None = None
        self._start_offset: int | None = None
        self._epoch = -1
        self._batches = 0
        self._size_bytes = 0
        self._may_lack_indexes = False  # those of the last segment are written when it is closed
        self._transactions = TransactionCheck()

    def segment(self, name: str, *, is_last: bool) -> Iterator[Problem]:
        self._may_lack_indexes = is_last
        path = f"{self._folder}/{name}"
        base_offset = names.offset_of(name, names.LOG)
        assert base_offset is not None
        if self._start_offset is None:
            self._start_offset = base_offset
        if self._next_offset is not None and base_offset < self._next_offset:
            yield Problem(path, None, f"begins at {base_offset}, but the segment before it ends at {self._next_offset}")
        self._next_offset = base_offset
        batches: dict[int, BatchHeader] = {}
        for item in read_segment(self._disk, path, with_records=self._with_records):
            if isinstance(item, Problem):
                yield item
                continue
            batches[item.position] = item.header
            self._transactions.batch(item.header, item.control)
            yield from self._batch(item)
        self._size_bytes += self._disk.file_size(path)
        yield from self._offset_index(path.removesuffix(names.LOG) + names.INDEX, base_offset, batches)
        yield from self._time_index(path.removesuffix(names.LOG) + names.TIME_INDEX, base_offset, batches)
        yield from self._txn_index(path.removesuffix(names.LOG) + names.TXN_INDEX)

    def _batch(self, item: InspectedBatch) -> Iterator[Problem]:
        header = item.header
        self._batches += 1
        if item.problem is not None:
            yield Problem(item.path, item.position, item.problem)
        if self._next_offset is not None and header.base_offset < self._next_offset:
            text = f"base offset {header.base_offset} where {self._next_offset} or more must follow"
            yield Problem(item.path, item.position, text)
        if 0 <= header.leader_epoch < self._epoch:
            yield Problem(item.path, item.position, f"leader epoch {header.leader_epoch} after {self._epoch}")
        self._epoch = max(self._epoch, header.leader_epoch)
        self._next_offset = header.next_offset

    def _offset_index(self, path: str, base_offset: int, batches: dict[int, BatchHeader]) -> Iterator[Problem]:
        entries = yield from self._index_entries(path, OFFSET_ENTRY.size)
        last = -1
        for at, (offset, position) in enumerate(OFFSET_ENTRY.iter_unpack(entries)):
            header = batches.get(position)
            where = at * OFFSET_ENTRY.size
            if header is None:
                yield Problem(path, where, f"no batch begins at {position}")
            elif header.last_offset != base_offset + offset:
                yield Problem(
                    path, where, f"says offset {base_offset + offset}, the batch ends at {header.last_offset}"
                )
            if offset <= last:
                yield Problem(path, where, f"offset {base_offset + offset} does not ascend")
            last = offset

    def _time_index(self, path: str, base_offset: int, batches: dict[int, BatchHeader]) -> Iterator[Problem]:
        entries = yield from self._index_entries(path, TIME_ENTRY.size)
        by_last_offset = {header.last_offset: header for header in batches.values()}
        last = -1
        for at, (timestamp, offset) in enumerate(TIME_ENTRY.iter_unpack(entries)):
            header = by_last_offset.get(base_offset + offset)
            where = at * TIME_ENTRY.size
            if header is None:
                yield Problem(path, where, f"no batch ends at offset {base_offset + offset}")
            elif header.max_timestamp != timestamp:
                yield Problem(path, where, f"says time {timestamp}, the batch has {header.max_timestamp}")
            if timestamp < last:
                yield Problem(path, where, f"time {timestamp} goes back")
            last = timestamp

    def _txn_index(self, path: str) -> Iterator[Problem]:
        try:
            entries = read_txn_index(self._disk, path)
        except FileNotFoundError:
            entries = []
        problems = [Problem(path, None, text) for text in self._transactions.end_of_segment(entries)]
        if not self._may_lack_indexes:
            yield from problems

    def _index_entries(self, path: str, entry_bytes: int) -> Generator[Problem, None, bytes]:
        """The content without Kafka's padding of zeros."""
        try:
            content = read_file(self._disk, path)
        except FileNotFoundError:
            if not self._may_lack_indexes:
                yield Problem(path, None, "is missing")
            return b""
        if len(content) % entry_bytes:
            yield Problem(path, None, f"{len(content)} bytes are not whole entries of {entry_bytes}")
        end = len(content) - len(content) % entry_bytes
        while end and not any(content[end - entry_bytes : end]):
            end -= entry_bytes
        return content[:end]

    def other_files(self) -> Iterator[Problem]:
        for name in self._disk.list_dir(self._folder):
            path = f"{self._folder}/{name}"
            if name.endswith(names.SNAPSHOT):
                try:
                    read_snapshot(self._disk, path)
                except DamagedSnapshot as problem:
                    yield Problem(path, None, str(problem))
            elif name.endswith(names.TXN_INDEX) and self._disk.file_size(path) % TXN_ENTRY.size:
                yield Problem(path, None, f"not whole entries of {TXN_ENTRY.size} bytes")
        try:
            read_epochs(self._disk, f"{self._folder}/{names.EPOCHS_FILE}")
        except DamagedCheckpoint as problem:
            yield Problem(f"{self._folder}/{names.EPOCHS_FILE}", None, str(problem))
        path = f"{self._folder}/{names.PARTITION_METADATA_FILE}"
        if self._disk.exists(path) and read_topic_id(self._disk, self._folder) is None:
            yield Problem(path, None, "does not say which topic it is")

    def summary(self, segments: int) -> FolderSummary:
        return FolderSummary(
            self._folder,
            segments,
            self._batches,
            self._size_bytes,
            self._start_offset,
            self._next_offset,
            self._transactions.open_count,
            self._transactions.first_open_offset,
        )


def read_offset_index(disk: Disk, path: str, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) pairs of an index file, without padding."""
    content = read_file(disk, path)
    whole = content[: len(content) - len(content) % OFFSET_ENTRY.size]
    pairs = [(base_offset + offset, position) for offset, position in OFFSET_ENTRY.iter_unpack(whole)]
    return [pair for at, pair in enumerate(pairs) if pair[1] or at == 0]


def read_time_index(disk: Disk, path: str, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, offset) pairs of a time index file, without padding."""
    content = read_file(disk, path)
    whole = content[: len(content) - len(content) % TIME_ENTRY.size]
    pairs = [(timestamp, base_offset + offset) for timestamp, offset in TIME_ENTRY.iter_unpack(whole)]
    return [pair for pair in pairs if pair != (0, base_offset)]


def read_txn_index(disk: Disk, path: str) -> list[AbortedTransaction]:
    return read_entries(read_file(disk, path))


def read_snapshot(disk: Disk, path: str) -> list[ProducerState]:
    """The producers of a snapshot file; DamagedSnapshot if it is not whole."""
    return decode_snapshot(read_file(disk, path))


__all__ = [
    "DamagedSnapshot",
    "FolderSummary",
    "InspectedBatch",
    "Problem",
    "partition_folders",
    "read_offset_index",
    "read_segment",
    "read_snapshot",
    "read_time_index",
    "read_txn_index",
    "segment_files",
    "verify_folder",
]
