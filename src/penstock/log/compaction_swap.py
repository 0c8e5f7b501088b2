"""Putting a compacted segment in the place of the ones it was made of, so that a crash leaves the old or the new.

The names are Apache Kafka's, and either opens what the other left at any point:

1. All files of the new segment are written and synced as `*.cleaned`. Before this is over they count for nothing.
2. They are renamed to `*.swap`. As long as one is called `*.cleaned` still, the others do not count either; from the
   last rename on the new segment is the one that counts.
3. The old segments go, but for the first one, whose name the new one takes.
4. `*.log.swap` becomes `*.log` and replaces the old file in one step; then its indexes do the same.

After each of these the folder is synced. `complete_swaps` goes on where a crash has stopped it. A new segment's end
says which old ones it stands for; if its last records are all gone, the last of the old ones stay, whole, as they were.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.base.world import Disk
from penstock.log import names
from penstock.log.file_cache import FileCache
from penstock.log.removal import mark_deleted, remove_if_there
from penstock.log.scan import DamagedLog, walk_headers

logger = logging.getLogger(__name__)

SEGMENT_SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX)


def cleaned_paths(disk: Disk, stem: str) -> list[str]:
    """The files of a new segment that has been written."""
    paths = [stem + suffix + names.CLEANED for suffix in SEGMENT_SUFFIXES]
    return [path for path in paths if disk.exists(path)]


def discard_cleaned(files: FileCache, stem: str) -> None:
    """Give up a new segment, in a folder that may be gone with it. What is left in between never counts. Blocks."""
    disk = files.disk
    for ending in (names.SWAP, names.CLEANED):
        found = [path for suffix in SEGMENT_SUFFIXES if disk.exists(path := stem + suffix + ending)]
        for path in found:
            remove_if_there(disk, path)
            files.drop(path)
        if found and ending == names.SWAP:
            disk.sync_dir(stem.rpartition("/")[0])


def announce(files: FileCache, folder: str, stem: str) -> None:
    """Step 2: from here on the new segment counts. Blocks."""
    disk = files.disk
    disk.sync_dir(folder)  # the names that are lost in a crash must be the new ones
    for path in cleaned_paths(disk, stem):
        disk.rename(path, path.removesuffix(names.CLEANED) + names.SWAP)
    disk.sync_dir(folder)


def put_in_place(files: FileCache, folder: str, stem: str, others: Iterable[int]) -> None:
    """Steps 3 and 4; the base offsets of the old segments but the first are given. Blocks."""
    disk = files.disk
    marked: list[str] = []
    txn_indexes: list[str] = []
    for base_offset in others:
        other = f"{folder}/{names.offset_name(base_offset)}"
        marked += mark_deleted(files, other)
        txn_indexes.append(other + names.TXN_INDEX)
    if marked:
        disk.sync_dir(folder)
    for path in txn_indexes:  # kept until their segments were gone for sure, see `removal.py`
        remove_if_there(disk, path)
        files.drop(path)
    _take_name(files, stem + names.LOG)
    disk.sync_dir(folder)
    for suffix in names.INDEX_SUFFIXES:
        _take_name(files, stem + suffix)
    disk.sync_dir(folder)
    for path in marked:
        remove_if_there(disk, path)


def _take_name(files: FileCache, path: str) -> None:
    try:
        files.disk.rename(path + names.SWAP, path)
    except FileNotFoundError:
        pass
    files.drop(path)
    files.drop(path + names.SWAP)
    files.drop(path + names.CLEANED)


def complete_swaps(files: FileCache, folder: str) -> None:
    """Finish, or undo, what a stop has interrupted. Doing it twice changes nothing. Blocks if there is something."""
    disk = files.disk
    present = disk.list_dir(folder)
    cleaned = [name for name in present if name.endswith(names.CLEANED)]
    swaps = [name for name in present if name.endswith(names.SWAP)]
    if not cleaned and not swaps:
        return
    first_cleaned = min((base for name in cleaned if (base := _base_of(name, names.CLEANED)) is not None), default=None)
    valid = []
    for name in swaps:
        base = _base_of(name, names.SWAP)
        if base is None or (first_cleaned is not None and base >= first_cleaned):
            disk.remove(f"{folder}/{name}")
        else:
            valid.append(base)
    disk.sync_dir(folder)
    for name in cleaned:
        disk.remove(f"{folder}/{name}")
    for base in sorted(set(valid)):
        logger.warning("%s: an interrupted compaction of the segment at offset %d is completed", folder, base)
        _complete(files, folder, base, present)


def _complete(files: FileCache, folder: str, base: int, present: list[str]) -> None:
    disk = files.disk
    stem = f"{folder}/{names.offset_name(base)}"
    others: list[int] = []
    if disk.exists(stem + names.LOG + names.SWAP):
        next_offset = _next_offset(disk, stem + names.LOG + names.SWAP, base)
        bases = [found for name in present if (found := names.offset_of(name, names.LOG)) is not None]
        others = [found for found in bases if base < found < next_offset]
        for suffix in names.INDEX_SUFFIXES:  # those of the old segment would not fit the new one
            if not disk.exists(stem + suffix + names.SWAP):
                remove_if_there(disk, stem + suffix)
    put_in_place(files, folder, stem, others)


def _next_offset(disk: Disk, path: str, base: int) -> int:
    """Where a segment ends; one that is damaged is judged by recovery, and stands for what it has."""
    file = disk.open(path)
    next_offset = base
    try:
        for _position, header in walk_headers(file, 0, file.size()):
            next_offset = header.next_offset
    except DamagedLog as damage:
        logger.error("%s is damaged at %d: %s", path, damage.position, damage.problem)
    finally:
        file.close()
    return next_offset


def _base_of(name: str, ending: str) -> int | None:
    """The base offset in the name of a segment's file with an ending of ours behind it."""
    plain = name.removesuffix(ending)
    return names.offset_of(plain, "." + plain.rpartition(".")[2])
