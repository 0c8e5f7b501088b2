"""Index files: fixed-size entries of two numbers that only grow, searched by halving.

    .index      relative offset of a batch's last record (4 bytes) | position of the batch in the log file (4 bytes)
    .timeindex  largest timestamp so far (8 bytes) | relative offset of the batch it came from (4 bytes)

The newest entries stay in memory and are written in groups; the older ones are looked up in the file, which lies in
the page cache, so that an index costs no memory of ours. Apache Kafka pads the index of an active segment with zeros:
entries of zeros at the end do not count. Offsets here are relative to the segment's base offset.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter
from struct import Struct

from penstock.base.world import File
from penstock.log.file_cache import FileCache

OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
PENDING_ENTRIES_MAX = 256
BLOCK_ENTRIES = 32


_NO_ENTRIES = array("q"), array("q")  # of all indexes that have none in memory; never appended to


class DamagedIndex(Exception):
    """An index that does not fit its log: it must be built anew."""


class SparseIndex:
    """One index file and the entries that are not in it yet."""

    __slots__ = ("_entry", "_files", "_pending", "_pinned", "_stem", "_stored", "_suffix", "is_held")

    def __init__(self, files: FileCache, stem: str, suffix: str, entry: Struct, *, fresh: bool = False) -> None:
        self._files = files
        self._stem = stem  # the segment's
        self._suffix = suffix
        self._pinned: File | None = None
        self._entry = entry
        self._pending = _NO_ENTRIES  # replaced, never emptied: a thread that reads may hold the old pair
        self._stored: int | None = 0 if fresh else None  # entries in the file; None: not looked at yet
        self.is_held = False  # keep all entries in memory: the file still belongs to the index that this one replaces

    @property
    def path(self) -> str:
        return self._stem + self._suffix

    def __len__(self) -> int:
        return self._stored_count() + len(self._pending[0])

    @property
    def is_warm(self) -> bool:
        """Whether an entry can be found without waiting for the disk."""
        if not self._stored:
            return self._stored is not None
        file = self._pinned or self._files.peek(self.path)
        return file is not None and file.is_cached(0, self._stored * self._entry.size)

    def pin(self, file: File | None = None) -> None:
        """Use this file from now on (the one that is there now if none is given), whatever its name leads to later."""
        self._pinned = file or self._open()

    def unpin(self, suffix: str) -> None:
        """Go by a name again, the one that the file has now."""
        self._suffix = suffix
        self._pinned = None

    def _open(self, *, create: bool = False) -> File:
        """The file. Another thread may pin it while this one looks its name up: then the pinned one counts."""
        try:
            file = self._files.get(self.path, create=create)
        except FileNotFoundError:
            if self._pinned is None:
                raise
            return self._pinned
        return self._pinned or file

    @property
    def size_bytes(self) -> int:
        return len(self) * self._entry.size

    def append(self, key: int, value: int) -> None:
        """Add an entry; a disk that cannot take it now will be asked again."""
        if self._pending is _NO_ENTRIES:
            self._pending = array("q"), array("q")
        keys, values = self._pending
        values.append(value)
        keys.append(key)
        if len(keys) >= PENDING_ENTRIES_MAX and not self.is_held:
            try:
                self.write_pending()
            except OSError:
                pass

    def write_pending(self) -> None:
        """Put the entries of memory into the file, which exists afterwards even when there are none."""
        stored = self._stored_count()
        file = self._pinned or self._open(create=True)
        keys, values = self._pending
        if stored == 0 and file.size() > 0:  # of an index that this one replaces
            file.truncate(0)
        if keys:
            file.write([b"".join(map(self._entry.pack, keys, values))], stored * self._entry.size)
            self._stored = stored + len(keys)
            self._pending = _NO_ENTRIES

    def find_by_key(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above this one."""
        keys, values = self._pending
        if keys and keys[0] <= key:
            at = bisect_right(keys, key) - 1
            return keys[at], values[at]
        return self._search(key, 0)

    def find_by_value(self, value: int) -> tuple[int, int] | None:
        """The last entry whose value is not above this one."""
        keys, values = self._pending
        if keys and values[0] <= value:
            at = bisect_right(values, value, 0, len(keys)) - 1
            return keys[at], values[at]
        return self._search(value, 1)

    def first_from_value(self, value: int) -> tuple[int, int] | None:
        """The first entry whose value is not below this one."""
        keys, values = self._pending
        low, high = 0, self._stored_count()
        if high == 0 or self._read(high - 1)[1] < value:
            at = bisect_left(values, value, 0, len(keys))
            return (keys[at], values[at]) if at < len(keys) else None
        while low < high:
            middle = (low + high) // 2
            if self._read(middle)[1] < value:
                low = middle + 1
            else:
                high = middle
        return self._read(low)

    def last(self) -> tuple[int, int] | None:
        keys, values = self._pending
        if keys:
            return keys[-1], values[-1]
        stored = self._stored_count()
        return self._read(stored - 1) if stored else None

    def entries(self) -> Iterator[tuple[int, int]]:
        for at in range(self._stored_count()):
            yield self._read(at)
        yield from zip(*self._pending, strict=True)

    def clear(self) -> None:
        """Forget every entry, in the file too."""
        self._pending = _NO_ENTRIES
        self._stored = 0
        try:
            file = self._open()
        except FileNotFoundError:
            return
        file.truncate(0)

    def keep_first(self, count: int) -> None:
        """Forget the entries after the first `count`."""
        stored = self._stored_count()
        if count < stored:
            self._open().truncate(count * self._entry.size)
            self._stored = stored = count
        keys, values = self._pending
        self._pending = keys[: count - stored], values[: count - stored]

    def _search(self, wanted: int, field: int) -> tuple[int, int] | None:
        """The last entry in the file of which a field is not above a number.

        Batches lie evenly enough that the block around the place where it should be nearly always has it.
        """
        low, high = 0, self._stored_count()
        if high > BLOCK_ENTRIES:
            last = self._read(high - 1)
            guess = wanted * high // last[field] if last[field] > 0 else 0
            first = min(max(0, guess - BLOCK_ENTRIES // 2), high - BLOCK_ENTRIES)
            block = self._read_block(first, BLOCK_ENTRIES)
            if block[0][field] > wanted:
                high = first
            elif block[-1][field] > wanted or first + BLOCK_ENTRIES == high:
                return _last_not_above(block, wanted, field)
            else:
                low = first + BLOCK_ENTRIES - 1
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self._read(middle)[field] <= wanted:
                low = middle
            else:
                high = middle
        return _last_not_above(self._read_block(low, high - low), wanted, field) if low < high else None

    def _read_block(self, first: int, count: int) -> list[tuple[int, int]]:
        size = self._entry.size
        raw = self._open().read(count * size, first * size)
        if len(raw) < count * size:
            raise DamagedIndex(f"{self.path} ends before entry {first + count - 1}")
        return list(self._entry.iter_unpack(raw))

    def _read(self, at: int) -> tuple[int, int]:
        size = self._entry.size
        raw = self._open().read(size, at * size)
        if len(raw) < size:
            raise DamagedIndex(f"{self.path} ends before entry {at}")
        first, second = self._entry.unpack(raw)
        return first, second

    def _stored_count(self) -> int:
        if self._stored is None:
            self._stored = self._count_in_file()
        return self._stored

    def _count_in_file(self) -> int:
        try:
            size_bytes = self._open().size()
        except FileNotFoundError:
            raise DamagedIndex(f"{self.path} is missing") from None
        count, rest = divmod(size_bytes, self._entry.size)
        if rest:
            raise DamagedIndex(f"{self.path} has {size_bytes} bytes, not a multiple of {self._entry.size}")
        if count and self._read(count - 1) == (0, 0):
            return self._count_before_zeros(count)
        return count

    def _count_before_zeros(self, count: int) -> int:
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._read(middle) == (0, 0):
                high = middle
            else:
                low = middle + 1
        return low


def _last_not_above(entries: list[tuple[int, int]], wanted: int, field: int) -> tuple[int, int] | None:
    at = bisect_right(entries, wanted, key=itemgetter(field))
    return entries[at - 1] if at else None
