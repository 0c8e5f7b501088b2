"""Where a read begins and ends: what the options say, and what that means for the partitions that there are.

A `Bound` is an offset for all (-2 the earliest, -1 the latest), an offset for each, a time for all, or a time for each.
`resolve` turns it into positions; it asks for offsets through a function, and is otherwise pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import OptionError
from penstock.spark.offsets import EARLIEST, LATEST, Positions, listed

#: The offsets of partitions at a time in milliseconds, or -2 or -1; None where there is nothing so late.
Ask = Callable[[Sequence[TopicPartition], int], Mapping[TopicPartition, int | None]]


@dataclass(frozen=True, slots=True)
class Bound:
    """`option` is the one that said it; None if it is a default. One of the other four is given."""

    option: str | None
    offset: int | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] | None = None
    time_ms: int | None = None
    times_ms: tuple[tuple[TopicPartition, int], ...] | None = None
    nothing_so_late: int | None = None
    """what a time means for a partition without records so late: -1, or None: it is an error"""

    @property
    def may_be_latest(self) -> bool:
        """Whether asking again later can give more."""
        return (
            self.offset == LATEST
            or any(offset == LATEST for _, offset in self.offsets or ())
            or (self.offset is None and self.offsets is None and self.nothing_so_late == LATEST)
        )


def resolve(bound: Bound, partitions: Collection[TopicPartition], ask: Ask) -> Positions:
    """The offset of each partition; OptionError if the option does not fit the partitions."""
    if bound.offset is not None:
        return _known(ask, partitions, bound.offset)
    if bound.offsets is not None:
        return _resolve_offsets(_fitting(bound, dict(bound.offsets), partitions), ask)
    if bound.time_ms is not None:
        return _resolve_times(bound, dict.fromkeys(partitions, bound.time_ms), ask)
    assert bound.times_ms is not None
    return _resolve_times(bound, _fitting(bound, dict(bound.times_ms), partitions), ask)


def _fitting(bound: Bound, given: Positions, partitions: Collection[TopicPartition]) -> Positions:
    """Every partition has to be named, and no other: what is left out would be read from a place nobody chose."""
    assert bound.option is not None
    missing, extra = set(partitions) - set(given), set(given) - set(partitions)
    if missing:
        special = " (-1: latest, -2: earliest)" if bound.offsets is not None else ""
        raise OptionError(bound.option, f"must name every partition that is read{special}; missing: {listed(missing)}")
    if extra:
        raise OptionError(bound.option, f"names partitions that are not read or do not exist: {listed(extra)}")
    return given


def _resolve_offsets(given: Positions, ask: Ask) -> Positions:
    resolved = {where: offset for where, offset in given.items() if offset >= 0}
    for special in (EARLIEST, LATEST):
        resolved |= _known(ask, [where for where, offset in given.items() if offset == special], special)
    return resolved


def _resolve_times(bound: Bound, times_ms: Positions, ask: Ask) -> Positions:
    found: dict[TopicPartition, int | None] = {}
    for time_ms in sorted(set(times_ms.values())):
        found |= ask(sorted(where for where, each in times_ms.items() if each == time_ms), time_ms)
    empty = [where for where, offset in found.items() if offset is None]
    if empty and bound.nothing_so_late is None:
        assert bound.option is not None
        raise OptionError(
            bound.option,
            f"no record is so late in {listed(empty)}; with startingOffsetsByTimestampStrategy=latest "
            "such partitions are read from their end",
        )
    resolved = {where: offset for where, offset in found.items() if offset is not None}
    return resolved | _known(ask, empty, LATEST)


def _known(ask: Ask, partitions: Collection[TopicPartition], special: int) -> Positions:
    if not partitions:
        return {}
    answers = ask(sorted(partitions), special)
    return {where: offset for where, offset in answers.items() if offset is not None}
