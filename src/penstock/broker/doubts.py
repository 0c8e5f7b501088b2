"""Brokers that may just have died: their connections broke, and nobody has said yet whether they are gone.

Whoever asks for metadata the moment a leader dies would be told that it still leads, or that nobody does, and many
clients ask again only after a second. The next leader is elected within milliseconds if the broker's process has ended.
So such an answer waits a little for the news. A doubt decides nothing: leaders are elected on proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView, ViewChange

DOUBT_S_MAX = 0.4


class Doubts:
    """See the head of this file."""

    def __init__(self, clock: Clock, view: ClusterView) -> None:
        self._clock = clock
        self._view = view
        self._until_s: dict[int, float] = {}
        self._doubted: dict[int, int] = {}  # each life of a broker is doubted once
        self._lives: dict[int, int] = {}
        self._news = asyncio.Event()
        view.on_change(self._view_changed)

    def arise(self, broker_id: int) -> None:
        """A connection to a broker broke, and not by our own wish."""
        epoch = self._view.broker_epochs.get(broker_id, -1)
        if epoch >= 0 and self._doubted.get(broker_id) != epoch:
            self._doubted[broker_id] = epoch
            self._until_s[broker_id] = self._clock.monotonic() + DOUBT_S_MAX

    async def _view_changed(self, change: ViewChange) -> None:
        if change.members:
            gone = self._lives.keys() - self._view.broker_epochs.keys()
            self._lives = dict(self._view.broker_epochs)
            for broker_id in gone:  # it is known to be gone; the election follows
                self._until_s.setdefault(broker_id, self._clock.monotonic() + DOUBT_S_MAX)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def settled(self, topics: Collection[str]) -> None:
        """Returns when no leader of these topics is in doubt any more, or soon anyway."""
        while self._until_s and (until_s := self._doubtful_until(topics)) is not None:
            try:
                async with asyncio.timeout(until_s - self._clock.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                return

    def _doubtful_until(self, topics: Collection[str]) -> float | None:
        now_s = self._clock.monotonic()
        self._until_s = {broker_id: until_s for broker_id, until_s in self._until_s.items() if until_s > now_s}
        if not self._until_s:
            return None
        known = [self._view.topics[name] for name in topics if name in self._view.topics]
        leaders = {state.leader for topic in known for state in topic.partitions}
        return max((until_s for broker_id, until_s in self._until_s.items() if broker_id in leaders), default=None)
