from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.epochs import LeaderEpochs

ENTRIES = [(2, 10), (5, 20), (6, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (5, (5, 30)), (6, (6, 44)), (7, (-1, -1))],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset_for(asked, 44) == answer


def test_without_epochs_nothing_can_be_compared() -> None:
    assert LeaderEpochs().end_offset_for(3, 44) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 5), (99, 6)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert LeaderEpochs(ENTRIES).epoch_of(offset) == epoch


def test_an_epoch_that_is_not_new_changes_nothing() -> None:
    epochs = LeaderEpochs(ENTRIES)
    version = epochs.version
    epochs.assign(6, 50)
    epochs.assign(4, 50)
    epochs.assign(-1, 50)
    assert epochs.entries() == ENTRIES
    assert epochs.version == version


def test_an_epoch_replaces_entries_that_begin_where_it_begins() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(9, 30)
    assert epochs.entries() == [(2, 10), (5, 20), (9, 30)]
    assert epochs.latest == 9


@pytest.mark.parametrize(("end", "left"), [(31, 3), (30, 2), (21, 2), (20, 1), (11, 1), (10, 0), (0, 0)])
def test_cutting_the_end(end: int, left: int) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end)
    assert epochs.entries() == ENTRIES[:left]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (5, ENTRIES),
        (10, ENTRIES),
        (11, [(2, 11), (5, 20), (6, 30)]),
        (20, [(5, 20), (6, 30)]),
        (25, [(5, 25), (6, 30)]),
        (50, [(6, 50)]),
    ],
)
def test_cutting_the_beginning(start: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start)
    assert epochs.entries() == left


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=20))
def test_the_list_ascends_whatever_is_assigned(assigned: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, offset in assigned:
        epochs.assign(epoch, offset)
    entries = epochs.entries()
    assert entries == sorted(entries)
    assert len({epoch for epoch, _ in entries}) == len({offset for _, offset in entries}) == len(entries)
