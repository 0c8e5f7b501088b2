"""Planning against dumb models: shares, delays, ranges, losses and splits."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.spark.planning import (
    Limits,
    Range,
    Splits,
    batch_ranges,
    chosen_ranges,
    is_delayed,
    limited_end,
    losses_between,
    split,
    waiting,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
OFFSETS = st.one_of(st.integers(0, 30), st.integers(0, 2**62))
POSITIONS = st.dictionaries(PARTITIONS, OFFSETS)


@st.composite
def begins_and_ends(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    begin = draw(st.dictionaries(PARTITIONS, OFFSETS, min_size=1))
    sizes = st.one_of(st.integers(0, 3), st.integers(0, 2000), st.integers(0, 2**40))
    return begin, {where: offset + draw(sizes) for where, offset in begin.items()}


# ── shares ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(begins_and_ends(), st.integers(1, 5000))
def test_shares_are_those_of_sparks_connector(
    positions: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], offsets_max: int
) -> None:
    begin, end = positions
    total = sum(end[where] - begin[where] for where in end)
    limited = limited_end(begin, end, offsets_max=offsets_max)
    for where in end:
        size = end[where] - begin[where]
        share = Fraction(offsets_max * size, max(total, 1))
        model = begin[where] + min(size, max(1, int(share))) if size else end[where]
        assert limited[where] == model


@given(begins_and_ends(), st.integers(1, 5000))
def test_nobody_starves_and_nobody_gets_too_much(
    positions: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], offsets_max: int
) -> None:
    begin, end = positions
    limited = limited_end(begin, end, offsets_max=offsets_max)
    assert set(limited) == set(end)
    for where in end:
        assert begin[where] <= limited[where] <= end[where]
        assert (limited[where] > begin[where]) == (end[where] > begin[where])
    granted = waiting(begin, limited)
    assert sum(granted.values()) <= max(offsets_max, 0) + len(granted)


@given(begins_and_ends(), st.integers(1, 5000))
def test_what_is_limited_gets_to_its_end(
    positions: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], offsets_max: int
) -> None:
    begin, end = positions
    assume(sum(waiting(begin, end).values()) <= 200 * offsets_max)
    for _ in range(100_000):
        if begin == end:
            return
        begin = limited_end(begin, end, offsets_max=offsets_max)
    raise AssertionError("it never got there")


@given(begins_and_ends(), st.integers(1, 10**6), st.data())
def test_bytes_are_shared_by_what_records_weigh(
    positions: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], bytes_max: int, data: st.DataObject
) -> None:
    begin, end = positions
    weights = {where: float(data.draw(st.integers(1, 10_000))) for where in end}
    limited = limited_end(begin, end, bytes_max=bytes_max, bytes_per_offset=weights)
    granted = waiting(begin, limited)
    heaviest = sum(weights[where] for where in granted)  # one offset each is always granted
    assert sum(size * weights[where] for where, size in granted.items()) <= bytes_max + heaviest + 1
    assert set(granted) == set(waiting(begin, end))


def test_the_tighter_limit_counts() -> None:
    begin, end = {A0: 0, A1: 0}, {A0: 900, A1: 100}
    weights = {A0: 10.0, A1: 10.0}
    assert limited_end(begin, end, offsets_max=100, bytes_max=10**6, bytes_per_offset=weights) == {A0: 90, A1: 10}
    assert limited_end(begin, end, offsets_max=100, bytes_max=100, bytes_per_offset=weights) == {A0: 9, A1: 1}
    assert limited_end(begin, end, offsets_max=1000) == end


def test_a_partition_that_went_back_keeps_its_end() -> None:
    assert limited_end({A0: 50, A1: 0}, {A0: 20, A1: 100}, offsets_max=10) == {A0: 20, A1: 10}


# ── delays ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sizes", "waited_s", "delayed"),
    [
        ({A0: 4, A1: 5}, 1, True),
        ({A0: 5, A1: 5}, 1, False),
        ({}, 1, True),
        ({A0: 1}, 60, False),
        ({A0: 1}, float("inf"), False),
    ],
)
def test_a_trigger_waits_for_enough_but_not_for_ever(
    sizes: dict[TopicPartition, int], waited_s: float, delayed: bool
) -> None:
    assert is_delayed(Limits(offsets_min=10, delay_s_max=60), sizes, waited_s) is delayed


def test_nothing_waits_without_a_minimum() -> None:
    assert not is_delayed(Limits(offsets_max=10, delay_s_max=60), {}, 0)


# ── ranges of a micro-batch ──────────────────────────────────────────────────────────────────────────────────────────


@given(POSITIONS, POSITIONS, POSITIONS)
def test_ranges_are_what_a_set_of_offsets_would_be(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int], first: dict[TopicPartition, int]
) -> None:
    ranges, losses = batch_ranges(start, end, first)
    by_place = {each.where: each for each in ranges}
    assert len(by_place) == len(ranges) and all(each.size > 0 for each in ranges)
    for where in set(start) | set(end):
        if where not in end or start.get(where) == end[where] or where not in first:
            assert where not in by_place
            continue
        lowest = max(first[where], start.get(where, 0))
        if lowest < end[where]:
            assert by_place[where] == Range(where, lowest, end[where])
        else:
            assert where not in by_place
    text = " ".join(losses)
    for where in set(start) - set(end):
        assert f"{where} is gone" in text


@given(POSITIONS)
def test_between_equal_positions_there_is_nothing(positions: dict[TopicPartition, int]) -> None:
    assert batch_ranges(positions, positions, {}) == ([], [])


@pytest.mark.parametrize(
    ("start", "end", "first", "ranges", "words"),
    [
        ({A0: 5}, {A0: 9}, {A0: 0}, [Range(A0, 5, 9)], None),
        ({A0: 5}, {A0: 9, A1: 4}, {A0: 0, A1: 0}, [Range(A0, 5, 9), Range(A1, 0, 4)], None),
        (
            {A0: 5},
            {A0: 9, A1: 4},
            {A0: 0, A1: 2},
            [Range(A0, 5, 9), Range(A1, 2, 4)],
            "a-1 is new and begins at offset 2",
        ),
        ({A0: 5}, {A0: 5, B0: 4}, {B0: 2}, [Range(B0, 2, 4)], None),
        ({A0: 5}, {A0: 9}, {A0: 7}, [Range(A0, 7, 9)], "offsets 5 to 6 were deleted"),
        ({A0: 5}, {A0: 9}, {A0: 20}, [], "offsets 5 to 8 were deleted"),
        ({A0: 5}, {A0: 3}, {A0: 0}, [], "read up to offset 5 and now ends at 3"),
        ({A0: 5, A1: 1}, {A0: 9}, {A0: 0}, [Range(A0, 5, 9)], "a-1 is gone"),
        ({A0: 5}, {A0: 9}, {}, [], "a-0 is gone; it was to be read up to offset 9"),
    ],
)
def test_ranges_and_losses(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    first: dict[TopicPartition, int],
    ranges: list[Range],
    words: str | None,
) -> None:
    plan = batch_ranges(start, end, first)
    assert plan.ranges == ranges
    assert [words in loss for loss in plan.losses] == ([True] if words else [])


def test_losses_between_positions() -> None:
    assert losses_between({A0: 5, A1: 5, B0: 5}, {A0: 5, A1: 4}) == [
        "b-0 is gone, or is not read any more; it was read up to offset 5",
        "a-1 was read up to offset 5 and now ends at 4: it was cut or made anew",
    ]


# ── ranges of a batch read ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("start", "end", "expected", "words"),
    [
        (0, 10, Range(A0, 2, 10), "begins at offset 2"),
        (2, 10, Range(A0, 2, 10), None),
        (5, 5, None, None),
        (5, 11, Range(A0, 5, 10), "was to be read up to 11"),
        (11, 11, None, "was to be read from 11"),
        (7, 3, None, None),
    ],
)
def test_a_batch_read_says_what_is_not_there(start: int, end: int, expected: Range | None, words: str | None) -> None:
    plan = chosen_ranges({A0: start}, {A0: end}, {A0: 2}, {A0: 10})
    assert plan.ranges == ([expected] if expected else [])
    assert [words in loss for loss in plan.losses] == ([True] if words else [])


# ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────────

RANGES = st.lists(
    st.builds(
        lambda start, size: (start, size), st.integers(0, 2**40), st.one_of(st.integers(0, 5), st.integers(0, 10**6))
    ),
    max_size=8,
).map(
    lambda rows: [Range(TopicPartition("a", number), start, start + size) for number, (start, size) in enumerate(rows)]
)


@given(RANGES, st.one_of(st.none(), st.integers(1, 50)), st.one_of(st.none(), st.integers(5_000, 10**6)))
def test_splits_lose_and_double_nothing(ranges: list[Range], tasks_min: int | None, records_max: int | None) -> None:
    pieces = split(ranges, Splits(tasks_min, records_max))
    assert all(each.size > 0 for each in pieces)
    for whole in ranges:
        position = whole.start
        for each in (piece for piece in pieces if piece.where == whole.where):
            assert each.start == position
            position = each.end
        assert position == whole.end
    if records_max is not None:
        assert all(each.size <= records_max for each in pieces)


@given(RANGES, st.integers(1, 50))
def test_about_as_many_tasks_as_were_asked_for(ranges: list[Range], tasks_min: int) -> None:
    pieces = split(ranges, Splits(tasks_min, None))
    not_empty = [each for each in ranges if each.size]
    assert len(pieces) <= tasks_min + 2 * len(not_empty)
    if len(not_empty) >= tasks_min:
        assert pieces == not_empty
    elif len(not_empty) == 1:
        assert len(pieces) == min(tasks_min, not_empty[0].size)


def test_small_ranges_stay_whole() -> None:
    pieces = split([Range(A0, 0, 10), Range(A1, 0, 990)], Splits(5, None))
    assert [each.size for each in pieces] == [10, 247, 248, 247, 248]


def test_both_ways_to_split() -> None:
    pieces = split([Range(A0, 0, 100)], Splits(3, 60))
    assert len(pieces) >= 3 and all(each.size <= 60 for each in pieces)


def test_without_splits_a_partition_is_a_task() -> None:
    assert split([Range(A0, 0, 10**9), Range(A1, 5, 5)], Splits()) == [Range(A0, 0, 10**9)]
