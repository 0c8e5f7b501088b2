"""Until when this broker may act on what it last read: the lease of its session with the coordination service.

The session surely lives until a certain time: as long nobody else has been made leader or coordinator in its place. It
is looked at when something is about to be acknowledged, never by a timer: a process that was stopped for a minute must
find out before it answers, not a moment later.

A new session is no lease for what was read in the one before: others may lead by now. It counts from when this broker
has read everything again and taken over what it found.
"""

from __future__ import annotations

from penstock.base.world import Clock
from penstock.zookeeper.coordination import Coordination, SessionState


class Lease:
    """The lease of this broker's present registration."""

    def __init__(self, clock: Clock, coordination: Coordination) -> None:
        self._monotonic = clock.monotonic
        self._coordination = coordination
        self._session_id = coordination.session_id  # in which what this broker acts on was read
        self._is_former = False  # that one is over, and there is another
        coordination.add_listener(self._session_changed)

    @property
    def timeout_ms(self) -> int:
        """How long a session lives that is not heard of."""
        return self._coordination.timeout_ms

    def holds(self) -> bool:
        """Whether the session surely lives now in which this broker has read what it acts on."""
        return not self._is_former and self._monotonic() < self._coordination.lease_until_s

    def acts_on(self, session_id: int) -> None:
        """What was read in this session has been taken over: who leads what, and that others lead the rest."""
        self._session_id = session_id
        self._compare()

    def _session_changed(self, _state: SessionState) -> None:
        self._compare()

    def _compare(self) -> None:
        self._is_former = self._coordination.session_id != self._session_id
