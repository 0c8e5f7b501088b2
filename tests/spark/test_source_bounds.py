"""Where a read begins and ends, with a dictionary for a broker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.spark.bounds import Bound, resolve
from penstock.spark.given_options import OptionError

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
#: partition: its records' times, from offset 10 on
TIMES = {A0: [100, 300, 200, 400], A1: [150]}
FIRST = 10


def ask(partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int | None]:
    if when == -2:
        return dict.fromkeys(partitions, FIRST)
    if when == -1:
        return {where: FIRST + len(TIMES[where]) for where in partitions}
    return {
        where: next((FIRST + index for index, time in enumerate(TIMES[where]) if time >= when), None)
        for where in partitions
    }


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Bound(None, offset=-2), {A0: 10, A1: 10}),
        (Bound(None, offset=-1), {A0: 14, A1: 11}),
        (Bound("startingOffsets", offsets=((A0, 12), (A1, -1))), {A0: 12, A1: 11}),
        (Bound("startingOffsets", offsets=((A0, -2), (A1, 0))), {A0: 10, A1: 0}),
        (Bound("startingTimestamp", time_ms=150), {A0: 11, A1: 10}),
        (Bound("startingTimestamp", time_ms=300, nothing_so_late=-1), {A0: 11, A1: 11}),
        (Bound("startingOffsetsByTimestamp", times_ms=((A0, 400), (A1, 0))), {A0: 13, A1: 10}),
    ],
)
def test_positions(bound: Bound, expected: dict[TopicPartition, int]) -> None:
    assert resolve(bound, [A0, A1], ask) == expected


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound("startingOffsets", offsets=((A0, 1),)), "startingOffsets: must name every .* missing: a-1"),
        (Bound("endingOffsets", offsets=((A0, 1), (A1, 1), (TopicPartition("b", 7), 1))), "do not exist: b-7"),
        (Bound("startingTimestamp", time_ms=300), "no record is so late in a-1"),
        (Bound("startingOffsetsByTimestamp", times_ms=((A0, 1),)), "must name every .* missing: a-1"),
    ],
)
def test_options_that_do_not_fit(bound: Bound, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        resolve(bound, [A0, A1], ask)


def test_nothing_to_read_asks_nobody() -> None:
    def nobody(_partitions: Sequence[TopicPartition], _when: int) -> dict[TopicPartition, int | None]:
        raise AssertionError("nobody is there")

    assert resolve(Bound(None, offset=-1), [], nobody) == {}
    assert resolve(Bound(None, time_ms=5), [], lambda *_: {}) == {}


@pytest.mark.parametrize(
    ("bound", "may"),
    [
        (Bound(None, offset=-1), True),
        (Bound(None, offset=-2), False),
        (Bound("startingOffsets", offsets=((A0, 5), (A1, -1))), True),
        (Bound("startingOffsets", offsets=((A0, 5),)), False),
        (Bound("startingTimestamp", time_ms=1), False),
        (Bound("startingTimestamp", time_ms=1, nothing_so_late=-1), True),
    ],
)
def test_what_may_be_later_the_next_time(bound: Bound, may: bool) -> None:
    assert bound.may_be_latest is may
