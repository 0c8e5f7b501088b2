"""What one batch reads: how far it goes, which ranges that makes, and how they are cut into tasks. Pure.

A micro-batch goes through here twice. First `limited_end` says how far it may go: every partition gets the same
fraction of what waits in it, at least one offset, so that small ones are not starved. Later `batch_ranges` compares the
two positions with what the partitions still have; whatever is no longer there comes back as a list of losses, in words.
Then `split` cuts ranges into tasks. Sizes are counted in offsets: how many records lie between two nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from penstock.base.identifiers import TopicPartition
from penstock.spark.offsets import Positions


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a trigger takes; None: no limit."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_s_max: float = 0.0
    """after this time a trigger goes ahead with fewer than `offsets_min`"""
    bytes_max: int | None = None

    @property
    def are_none(self) -> bool:
        return self.offsets_max is None and self.offsets_min is None and self.bytes_max is None


@dataclass(frozen=True, slots=True)
class Splits:
    """How ranges are cut: into at least so many tasks, with at most so many offsets each; None: not at all."""

    tasks_min: int | None = None
    records_max: int | None = None


class Range(NamedTuple):
    """Offsets of one partition: `start` is the first, `end` is not read any more."""

    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Plan(NamedTuple):
    """What can be read, and what should have been but cannot."""

    ranges: list[Range]
    losses: list[str]


def waiting(begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> Positions:
    """How many offsets lie between two positions; partitions without any are left out."""
    sizes = {where: last - begin[where] for where, last in end.items() if where in begin}
    return {where: size for where, size in sizes.items() if size > 0}


def is_delayed(limits: Limits, sizes: Mapping[TopicPartition, int], waited_s: float) -> bool:
    """Whether a trigger should wait for more, `waited_s` after the last one that went ahead."""
    if limits.offsets_min is None or waited_s >= limits.delay_s_max:
        return False
    return sum(sizes.values()) < limits.offsets_min


def limited_end(
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    offsets_max: int | None = None,
    bytes_max: int | None = None,
    bytes_per_offset: Mapping[TopicPartition, float] | None = None,
) -> Positions:
    """How far a batch goes from `begin`; `end` where that is not too much. `bytes_per_offset` is needed for bytes."""
    sizes = waiting(begin, end)
    fraction = Fraction(1)
    if offsets_max is not None:
        fraction = min(fraction, Fraction(offsets_max, max(1, sum(sizes.values()))))
    if bytes_max is not None:
        assert bytes_per_offset is not None
        bytes_waiting = sum(size * bytes_per_offset[where] for where, size in sizes.items())
        fraction = min(fraction, Fraction(bytes_max, max(1, int(bytes_waiting))))
    if fraction == 1:
        return dict(end)
    return {
        where: begin[where] + max(1, int(sizes[where] * fraction)) if where in sizes else last
        for where, last in end.items()
    }


def losses_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[str]:
    """What cannot be read because partitions ended, or are not there any more."""
    gone = [
        f"{where} is gone, or is not read any more; it was read up to offset {start[where]}"
        for where in sorted(set(start) - set(end))
    ]
    cut = [
        f"{where} was read up to offset {start[where]} and now ends at {end[where]}: it was cut or made anew"
        for where in sorted(set(start) & set(end))
        if end[where] < start[where]
    ]
    return gone + cut


def batch_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
) -> Plan:
    """The ranges between two positions of a stream. `first`: the first offsets that partitions still have (needed
    for those that moved or are new; a partition that is not in it is gone)."""
    plan = Plan([], losses_between(start, end))
    known_topics = {where.topic for where in start}
    for where in sorted(end):
        if start.get(where) == end[where]:
            continue
        if where not in first:
            plan.losses.append(f"{where} is gone; it was to be read up to offset {end[where]}")
        elif where in start:
            _old_partition(plan, where, start[where], end[where], first[where])
        else:
            _new_partition(plan, where, end[where], first[where], topic_is_new=where.topic not in known_topics)
    return plan


def _old_partition(plan: Plan, where: TopicPartition, start: int, end: int, first: int) -> None:
    if start < first and start < end:
        plan.losses.append(
            f"{where} begins at offset {first} now: offsets {start} to {min(first, end) - 1} were deleted"
        )
    _add(plan, Range(where, max(start, first), end))


def _new_partition(plan: Plan, where: TopicPartition, end: int, first: int, *, topic_is_new: bool) -> None:
    if first > 0 and not topic_is_new:
        plan.losses.append(f"{where} is new and begins at offset {first}: those before were deleted unread")
    _add(plan, Range(where, first, end))


def chosen_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
) -> Plan:
    """The ranges of a batch read. `first` and `last`: what the partitions have now."""
    plan = Plan([], [])
    for where in sorted(end):
        if start[where] < first[where]:
            plan.losses.append(f"{where} begins at offset {first[where]}, and was to be read from {start[where]}")
        if start[where] > last[where]:
            plan.losses.append(f"{where} ends at offset {last[where]}, and was to be read from {start[where]}")
        elif end[where] > last[where]:
            plan.losses.append(f"{where} ends at offset {last[where]}, and was to be read up to {end[where]}")
        _add(plan, Range(where, max(start[where], first[where]), min(end[where], last[where])))
    return plan


def _add(plan: Plan, piece: Range) -> None:
    if piece.size > 0:
        plan.ranges.append(piece)


def split(ranges: Iterable[Range], splits: Splits) -> list[Range]:
    """Ranges cut into tasks, in their order; about `tasks_min` of them, more where records_max asks for it."""
    pieces = [each for each in ranges if each.size > 0]
    if splits.records_max is not None:
        records_max = splits.records_max
        pieces = [part for each in pieces for part in _cut(each, -(-each.size // records_max))]
    if splits.tasks_min is None or len(pieces) >= splits.tasks_min:
        return pieces
    return _split_into(pieces, splits.tasks_min)


def _split_into(pieces: list[Range], tasks: int) -> list[Range]:
    """Small ranges stay whole; the tasks that are left are shared among the large ones by their sizes."""
    total = sum(each.size for each in pieces)
    whole = [each for each in pieces if _rounded(each.size * tasks, total) <= 1]
    large_total = total - sum(each.size for each in whole)
    large_tasks = max(1, tasks - len(whole))
    kept = set(whole)
    return [
        part
        for each in pieces
        for part in ([each] if each in kept else _cut(each, _rounded(each.size * large_tasks, large_total)))
    ]


def _rounded(dividend: int, divisor: int) -> int:
    return (2 * dividend + divisor) // (2 * divisor)


def _cut(piece: Range, parts: int) -> list[Range]:
    """Into parts of nearly equal size, none of them empty."""
    parts = max(1, min(parts, piece.size))
    edges = [piece.start + piece.size * part // parts for part in range(parts + 1)]
    return [Range(piece.where, start, end) for start, end in pairwise(edges)]
