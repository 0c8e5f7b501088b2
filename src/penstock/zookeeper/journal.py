"""The durable record of the znode tree: one snapshot and the journal of what came after it.

In the folder lie `snapshot.<zxid>` and `journal.<zxid>`, of the same number: the snapshot holds every transaction up to
it, the journal those behind it. A journal is a row of frames: a mark, the length and the CRC32C of the payload. **One
frame is written for all transactions that share a sync, and the next only after that sync.** So a crash can spoil the
last frame alone, which nobody was told about, and recovery cuts it off; a bad frame with a good one behind it was
damaged after it was synced, and recovery refuses to guess.

The CRC covers the position of a frame too, so that bytes inside a znode's data cannot pass for one.

Calls here block: run them in the disk's "sync" pool, except at the start. After a `NoSpaceError` the files are as they
were, and it can be tried again when there is room; any other error is final.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.base.crc import crc32c
from penstock.base.world import Disk, File, NoSpaceError, lacks_space, read_file, write_file_durably

_FRAME = struct.Struct(">4sII")  # mark, payload length, CRC32C
_POSITION = struct.Struct(">QI")  # what the CRC covers before the payload: position in the file, payload length
_MARK = b"\xf1ZJ\n"
_JOURNAL_HEADER = struct.Struct(">8sQ")  # magic with the format's number, zxid of the snapshot
_JOURNAL_MAGIC = b"PZJRNL\x00\x01"
_SNAPSHOT_MAGIC = b"PZSNAP\x00\x01"
_SNAPSHOT_HEADER = struct.Struct(">8sI")  # magic with the format's number, CRC32C of the rest


class JournalCorruptError(Exception):
    """The files were damaged after they were synced; starting from them could lose answered changes."""


class Recovered(NamedTuple):
    """What the folder held: the newest snapshot, if any, and the payloads of the frames behind it."""

    journal: Journal
    snapshot: bytes | None
    payloads: list[bytes]
    cut_bytes: int


class Journal:
    """The open journal. `size_bytes` says when it is time for the next snapshot."""

    def __init__(self, disk: Disk, folder: str, file: File, base_zxid: int, size_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._file = file
        self.base_zxid = base_zxid
        self.size_bytes = size_bytes

    @classmethod
    def recover(cls, disk: Disk, folder: str) -> Recovered:
        """Read the folder, cut a torn tail, and remove what a crash left of older rounds."""
        names = disk.list_dir(folder)
        snapshots = _numbered(names, "snapshot.")
        journals = _numbered(names, "journal.")
        base_zxid = max(snapshots, default=0)
        if journals and max(journals) > base_zxid:
            raise JournalCorruptError(f"{folder} has {_name('journal.', max(journals))} but not its snapshot")
        snapshot = _read_snapshot(disk, _path(folder, "snapshot.", base_zxid)) if snapshots else None
        path = _path(folder, "journal.", base_zxid)
        if base_zxid not in journals:
            _create_journal(disk, path, base_zxid)
        file = disk.open(path)
        try:
            payloads, end, cut_bytes = _read_frames(file, base_zxid)
            _make_durable(disk, folder, file, payloads, end)
        except BaseException:
            file.close()
            raise
        _remove_older(disk, folder, base_zxid)
        return Recovered(cls(disk, folder, file, base_zxid, end), snapshot, payloads, cut_bytes)

    def append(self, payload: bytes) -> None:
        """Add one frame and sync it: when this returns the payload is durable."""
        try:
            count = self._file.write([_frame_header(self.size_bytes, payload), payload], self.size_bytes)
        except OSError as error:
            if not lacks_space(error):
                raise
            self._file.truncate(self.size_bytes)  # should a crash undo that: recovery cuts a part of a frame too
            raise NoSpaceError.of(error) from error
        self.size_bytes += count
        self._file.sync()

    def rotate(self, snapshot: bytes, zxid: int) -> None:
        """Replace snapshot and journal: every transaction up to `zxid` is in the snapshot, none after it."""
        assert zxid > self.base_zxid, "a snapshot is newer than the one before"
        header = _SNAPSHOT_HEADER.pack(_SNAPSHOT_MAGIC, crc32c(snapshot))
        snapshot_path = _path(self._folder, "snapshot.", zxid)
        write_file_durably(self._disk, snapshot_path, header + snapshot)
        path = _path(self._folder, "journal.", zxid)
        try:
            _create_journal(self._disk, path, zxid)
        except NoSpaceError:  # the old journal goes on: the next start must not take the snapshot for all there is
            self._disk.remove(snapshot_path)
            self._disk.sync_dir(self._folder)
            raise
        self._file.close()
        self._file = self._disk.open(path)
        self.base_zxid = zxid
        self.size_bytes = _JOURNAL_HEADER.size
        _remove_older(self._disk, self._folder, zxid)

    def close(self) -> None:
        self._file.close()


def _name(prefix: str, zxid: int) -> str:
    return f"{prefix}{zxid:016x}"


def _path(folder: str, prefix: str, zxid: int) -> str:
    return f"{folder}/{_name(prefix, zxid)}"


def _numbered(names: list[str], prefix: str) -> set[int]:
    """The numbers of the files with this prefix; leftovers of unfinished writes (.tmp) do not count."""
    suffixes = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return {int(suffix, 16) for suffix in suffixes if len(suffix) == 16}


def _create_journal(disk: Disk, path: str, base_zxid: int) -> None:
    write_file_durably(disk, path, _JOURNAL_HEADER.pack(_JOURNAL_MAGIC, base_zxid))


def _make_durable(disk: Disk, folder: str, file: File, payloads: list[bytes], end: int) -> None:
    """Whoever wrote the last frame or renamed a file may have been killed before the sync, or the sync may have failed.

    A sync after a failed one can succeed without the data, so the last frame is written again.
    """
    if payloads:
        position = end - _FRAME.size - len(payloads[-1])
        file.write([_frame_header(position, payloads[-1]), payloads[-1]], position)
    file.truncate(end)
    file.sync()
    disk.sync_dir(folder)


def _remove_older(disk: Disk, folder: str, base_zxid: int) -> None:
    """Whatever is not of this round. If the removal is lost in a crash, the next start does it again."""
    keep = {_name("snapshot.", base_zxid), _name("journal.", base_zxid)}
    for name in disk.list_dir(folder):
        if name.startswith(("snapshot.", "journal.")) and name not in keep:
            disk.remove(f"{folder}/{name}")


def _read_snapshot(disk: Disk, path: str) -> bytes:
    content = read_file(disk, path)
    body = content[_SNAPSHOT_HEADER.size :]
    if len(content) < _SNAPSHOT_HEADER.size or _SNAPSHOT_HEADER.unpack_from(content) != (_SNAPSHOT_MAGIC, crc32c(body)):
        raise JournalCorruptError(f"{path} is damaged: its checksum does not match")
    return body


def _read_frames(file: File, base_zxid: int) -> tuple[list[bytes], int, int]:
    """The payloads, where the good frames end, and how many bytes lie behind that."""
    content = file.read(file.size(), 0)
    header = content[: _JOURNAL_HEADER.size]
    if header != _JOURNAL_HEADER.pack(_JOURNAL_MAGIC, base_zxid):
        raise JournalCorruptError(f"{file.path} is damaged: it does not begin as a journal of this number and format")
    payloads: list[bytes] = []
    position = _JOURNAL_HEADER.size
    while (payload := _frame_at(content, position)) is not None:
        payloads.append(payload)
        position += _FRAME.size + len(payload)
    for later in _marks_after(content, position):
        if _frame_at(content, later) is not None:
            raise JournalCorruptError(f"{file.path} is damaged at byte {position}: good data follows at byte {later}")
    return payloads, position, len(content) - position


def _frame_header(position: int, payload: bytes) -> bytes:
    return _FRAME.pack(_MARK, len(payload), _checksum(position, payload))


def _frame_at(content: bytes, position: int) -> bytes | None:
    """The payload of the frame that begins here, if it is whole and right."""
    if len(content) - position < _FRAME.size:
        return None
    mark, length, checksum = _FRAME.unpack_from(content, position)
    start = position + _FRAME.size
    if mark != _MARK or length > len(content) - start:
        return None
    payload = content[start : start + length]
    return payload if _checksum(position, payload) == checksum else None


def _marks_after(content: bytes, position: int) -> Iterator[int]:
    while (position := content.find(_MARK, position + 1)) >= 0:
        yield position


def _checksum(position: int, payload: bytes) -> int:
    checksum: int = crc32c(payload, crc32c(_POSITION.pack(position, len(payload))))
    return checksum
