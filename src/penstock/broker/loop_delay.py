"""How late the event loop is: what is due waits that long for its turn, every request included.

A timer that comes ten times a second looks how late it is. The largest delay is kept for the minute, or half of it,
that has just passed, so that several readers see the same.
"""

from __future__ import annotations

import asyncio

from penstock.base.world import Clock

LOOK_S = 0.1
WINDOW_S = 30.0


class LoopDelay:
    """Measures from `start` to `stop`."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._window_ends_s = 0.0
        self._max_s = self._max_before_s = 0.0

    @property
    def max_s(self) -> float:
        """The largest delay of late."""
        return max(self._max_s, self._max_before_s)

    def start(self) -> None:
        self._window_ends_s = self._monotonic() + WINDOW_S
        self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self._due_s = self._monotonic() + LOOK_S
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now_s = self._monotonic()
        if now_s >= self._window_ends_s:
            self._max_before_s, self._max_s = self._max_s, 0.0
            self._window_ends_s = now_s + WINDOW_S
        self._max_s = max(self._max_s, now_s - self._due_s)
        self._set_timer()
