"""The transactional ids of one shard, and which of those with a name have an open transaction.

Only replaying records changes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.transactions.names import member_of
from penstock.transactions.transaction import Transaction


class TransactionTable:
    """See the head of this file."""

    def __init__(self) -> None:
        self._by_id: dict[str, Transaction] = {}
        self._open_of_name: dict[str, dict[str, None]] = {}  # name → ids, in the order in which they were opened

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._by_id

    def get(self, transactional_id: str) -> Transaction | None:
        return self._by_id.get(transactional_id)

    def put(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self._by_id[transactional_id] = transaction
        parts = member_of(transactional_id)
        if parts is not None:
            self._note_open(parts.name, transactional_id, is_open=transaction.is_ongoing)

    def remove(self, transactional_id: str) -> None:
        self._by_id.pop(transactional_id, None)
        parts = member_of(transactional_id)
        if parts is not None:
            self._note_open(parts.name, transactional_id, is_open=False)

    def open_of_name(self, name: str) -> list[Transaction]:
        """The open transactions of a name."""
        return [self._by_id[each] for each in self._open_of_name.get(name, ())]

    def names(self) -> Iterator[str]:
        """The names that have open transactions."""
        return iter(self._open_of_name)

    def _note_open(self, name: str, transactional_id: str, *, is_open: bool) -> None:
        ids = self._open_of_name.setdefault(name, {})
        if is_open:
            ids[transactional_id] = None
        else:
            ids.pop(transactional_id, None)
        if not ids:
            del self._open_of_name[name]
