"""Where reading begins and ends, as people say it: "earliest", "latest", a time, an offset, or one of them for each
partition.

    {0: 1200, 1: "latest"}          partition 1 at its end, partition 0 at 1200, the others where the default says
    datetime(2026, 3, 1, tzinfo=UTC)          in every partition the first record that is not older
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from penstock.base.identifiers import TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.errors import ColumnarError, OffsetsGone
from penstock.columnar.offsets import EARLIEST, LATEST, offsets_at

Point = str | int | datetime
"""One of the words, an offset, or a time."""
Where = Point | Mapping[int, Point]

WORDS = {"earliest": EARLIEST, "latest": LATEST}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Offsets = dict[TopicPartition, int]


def milliseconds_of(name: str, when: datetime) -> int:
    """Since 1970; a time without a zone could be any of two dozen."""
    if when.tzinfo is None:
        raise ColumnarError(f"{name}: {when} has no time zone; say for instance {name}=….replace(tzinfo=timezone.utc)")
    return max(0, -((_EPOCH - when) // _MILLISECOND))


def ranges_of(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Where, end: Where, *, committed: bool
) -> list[tuple[TopicPartition, int, int]]:
    """(partition, start, end) of every partition that has something to read. OffsetsGone if an offset is not there."""
    starts = _points("start", start, "earliest", partitions)
    ends = _points("end", end, "latest", partitions)
    first = _offsets(cluster, partitions, EARLIEST, committed)
    last = _offsets(cluster, partitions, LATEST, committed)
    starts_at = _resolved(cluster, starts, first, last, committed)
    ends_at = _resolved(cluster, ends, first, last, committed)
    ranges = [(where, starts_at[where], ends_at[where]) for where in partitions]
    for where, from_offset, to_offset in ranges:
        for asked in (from_offset, to_offset):
            if not first[where] <= asked <= last[where]:
                raise OffsetsGone(where, asked, first[where], last[where])
    return [row for row in ranges if row[1] < row[2]]


def _points(
    name: str, given: Where, default: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | datetime]:
    """What is asked for each partition: a special time (negative), an offset, or a time."""
    if isinstance(given, Mapping):
        numbers = {where.partition for where in partitions}
        for number in given:
            if number not in numbers:
                raise ColumnarError(f"{name}: there is no partition {number!r}; partitions are 0 to {max(numbers)}")
        return {where: _point(name, given.get(where.partition, default)) for where in partitions}
    return {where: _point(name, given) for where in partitions}


def _point(name: str, given: Point) -> int | datetime:
    if isinstance(given, datetime):
        milliseconds_of(name, given)
        return given
    if isinstance(given, str) and given in WORDS:
        return WORDS[given]
    if isinstance(given, int) and not isinstance(given, bool) and given >= EARLIEST:
        return given
    raise ColumnarError(
        f'{name}: {given!r} is not a place in a topic; it is "earliest", "latest", an offset, a datetime, '
        "or a dict with one of them for each partition"
    )


def _resolved(
    cluster: Cluster, points: dict[TopicPartition, int | datetime], first: Offsets, last: Offsets, committed: bool
) -> Offsets:
    """Times are asked for together, once for each time that occurs."""
    offsets: Offsets = {}
    timed: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for where, point in points.items():
        if isinstance(point, datetime):
            timed[milliseconds_of("", point)].append(where)
        else:
            offsets[where] = {EARLIEST: first[where], LATEST: last[where]}.get(point, point)
    for when_ms, partitions in timed.items():
        found = offsets_at(cluster, partitions, when_ms, committed=committed)
        for where, offset in found.items():
            offsets[where] = last[where] if offset is None else min(max(offset, first[where]), last[where])
    return offsets


def _offsets(cluster: Cluster, partitions: Sequence[TopicPartition], when: int, committed: bool) -> Offsets:
    found = offsets_at(cluster, partitions, when, committed=committed)
    return {where: offset or 0 for where, offset in found.items()}
