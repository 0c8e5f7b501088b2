"""Positions: for each partition the next offset to read, in the JSON that Spark's own connector writes.

    {"orders": {"0": 23, "1": 4}}

They are what a streaming query keeps in its checkpoint, so their form is a promise: a checkpoint that was written by
Spark's Kafka connector can be continued. In options -2 stands for the earliest and -1 for the latest offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import OptionError, shown

Positions = dict[TopicPartition, int]
PositionsAsJson = dict[str, dict[str, int]]

EARLIEST = -2
LATEST = -1

_PARTITION = re.compile(r"[0-9]{1,10}")
_OFFSETS_EXAMPLE = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
_TIMES_EXAMPLE = '{"topicA": {"0": 1767225600000, "1": 1767225600000}}'
_ASSIGN_EXAMPLE = '{"topicA": [0, 1], "topicB": [2, 4]}'


def to_json(positions: Mapping[TopicPartition, int]) -> PositionsAsJson:
    """Sorted, so that equal positions are equal texts."""
    nested: PositionsAsJson = {}
    for where in sorted(positions):
        nested.setdefault(where.topic, {})[str(where.partition)] = positions[where]
    return nested


def from_json(nested: object) -> Positions:
    """Positions as Spark hands them back from a checkpoint; ValueError if they are none."""
    positions = _partition_numbers(nested)
    if positions is None or any(offset < 0 for offset in positions.values()):
        raise ValueError(f"not positions of topics, such as {_OFFSETS_EXAMPLE}: {shown(json.dumps(nested))}")
    return positions


def parse_offsets(option: str, text: str) -> Positions:
    """The value of `startingOffsets` or `endingOffsets` that is JSON; -2 and -1 are left as they are."""
    positions = _partition_numbers(_load(option, text, _OFFSETS_EXAMPLE))
    if positions is None:
        raise OptionError(option, f"expected JSON such as {_OFFSETS_EXAMPLE}, not {shown(text)}")
    for where, offset in positions.items():
        if offset < EARLIEST:
            raise OptionError(option, f"{offset} for {where} is no offset; -2 is the earliest and -1 the latest")
    return positions


def parse_times(option: str, text: str) -> Positions:
    """The value of an option that has a timestamp in milliseconds for each partition."""
    times = _partition_numbers(_load(option, text, _TIMES_EXAMPLE))
    if times is None or any(time_ms < 0 for time_ms in times.values()):
        raise OptionError(option, f"expected JSON with milliseconds such as {_TIMES_EXAMPLE}, not {shown(text)}")
    return times


def parse_assigned(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The value of `assign`."""
    nested = _load(option, text, _ASSIGN_EXAMPLE)
    assigned: set[TopicPartition] = set()
    for topic, partitions in nested.items() if isinstance(nested, dict) else ():
        if not isinstance(partitions, list) or not all(_is_whole(each) and each >= 0 for each in partitions):
            assigned.clear()
            break
        assigned.update(TopicPartition(topic, each) for each in partitions)
    if not assigned:
        raise OptionError(option, f"expected JSON such as {_ASSIGN_EXAMPLE}, not {shown(text)}")
    return tuple(sorted(assigned))


def listed(partitions: Iterable[TopicPartition], shown_max: int = 10) -> str:
    """Partitions as part of a message: `orders-0, orders-1`."""
    names = [str(where) for where in sorted(partitions)]
    more = f" and {len(names) - shown_max} more" if len(names) > shown_max else ""
    return ", ".join(names[:shown_max]) + more


def _load(option: str, text: str, example: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError(option, f"expected JSON such as {example}, not {shown(text)}") from None


def _partition_numbers(nested: object) -> Positions | None:
    """{"topic": {"0": number}} flattened, or None if it is something else."""
    if not isinstance(nested, dict):
        return None
    numbers: Positions = {}
    for topic, partitions in nested.items():
        if not isinstance(partitions, dict):
            return None
        for partition, number in partitions.items():
            if not _PARTITION.fullmatch(partition) or not _is_whole(number):
                return None
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
