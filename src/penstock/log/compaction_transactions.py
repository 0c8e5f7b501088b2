"""Which batches belong to aborted transactions, and which markers are still needed, as compaction goes through a log.

Records of an aborted transaction go at once: nobody may see them. A marker stays as long as a batch of its transaction
was there when compaction came by, and a while longer (`compaction_filter.py`); with the last marker of an aborted
transaction its entry in the transaction index goes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from penstock.log.txn_index import AbortedTransaction
from penstock.wire.batch import BatchHeader
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.records import RecordError

_FIRST_OFFSET = attrgetter("first_offset")


class CleanedTransactions:
    """The transactions of one pass over a log, from its beginning."""

    __slots__ = ("_aborted", "_present", "_unmarked", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for entry in sorted(set(aborted), key=_FIRST_OFFSET):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._present: set[AbortedTransaction] = set()  # a batch of theirs was still there
        self._unmarked: set[int] = set()  # producers with batches that were not aborted, and no marker yet
        self.kept: list[AbortedTransaction] = []  # what belongs into the index, in the order of the markers

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch are not to be seen by anybody."""
        return bool(header.is_transactional and self._aborted) and self._entry_of(header) is not None

    def _entry_of(self, header: BatchHeader) -> AbortedTransaction | None:
        entries = self._aborted.get(header.producer_id)
        if not entries:
            return None
        at = bisect_right(entries, header.last_offset, key=_FIRST_OFFSET) - 1
        return entries[at] if at >= 0 and header.base_offset <= entries[at].last_offset else None

    def note(self, header: BatchHeader) -> bool:
        """A batch of records comes by; whether it was aborted."""
        if not header.is_transactional:
            return False
        entry = self._entry_of(header)
        if entry is None:
            self._unmarked.add(header.producer_id)
            return False
        self._present.add(entry)
        return True

    def note_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        """A control batch comes by; whether nothing needs it any more."""
        if header.record_count == 0:  # what was in it went before
            return True
        try:
            kind = read_control_record(batch).type
        except RecordError:
            return False
        if kind is ControlType.UNKNOWN:
            return False
        is_needed = header.producer_id in self._unmarked
        self._unmarked.discard(header.producer_id)
        entry = self._entry_of(header)
        if kind is ControlType.ABORT and entry is not None and entry in self._present:
            self.kept.append(entry)
            return False
        return not is_needed
