"""What the connections of one server share while they receive: a buffer, and a budget for frames that are not whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.connection import Connection

SHARED_BUFFER_BYTES = 64 * 1024


@dataclass(slots=True)
class Intake:
    """What the connections of one server share: the receive buffer, and the budget for unfinished frames."""

    budget_bytes: int
    frame_bytes_max: int
    owned_bytes: int = 0
    shared: memoryview = field(init=False)
    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    overdrawn: Connection | None = None  # the one that may go beyond the budget, so that somebody always gets on

    def __post_init__(self) -> None:
        self.shared = self._new_shared()

    def _new_shared(self) -> memoryview:
        """No larger than the largest frame, so that whatever comes whole in it is of an allowed size."""
        return memoryview(bytearray(min(SHARED_BUFFER_BYTES, self.frame_bytes_max + 4)))

    def hand_over_shared(self) -> memoryview:
        """Give the shared buffer to a connection that must keep its bytes, and take a fresh one."""
        handed, self.shared = self.shared, self._new_shared()
        return handed

    @property
    def is_short(self) -> bool:
        """Half of the budget is gone: nobody keeps a buffer just in case."""
        return self.owned_bytes > self.budget_bytes // 2

    def may_grow(self, connection: Connection, size_bytes: int) -> bool:
        """Whether a connection may own so many bytes more."""
        if self.owned_bytes + size_bytes <= self.budget_bytes:
            return True
        if self.overdrawn is None:
            self.overdrawn = connection
        return self.overdrawn is connection

    def frame_ended(self, connection: Connection) -> None:
        """A connection's unfinished frame is whole, or will never be."""
        if self.overdrawn is connection:
            self.overdrawn = None
            self.release(0)

    def release(self, size_bytes: int) -> None:
        """Bytes of an own buffer are free again: connections that waited for room may go on."""
        self.owned_bytes -= size_bytes
        for _ in range(len(self.waiting)):  # those who have to wait again stand at the end
            if self.owned_bytes < self.budget_bytes or self.overdrawn is None:
                self.waiting.popleft()()
