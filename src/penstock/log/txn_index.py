"""The transaction index of a segment: the aborted transactions whose markers lie in it.

    version 2 | producer id 8 | first offset 8 | last offset (the marker's) 8 | last stable offset 8

A segment without aborted transactions has no such file. Entries stay in memory as well: aborts are rare. Those of an
older segment are read when they are first asked for, perhaps by a thread that answers a reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from threading import Lock
from typing import NamedTuple

from penstock.log.file_cache import FileCache

ENTRY = Struct(">hqqqq")
VERSION = 0
_loading = Lock()  # two threads that read the same file would otherwise both set the entries, and lose one added since


class AbortedTransaction(NamedTuple):
    """Records of `producer_id` from `first_offset` to the marker at `last_offset` are not to be shown."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_changed", "_entries", "_files", "_stem", "_written", "suffix")

    def __init__(self, files: FileCache, stem: str, suffix: str, *, exists: bool) -> None:
        self._files = files
        self._stem = stem  # the segment's
        self.suffix = suffix
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self._written = 0  # how many of the entries are in the file
        self._changed = False  # the file has been changed since it was asked about

    @property
    def path(self) -> str:
        return self._stem + self.suffix

    def append(self, aborted: AbortedTransaction) -> None:
        self.entries().append(aborted)

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are known without reading a file."""
        return self._entries is not None

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in the order of their markers. Any thread may ask; the first blocks."""
        entries = self._entries
        if entries is None:
            with _loading:
                entries = self._entries
                if entries is None:
                    entries = read_entries(_content(self._files, self.path))
                    self._written = len(entries)
                    self._entries = entries
        return entries

    def write_pending(self) -> bool:
        """Put what only memory knows into the file; whether the file has changed and is not synced."""
        if self._entries is not None and len(self._entries) > self._written:
            new = self._entries[self._written :]
            block = b"".join(ENTRY.pack(VERSION, *entry) for entry in new)
            self._files.get(self.path, create=True).write([block], self._written * ENTRY.size)
            self._written += len(new)
            self._changed = True
        changed, self._changed = self._changed, False
        return changed

    def keep_below(self, offset: int) -> None:
        """Forget transactions whose marker is at or after an offset."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < self._written:
            self._cut_file(len(kept))
        entries[:] = kept

    def clear(self) -> None:
        self._entries = []
        try:
            self._cut_file(0)
        except FileNotFoundError:
            self._written = 0

    def _cut_file(self, count: int) -> None:
        self._files.get(self.path).truncate(count * ENTRY.size)
        self._written = count
        self._changed = True


def aborted_between(
    indexes: Iterable[TransactionIndex], start_offset: int, end_offset: int, *, may_wait: bool = True
) -> list[AbortedTransaction] | None:
    """The aborted transactions of these segments that touch a range of offsets; None if it would wait for the disk."""
    found = []
    for index in indexes:
        if not (may_wait or index.is_loaded):
            return None
        for entry in index.entries():
            if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found
    return found


def read_entries(content: bytes) -> list[AbortedTransaction]:
    """The whole entries of a file's content."""
    whole = len(content) - len(content) % ENTRY.size
    return [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(content[:whole])]


def _content(files: FileCache, path: str) -> bytes:
    try:
        file = files.get(path)
    except FileNotFoundError:
        return b""
    return file.read(file.size(), 0)
