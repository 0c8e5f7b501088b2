"""Until when this broker may act on what it last read: the lease of its session with the coordination service.

The session surely lives until a certain time: as long nobody else has been made leader or coordinator in its place. It
is looked at when something is about to be acknowledged, never by a timer: a process that was stopped for a minute must
find out before it answers, not a moment later.
"""

from __future__ import annotations

from penstock.base.world import Clock
from penstock.zookeeper.coordination import Coordination


class Lease:
    """The lease of this broker's present registration."""

    def __init__(self, clock: Clock, coordination: Coordination) -> None:
        self._monotonic = clock.monotonic
        self._coordination = coordination

    @property
    def timeout_ms(self) -> int:
        """How long a session lives that is not heard of."""
        return self._coordination.timeout_ms

    def holds(self) -> bool:
        """Whether the session surely lives now."""
        return self._monotonic() < self._coordination.lease_until_s
