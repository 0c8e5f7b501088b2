"""Open files shared by all logs, so that thousands of closed segments need not all be open.

Dropping a file from the cache does not close it: whoever still holds it (a fetch that is being sent, a sync in another
thread) goes on using it, and it closes itself when the last of them lets go. That is why nothing here calls `close`,
and why a `File` of any disk closes itself when it is collected.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.base.world import Disk, File

OPEN_FILES_MAX = 1024


class FileCache:
    """The most recently used files, by path."""

    __slots__ = ("_files", "_max", "disk")

    def __init__(self, disk: Disk, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._files: OrderedDict[str, File] = OrderedDict()
        self._max = open_files_max

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; FileNotFoundError unless it exists or `create` is given."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self.disk.open(path, create=create)
            if len(self._files) > self._max:
                self._files.popitem(last=False)
        else:
            try:
                self._files.move_to_end(path)
            except KeyError:  # another thread dropped it in between
                pass
        return file

    def drop(self, path: str) -> None:
        """Forget a file that is removed, renamed or closed."""
        self._files.pop(path, None)

    def __len__(self) -> int:
        return len(self._files)
