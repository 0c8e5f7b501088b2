from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.intervals import Intervals

bounds = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(st.lists(bounds, max_size=12), st.integers(0, 40), st.lists(bounds, max_size=8))
def test_it_covers_what_a_set_of_numbers_covers(
    added: list[tuple[int, int]], cut: int, asked: list[tuple[int, int]]
) -> None:
    intervals = Intervals()
    model: set[int] = set()
    for start, end in added:
        intervals.add(start, end)
        model |= set(range(start, end))
    intervals.cut(cut)
    model = {number for number in model if number < cut}
    for start, end in asked:
        assert intervals.covers(start, end) == (set(range(start, end)) <= model)


def test_ranges_that_touch_become_one() -> None:
    intervals = Intervals()
    for start in range(0, 100, 10):
        intervals.add(start, start + 10)
    assert len(intervals) == 1
