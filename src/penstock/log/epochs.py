"""Which leader epoch wrote which offsets: the list by which replicas find where their logs part.

An entry (epoch, start offset) says that the epoch's first record has, or would have, that offset; the epoch ends where
the next one starts. The list is kept in memory and written when the log is flushed: whatever a crash takes of it can be
read again from the headers of the batches that were not flushed either.
"""

from __future__ import annotations

from bisect import bisect_right

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """The epochs of one partition's log, oldest first."""

    __slots__ = ("_entries", "latest", "version")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = list(entries or [])
        self.latest = self._entries[-1][0] if self._entries else NO_EPOCH
        self.version = 0  # counts the changes, so that a writer can tell whether it wrote the newest

    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins at an offset; entries from there on are dropped. An epoch that is not new changes nothing."""
        if epoch <= self.latest or epoch < 0:
            return
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self._changed()

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote an offset, -1 if it is not known."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[at][0] if at >= 0 else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest known epoch not above this one, its end offset); (-1, -1) if this one is not comparable."""
        if epoch == NO_EPOCH:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if at == len(self._entries):
            return NO_EPOCH, NO_OFFSET
        if at == 0:
            return epoch, self._entries[0][1]
        return self._entries[at - 1][0], self._entries[at][1]

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here: later epochs never were."""
        if self._entries and self._entries[-1][1] >= end_offset:
            while self._entries and self._entries[-1][1] >= end_offset:
                self._entries.pop()
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins here: epochs that ended before are forgotten, the one of the first offset begins with it."""
        at = bisect_right(self._entries, start_offset, key=lambda entry: entry[1]) - 1
        if at >= 0 and self._entries[at][1] < start_offset:
            self._entries[: at + 1] = [(self._entries[at][0], start_offset)]
            self._changed()
        elif at > 0:
            del self._entries[:at]
            self._changed()

    def clear(self) -> None:
        self._entries.clear()
        self._changed()

    def _changed(self) -> None:
        self.latest = self._entries[-1][0] if self._entries else NO_EPOCH
        self.version += 1
