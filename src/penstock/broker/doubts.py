"""Brokers that may just have died: their connections broke, and nobody has said yet whether they are gone.

Whoever asks for metadata the moment a leader dies would be told that it still leads, or that nobody does, and many
clients ask again only after a second. The next leader is elected within milliseconds if the broker's process has ended.
So such an answer waits a little for the news. A doubt decides nothing: leaders are elected on proof.

And a broker that died is named to clients for some seconds more, though it leads nothing: librdkafka drops, together
with a broker that is not named any more, what it was just told of the partitions that this broker led.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from penstock.base.world import Clock
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.zookeeper.znodes import BrokerNode

DOUBT_S_MAX = 0.4
NOTICE_S = 0.01  # how much later than a client a broker may see that connections break
NAMED_S = 3.0  # after its death
FRESH_S = 1.0  # whoever asks on an older connection most likely has lost somebody


class Doubts:
    """See the head of this file."""

    def __init__(self, clock: Clock, view: ClusterView) -> None:
        self._clock = clock
        self._view = view
        self._until_s: dict[int, float] = {}
        self._doubted: dict[int, int] = {}  # each life of a broker is doubted once
        self._lives: dict[int, BrokerNode] = {}
        self._dead: dict[int, tuple[BrokerNode, float]] = {}  # and until when they are named
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
            self._note_deaths()
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _note_deaths(self) -> None:
        now_s = self._clock.monotonic()
        for broker_id in self._lives.keys() - self._view.brokers.keys():
            self._until_s.setdefault(broker_id, now_s + DOUBT_S_MAX)  # the election follows
            if broker_id not in self._view.admitted.leaving:
                self._dead[broker_id] = self._lives[broker_id], now_s + NAMED_S
        self._lives = dict(self._view.brokers)

    def just_died(self) -> dict[int, BrokerNode]:
        """Brokers that are gone, and are still named to clients."""
        now_s = self._clock.monotonic()
        self._dead = {
            broker_id: (node, until_s)
            for broker_id, (node, until_s) in self._dead.items()
            if until_s > now_s and broker_id not in self._view.brokers
        }
        return {broker_id: node for broker_id, (node, _) in self._dead.items()}

    async def settled(self, topics: Collection[str], connected_s: float) -> None:
        """Returns when no leader of these topics is in doubt any more, or soon anyway.

        `connected_s` is since when who asks is connected: who asks again is answered a moment later.
        """
        if len(self._view.brokers) > 1 and self._clock.monotonic() - connected_s > FRESH_S:
            await asyncio.sleep(NOTICE_S)
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
