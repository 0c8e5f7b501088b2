"""Taking files out of a log so that a crash in between leaves nothing half.

A file is first renamed to `*.deleted`, which takes it out of the log; then the folder is synced; only then is it
removed. Readers that still hold the file are not disturbed. Whatever lies around as `*.deleted` at the next start is
removed then.

A transaction index keeps its name until its segment is gone for sure. A segment that a crash brings back without its
other indexes gets them anew; one without that index would show what was aborted.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.world import Disk
from penstock.log import names
from penstock.log.file_cache import FileCache

_MARKED_SUFFIXES = (names.LOG, names.SNAPSHOT, names.INDEX, names.TIME_INDEX)


def remove_segments(files: FileCache, folder: str, base_offsets: Iterable[int]) -> None:
    """Remove segments one after the other in the given order, each durably before the next. Blocks."""
    disk = files.disk
    disk.sync_dir(folder)  # the segments that stay must be sure to be there before others go
    marked: list[str] = []
    for base_offset in base_offsets:
        stem = f"{folder}/{names.offset_name(base_offset)}"
        marked += mark_deleted(files, stem)
        disk.sync_dir(folder)
        remove_if_there(disk, stem + names.TXN_INDEX)
        files.drop(stem + names.TXN_INDEX)
    for path in marked:
        remove_if_there(disk, path)


def mark_deleted(files: FileCache, stem: str) -> list[str]:
    """Take the files of a segment out of the log, all but its transaction index; returns their new names."""
    marked = []
    for suffix in _MARKED_SUFFIXES:
        path = stem + suffix
        try:
            files.disk.rename(path, path + names.DELETED)
        except FileNotFoundError:
            continue
        finally:
            files.drop(path)
        marked.append(path + names.DELETED)
    return marked


def remove_if_there(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass


def remove_folder(disk: Disk, path: str) -> None:
    """Remove a folder that was renamed to `*-delete`, and all in it. Blocks."""
    for name in disk.list_dir(path):
        child = f"{path}/{name}"
        if disk.is_dir(child):
            remove_folder(disk, child)
        else:
            remove_if_there(disk, child)
    disk.remove_dir(path)
