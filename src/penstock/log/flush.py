"""A flush in three steps, so that the event loop never waits for the disk.

`PartitionLog.begin_flush` says on the loop what is to be synced; `FlushPlan.run` does it in another thread;
`PartitionLog.complete_flush` notes on the loop that it is done. Offsets below the plan's `end_offset` are durable then,
and so is everything that recovery relies on for them: the indexes and snapshots of closed segments, the list of
epochs, and the names of the files in their folder. A sync that failed is never tried again. A plan that finds no room
for the list of epochs has synced nothing in vain: nothing counts as durable by it, and the next one may do better.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.world import Disk, File, write_file_durably
from penstock.log import names
from penstock.log.checkpoints import encode_epochs
from penstock.log.epochs import LeaderEpochs


def parent_of(folder: str) -> str:
    return folder.rpartition("/")[0] or "."


@dataclass(slots=True)
class FlushPlan:
    """What to sync, and up to where the log is durable then."""

    disk: Disk
    folder: str
    end_offset: int
    generation: int
    file: File | None
    paths: tuple[str, ...]
    epochs: bytes | None
    epochs_version: int
    folder_changes: int
    sync_folder: bool
    sync_parent: bool
    is_done: bool = False
    error: OSError | None = None

    def run(self) -> None:
        """Do it. Blocks; raises OSError once and for all."""
        try:
            self._run()
        except OSError as error:
            self.error = error
            raise
        self.is_done = True

    def _run(self) -> None:
        for path in self.paths:
            self._sync_path(path)
        if self.file is not None:
            self.file.sync()
        if self.epochs is not None:
            write_file_durably(self.disk, f"{self.folder}/{names.EPOCHS_FILE}", self.epochs)
        if self.sync_folder:
            self.disk.sync_dir(self.folder)
        if self.sync_parent:
            self.disk.sync_dir(parent_of(self.folder))

    def _sync_path(self, path: str) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:  # retention took the segment meanwhile
            return
        try:
            file.sync()
        finally:
            file.close()


class Unsynced:
    """What a log has changed on its disk since the last flush, beside the file it appends to."""

    __slots__ = (
        "_epochs_written",
        "_folder_changes",
        "_folder_synced",
        "_parent_synced",
        "_paths",
        "has_closed_segments",
        "is_first_segment_new",
        "is_flushing",
    )

    def __init__(self, paths: list[str], *, is_clean: bool, has_closed_segments: bool = False) -> None:
        self._paths = paths
        self._epochs_written = 0 if is_clean else -1
        self._folder_changes = 0 if is_clean else 1
        self._folder_synced = 0
        self._parent_synced = is_clean
        self.is_flushing = False
        self.has_closed_segments = has_closed_segments
        self.is_first_segment_new = not is_clean  # the name of the oldest segment's file may not be durable

    def add(self, *paths: str) -> None:
        """Files whose content is not durable; they may be new in their folder."""
        self._paths += paths
        self._folder_changes += 1

    def folder_made(self) -> None:
        """The folder itself, or the file that says whose it is, is new."""
        self._parent_synced = False
        self._folder_changes += 1

    def epochs_differ(self) -> None:
        """The list of epochs is another one than was written."""
        self._epochs_written = -1

    def sync_parent(self, disk: Disk, folder: str) -> None:
        """Make the folder's own name durable, before something relies on it. Blocks, once."""
        if not self._parent_synced:
            disk.sync_dir(parent_of(folder))
            self._parent_synced = True

    def sync_first_segment(self, disk: Disk, folder: str) -> None:
        """A second segment must never be found without the first one: recovery could not tell that it is missing."""
        if self.is_first_segment_new:
            disk.sync_dir(folder)
            self.is_first_segment_new = False

    def needs_early_flush(self, *, will_roll: bool) -> bool:
        """Closed segments spare a recovery if they are synced; and a roll must not wait for the first one's name."""
        return not self.is_flushing and (self.has_closed_segments or (will_roll and self.is_first_segment_new))

    def add_closed_segment(self, paths: list[str]) -> None:
        self.add(*paths)
        self.has_closed_segments = True

    def begin(
        self, disk: Disk, folder: str, file: File | None, epochs: LeaderEpochs, end_offset: int, generation: int
    ) -> FlushPlan:
        assert not self.is_flushing, "a flush of this log is under way"
        self.is_flushing = True
        return FlushPlan(
            disk=disk,
            folder=folder,
            end_offset=end_offset,
            generation=generation,
            file=file,
            paths=tuple(self._paths),
            epochs=encode_epochs(epochs.entries()) if epochs.version != self._epochs_written else None,
            epochs_version=epochs.version,
            folder_changes=self._folder_changes,
            sync_folder=self._folder_changes != self._folder_synced,
            sync_parent=not self._parent_synced,
        )

    def complete(self, plan: FlushPlan) -> None:
        """The plan has run; what was added since it began stays."""
        self.is_flushing = False
        if plan.is_done:
            del self._paths[: len(plan.paths)]
            self.has_closed_segments = self.has_closed_segments and bool(self._paths)
            self.is_first_segment_new = False
            self._folder_synced = plan.folder_changes
            self._epochs_written = plan.epochs_version
            self._parent_synced = True
