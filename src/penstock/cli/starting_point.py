"""Where `penstock consume --from` begins, as a user writes it and as an offset in each partition.

The text is parsed once into a `StartingPoint`; `resolve_start` then turns it into offsets with what the broker knows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

from penstock.cli.failure import Failure, usage
from penstock.cli.timestamps import parse_duration_ms, parse_timestamp_ms


class Kind(Enum):
    """What the number of a starting point counts."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Begin here: at an offset, this many messages before the end, or at the first message of a time or later."""

    kind: Kind
    number: int = 0


def parse_start(text: str, now_ms: int | None = None) -> StartingPoint:
    """`beginning`, `end`, `42`, `-10`, `2026-01-31T12:00:00Z` or `15m` (a quarter of an hour ago)."""
    if text in (Kind.BEGINNING.value, Kind.END.value):
        return StartingPoint(Kind(text))
    if text.isascii() and text.isdigit():
        return StartingPoint(Kind.OFFSET, int(text))
    if text.startswith("-") and text[1:].isascii() and text[1:].isdigit():
        return StartingPoint(Kind.LAST, int(text[1:]))
    if (ago_ms := parse_duration_ms(text)) is not None:
        now_ms = round(time.time() * 1000) if now_ms is None else now_ms
        return StartingPoint(Kind.TIME, max(0, now_ms - ago_ms))
    try:
        return StartingPoint(Kind.TIME, parse_timestamp_ms(text))
    except Failure:
        wanted = "beginning, end, an offset, -N for the last N, a time such as 2026-01-31T12:00:00Z, or 15m for ago"
        raise usage(f"--from wants {wanted}; not {text!r}") from None


def resolve_start(point: StartingPoint, first: int, end: int, offset_at_time: int | None) -> int:
    """The offset to begin with in a partition that holds `first` up to (not including) `end`."""
    match point.kind:
        case Kind.BEGINNING:
            return first
        case Kind.END:
            return end
        case Kind.OFFSET:
            return min(max(point.number, first), end)
        case Kind.LAST:
            return max(first, end - point.number)
        case Kind.TIME:
            return end if offset_at_time is None or offset_at_time < 0 else offset_at_time
