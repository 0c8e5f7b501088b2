from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.file_cache import FileCache
from penstock.log.sparse_index import OFFSET_ENTRY, PENDING_ENTRIES_MAX, TIME_ENTRY, DamagedIndex, SparseIndex
from penstock.testing.sim_disk import SimDisk


def new_index(count: int = 0, written: bool = True) -> tuple[SimDisk, SparseIndex]:
    disk = SimDisk()
    index = SparseIndex(FileCache(disk), "/i", "", OFFSET_ENTRY, fresh=True)
    for number in range(count):
        index.append(10 * number + 5, 100 * number + 50)
    if written:
        index.write_pending()
    return disk, index


steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), max_size=40)


@given(steps, st.lists(st.integers(0, 400), max_size=10))
def test_it_finds_what_a_list_finds(entries: list[tuple[int, int, bool]], wanted: list[int]) -> None:
    _, index = new_index()
    model: list[tuple[int, int]] = []
    key = value = 0
    for key_step, value_step, write in entries:
        key, value = key + key_step, value + value_step
        index.append(key, value)
        model.append((key, value))
        if write:
            index.write_pending()
    assert list(index.entries()) == model
    assert len(index) == len(model)
    assert index.last() == (model[-1] if model else None)
    for number in wanted:
        assert index.find_by_key(number) == max((pair for pair in model if pair[0] <= number), default=None)
        assert index.find_by_value(number) == max((pair for pair in model if pair[1] <= number), default=None)
        assert index.first_from_value(number) == min((pair for pair in model if pair[1] >= number), default=None)


uneven = st.lists(st.tuples(st.sampled_from([1, 2, 900]), st.sampled_from([1, 3, 5000])), min_size=30, max_size=150)


@given(uneven, st.data())
def test_it_finds_what_a_list_finds_where_a_guess_is_wrong(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    _, index = new_index()
    model: list[tuple[int, int]] = []
    key = value = 0
    for key_step, value_step in steps:
        key, value = key + key_step, value + value_step
        index.append(key, value)
        model.append((key, value))
    index.write_pending()
    for _ in range(10):
        near = data.draw(st.integers(-1, 1))
        number = data.draw(st.sampled_from(model))[0] + near
        assert index.find_by_key(number) == max((pair for pair in model if pair[0] <= number), default=None)
        number = data.draw(st.sampled_from(model))[1] + near
        assert index.find_by_value(number) == max((pair for pair in model if pair[1] <= number), default=None)


@given(st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_keeping_the_first_entries(count: int, kept: int, written: bool) -> None:
    _, index = new_index(count, written)
    before = list(index.entries())
    index.keep_first(kept)
    index.append(1000, 1000)
    index.write_pending()
    assert list(index.entries()) == [*before[:kept], (1000, 1000)]


def test_many_entries_go_to_the_file_by_themselves() -> None:
    disk, index = new_index(PENDING_ENTRIES_MAX + 3, written=False)
    assert disk.file_size("/i") == PENDING_ENTRIES_MAX * OFFSET_ENTRY.size
    assert len(index) == PENDING_ENTRIES_MAX + 3
    assert index.find_by_key(5) == (5, 50)


def test_an_entry_that_the_disk_does_not_take_is_kept_in_memory() -> None:
    disk, index = new_index()
    disk.set_capacity(0)
    for number in range(PENDING_ENTRIES_MAX + 1):
        index.append(number, number)
    assert len(index) == PENDING_ENTRIES_MAX + 1
    disk.set_capacity(1 << 20)
    index.write_pending()
    assert disk.file_size("/i") == (PENDING_ENTRIES_MAX + 1) * OFFSET_ENTRY.size


def test_zeros_at_the_end_are_padding() -> None:
    disk, index = new_index(5)
    disk.open("/i").truncate(4000)
    again = SparseIndex(FileCache(disk), "/i", "", OFFSET_ENTRY)
    assert len(again) == 5
    assert again.find_by_key(10_000) == index.last()


def test_an_index_of_zeros_only_is_empty() -> None:
    disk = SimDisk()
    disk.open("/i", create=True).truncate(12 * 100)
    assert len(SparseIndex(FileCache(disk), "/i", "", TIME_ENTRY)) == 0


@pytest.mark.parametrize("size_bytes", [1, 7, 9, 4001])
def test_half_an_entry_is_damage(size_bytes: int) -> None:
    disk = SimDisk()
    disk.open("/i", create=True).truncate(size_bytes)
    with pytest.raises(DamagedIndex):
        SparseIndex(FileCache(disk), "/i", "", OFFSET_ENTRY).last()


def test_a_missing_file_is_damage() -> None:
    with pytest.raises(DamagedIndex, match="missing"):
        SparseIndex(FileCache(SimDisk()), "/i", "", OFFSET_ENTRY).find_by_key(1)
