"""Open files shared by all logs, so that thousands of closed segments need not all be open.

Dropping a file from the cache does not close it: whoever still holds it (a fetch that is being sent, a sync in another
thread) goes on using it, and it closes itself when the last of them lets go. That is why nothing here calls `close`,
and why a `File` of any disk closes itself when it is collected.

Whoever renames or removes a file drops it afterwards, and a file is opened and added in one step. So a name that is
used again, by the next topic of that name, never leads to the old file.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from penstock.base.world import Disk, File

OPEN_FILES_MAX = 1024


class FileCache:
    """The most recently used files, by path."""

    __slots__ = ("_changing", "_files", "_max", "disk")

    def __init__(self, disk: Disk, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._files: OrderedDict[str, File] = OrderedDict()
        self._max = open_files_max
        self._changing = Lock()

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; FileNotFoundError unless it exists or `create` is given."""
        file = self._files.get(path)
        if file is None:
            return self._add(path, create)
        try:
            self._files.move_to_end(path)
        except KeyError:  # another thread dropped it in between
            pass
        return file

    def peek(self, path: str) -> File | None:
        """The file if it is open; never waits."""
        return self._files.get(path)

    def _add(self, path: str, create: bool) -> File:
        with self._changing:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = self.disk.open(path, create=create)
                if len(self._files) > self._max:
                    self._files.popitem(last=False)
            return file

    def drop(self, path: str) -> None:
        """Forget a file, after it was removed or renamed."""
        with self._changing:
            self._files.pop(path, None)

    def drop_folder(self, folder: str) -> None:
        """Forget all files of a folder, after it was renamed or closed."""
        with self._changing:
            for path in [path for path in self._files if path.startswith(f"{folder}/")]:
                del self._files[path]

    def __len__(self) -> int:
        return len(self._files)
