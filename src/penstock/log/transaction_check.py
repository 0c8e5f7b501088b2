"""Whether the transaction indexes of a folder say what its batches say: for `penstock log verify`.

An aborted transaction that is missing in the index, or that begins there after its first batch, would be shown to
readers of committed records. More than there is harms nobody: compaction and deletion leave such entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.log.txn_index import AbortedTransaction
from penstock.wire.batch import BatchHeader
from penstock.wire.control import ControlRecord, ControlType


class TransactionCheck:
    """Follows the batches of a folder in order, segment by segment."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}  # producer id → first offset of its open transaction
        self._aborted: list[tuple[int, int, int]] = []  # of this segment: producer id, first offset, marker's offset

    @property
    def open_count(self) -> int:
        """How many transactions have no marker."""
        return len(self._first_offsets)

    @property
    def first_open_offset(self) -> int | None:
        return min(self._first_offsets.values(), default=None)

    def batch(self, header: BatchHeader, control: ControlRecord | None) -> None:
        """The next batch."""
        if header.is_control:
            if control is not None and control.type is not ControlType.UNKNOWN:
                first_offset = self._first_offsets.pop(header.producer_id, None)
                if first_offset is not None and control.type is ControlType.ABORT:
                    self._aborted.append((header.producer_id, first_offset, header.base_offset))
        elif header.is_transactional and header.has_producer and header.record_count:
            self._first_offsets.setdefault(header.producer_id, header.base_offset)

    def end_of_segment(self, entries: Iterable[AbortedTransaction]) -> Iterator[str]:
        """What the index of the segment that has just been read lacks."""
        first_offsets = {(entry.producer_id, entry.last_offset): entry.first_offset for entry in entries}
        for producer_id, first_offset, marker_offset in self._aborted:
            found = first_offsets.get((producer_id, marker_offset))
            what = f"the transaction of producer {producer_id} that was aborted at offset {marker_offset}"
            if found is None:
                yield f"{what} is missing"
            elif found > first_offset:
                yield f"{what} begins at {first_offset}, not at {found}"
        self._aborted.clear()
