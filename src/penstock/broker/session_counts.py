"""The session with the coordination service, as metrics tell of it: is it in touch, since when not, how often was it
lost.
"""

from __future__ import annotations

import math

from penstock.base.world import Clock
from penstock.zookeeper.coordination import Coordination, SessionState


class SessionCounts:
    """Counts from when it is made."""

    def __init__(self, coordination: Coordination, clock: Clock) -> None:
        self.expirations = 0
        self._coordination = coordination
        self._monotonic = clock.monotonic
        coordination.add_listener(self._changed)

    def _changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.expirations += 1

    @property
    def is_connected(self) -> bool:
        return self._coordination.state is SessionState.CONNECTED

    @property
    def timeout_s(self) -> float:
        return self._coordination.timeout_ms / 1000

    @property
    def silence_s(self) -> float:
        """Since the service has surely heard of us; 0 where it is in this process."""
        left_s = self._coordination.lease_until_s - self._monotonic()
        if left_s == math.inf:
            return 0.0
        return max(0.0, self.timeout_s - left_s)
