"""Following a growing column without losing late rows and without doubling others: the rules, pure.

A transaction may take its number or time now and commit later, so a row can appear *below* the largest value that was
seen. Each batch therefore looks again at a window below its position, `overlap` wide, and remembers what it has already
handed out from there: a digest of each row of the window, in the offset that Spark keeps in its checkpoint.

    … ──────(position − overlap)════ window ════(position)──── new rows ────(next position) …
                                     seen before: left out     handed out

An offset is a position and the digests of all rows in the window below it, as the planner saw them. A batch from one
offset to the next hands out
  * of the old window: rows whose digest the old offset does not have;
  * above the old position: all rows up to the new one;
  * of the new window: only rows whose digest the new offset has. Others appeared after it was planned; the next
    batch finds them, as they are in its old window.
So whatever commits while a batch is planned, read, or read again after a crash, is in this batch or in the next, never
in both. What appears below the window is not looked for any more.

The digest is of the whole row, so a row that changed again with the same value of the column is handed out again. Equal
rows (of a table without a key) are told apart by counting.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b

DIGEST_BYTES = 9
"""as text these are twelve characters; two different rows in a window of 100,000 meet once in 10^16 rows"""
_DIGEST_CHARACTERS = DIGEST_BYTES * 4 // 3

Position = int | Decimal | datetime
Overlap = int | Decimal | timedelta
Digests = frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a query has come. No position: it has read nothing."""

    position: Position | None = None
    seen: Digests = frozenset()


@dataclass(frozen=True, slots=True)
class Interval:
    """Values above the first and up to the second; None: from the beginning."""

    above: Position | None
    up_to: Position

    def has(self, value: Position) -> bool:
        return value <= self.up_to and (self.above is None or self.above < value)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read from one offset to the next: `whole` without looking closer, `window` row by row."""

    whole: Interval | None
    window: tuple[Interval, ...]


def window_of(position: Position, overlap: Overlap) -> Interval:
    """The window below a position."""
    return Interval(_less(position, overlap), position)


def plan(start: Offset, end: Offset, overlap: Overlap) -> Batch:
    """The intervals between two offsets, of which none overlap."""
    if end.position is None:
        return Batch(None, ())
    new = window_of(end.position, overlap)
    if start.position is None:
        assert new.above is not None
        return Batch(Interval(None, new.above), (new,))
    old = window_of(start.position, overlap)
    assert new.above is not None
    if new.above > start.position:  # type: ignore[operator]
        return Batch(Interval(start.position, new.above), (old, new))
    above = Interval(start.position, end.position)
    return Batch(None, (old, above) if end.position > start.position else (old,))  # type: ignore[operator]


class WindowFilter:
    """Chooses rows of the windows of one batch. Rows that are equal must all come through the same filter."""

    def __init__(self, start: Offset, end: Offset, overlap: Overlap) -> None:
        assert end.position is not None
        self._start = start.seen
        self._end = end.seen
        self._new = window_of(end.position, overlap)
        self._digests = Digester()

    def wants(self, value: Position, row: Sequence[object]) -> bool:
        digest = self._digests.digest(row)
        return digest not in self._start and (digest in self._end or not self._new.has(value))


class Digester:
    """Digests of rows; the second of two equal rows has another one than the first."""

    def __init__(self) -> None:
        self._counts: Counter[bytes] = Counter()

    def digest(self, row: Sequence[object]) -> bytes:
        first = _digest(b"".join(_encoded(value) for value in row))
        self._counts[first] += 1
        count = self._counts[first]
        return first if count == 1 else _digest(first + count.to_bytes(8, "big"))


def digests_as_text(digests: Digests) -> str:
    return base64.urlsafe_b64encode(b"".join(sorted(digests))).decode()


def digests_from_text(text: str) -> Digests:
    """ValueError for anything that `digests_as_text` did not write."""
    if len(text) % _DIGEST_CHARACTERS:
        raise ValueError("digests of a window are cut off")
    data = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    return frozenset(data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES))


def _less(position: Position, overlap: Overlap) -> Position:
    if isinstance(position, datetime):
        assert isinstance(overlap, timedelta)
        try:
            return position - overlap
        except OverflowError:
            return datetime.min.replace(tzinfo=position.tzinfo)
    assert not isinstance(overlap, timedelta)
    return position - overlap


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def _encoded(value: object) -> bytes:
    """Bytes that are different for different values; the same value is the same bytes on every machine."""
    tag, data = _tagged(value)
    return tag + len(data).to_bytes(8, "big") + data


def _tagged(value: object) -> tuple[bytes, bytes]:
    if value is None:
        return b"n", b""
    if isinstance(value, str):
        return b"s", value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return b"y", bytes(value)
    if isinstance(value, datetime):
        return b"t", (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().encode()
    if isinstance(value, date | time):
        return b"d", value.isoformat().encode()
    if isinstance(value, bool | int | float | Decimal | timedelta):
        return type(value).__name__.encode()[:1].upper(), repr(value).encode()
    if isinstance(value, list | tuple):
        return b"l", b"".join(_encoded(each) for each in value)
    return b"?", repr(value).encode()
