"""Waiting until others know what was decided, so that whoever hears of it can use it at once.

The controller pushes nothing: brokers read for themselves what has changed. It only asks them to say when they have.
Nothing depends on their answer: a broker that cannot be reached is left to find out later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from penstock.broker.cluster_view import ClusterView
from penstock.broker.peers import PeerError, Peers
from penstock.wire.messages.k20004_await_changes import API as AWAIT_CHANGES
from penstock.wire.messages.k20004_await_changes import AwaitChangesRequest
from penstock.zookeeper.topic_znodes import Topic

logger = logging.getLogger(__name__)

SPREAD_S_MAX = 5.0


class Spreading:
    """See the head of this file."""

    def __init__(self, own_id: int, view: ClusterView, peers: Peers) -> None:
        self._own_id = own_id
        self._view = view
        self._peers = peers

    async def to_replicas(self, topics: Iterable[Topic], timeout_s: float = SPREAD_S_MAX) -> None:
        """Wait until the brokers with replicas of these topics know what this one knows now."""
        await self.to_brokers(
            {broker_id for topic in topics for state in topic.partitions for broker_id in state.replicas}, timeout_s
        )

    async def to_all(self, timeout_s: float = SPREAD_S_MAX) -> None:
        await self.to_brokers(self._view.brokers, timeout_s)

    async def to_brokers(self, broker_ids: Iterable[int], timeout_s: float = SPREAD_S_MAX) -> None:
        """The same for these brokers; those that are not there now are left out."""
        timeout_s = min(timeout_s, SPREAD_S_MAX)
        version = self._view.changes_version
        others = sorted(self._view.brokers.keys() & set(broker_ids) - {self._own_id})
        if others and timeout_s > 0:
            await asyncio.gather(*(self._to_one(broker_id, version, timeout_s) for broker_id in others))

    async def _to_one(self, broker_id: int, version: int, timeout_s: float) -> None:
        request = AwaitChangesRequest(changes_version=version, timeout_ms=int(timeout_s * 1000))
        try:
            answer = await self._peers.ask(broker_id, AWAIT_CHANGES, request, timeout_s=timeout_s)
        except PeerError as error:
            logger.info("the newest changes may have to be awaited: %s", error)
        else:
            if answer.error_code:
                logger.info("broker %d has not read the newest changes yet", broker_id)
