"""A quiet log: at most one line for each peer in a second, whatever it does."""

from __future__ import annotations

import logging

from penstock.base.world import Clock

logger = logging.getLogger(__name__)

PEERS_MAX = 10_000
QUIET_S = 1.0


class PeerLog:
    """Decides whether a peer may cause another line, and writes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}

    def allows(self, host: str) -> bool:
        """Whether a line about this peer may be written now; counts as writing it."""
        now = self._clock.monotonic()
        if now - self._last.get(host, -QUIET_S) < QUIET_S:
            return False
        if len(self._last) >= PEERS_MAX:
            self._last.clear()
        self._last[host] = now
        return True

    def warn(self, host: str, text: str) -> None:
        if self.allows(host):
            logger.warning("%s: %s", host, text)
