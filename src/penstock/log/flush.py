"""A flush in three steps, so that the event loop never waits for the disk.

`PartitionLog.begin_flush` says on the loop what is to be synced; `FlushPlan.run` does it in another thread;
`PartitionLog.complete_flush` notes on the loop that it is done. Offsets below the plan's `end_offset` are durable then,
and so is everything that recovery relies on for them: the indexes and snapshots of closed segments, the list of
epochs, and the names of the files in their folder. A sync that failed is never tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.base.world import Disk, File, write_file_durably


@dataclass(slots=True)
class FlushPlan:
    """What to sync, and up to where the log is durable then."""

    disk: Disk
    end_offset: int
    generation: int
    folder: str
    file: File | None = None
    paths: tuple[str, ...] = ()
    replaced: tuple[tuple[str, bytes], ...] = ()
    sync_folder: bool = False
    sync_parent: bool = False
    folder_changes: int = 0
    epochs_version: int = 0
    done: bool = False
    error: OSError | None = field(default=None)

    def run(self) -> None:
        """Do it. Blocks; raises OSError once and for all."""
        try:
            self._run()
        except OSError as error:
            self.error = error
            raise
        self.done = True

    def _run(self) -> None:
        for path in self.paths:
            self._sync_path(path)
        if self.file is not None:
            self.file.sync()
        for path, content in self.replaced:
            write_file_durably(self.disk, path, content)
        if self.sync_folder:
            self.disk.sync_dir(self.folder)
        if self.sync_parent:
            self.disk.sync_dir(self.folder.rpartition("/")[0] or ".")

    def _sync_path(self, path: str) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:  # retention took the segment meanwhile
            return
        try:
            file.sync()
        finally:
            file.close()
