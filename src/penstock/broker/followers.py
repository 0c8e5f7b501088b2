"""The partitions of this broker that follow others: one fetcher for each of the leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.base.settings import Settings
from penstock.base.world import Address, World
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.follower_fetcher import FetchRules, FollowerFetcher, Registration
from penstock.broker.inter_broker import InterBroker
from penstock.broker.membership import Membership
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.replica_throttle import Limit, ReplicaThrottle
from penstock.zookeeper.topic_znodes import NO_LEADER

CONNECT_S_MAX = 5.0
SILENCE_S_MAX = 5.0  # beyond what a fetch may wait


class Followers:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        view: ClusterView,
        partitions: Partitions,
        membership: Membership,
        settings: Settings,
        present_settings: Callable[[], Settings],
        listener_name: str,
        inter_broker: InterBroker | None = None,
    ) -> None:
        """`present_settings` gives those that may have changed since the start."""
        self._world = world
        self._inter_broker = inter_broker or InterBroker(world)
        self._view = view
        self._membership = membership
        self._listener_name = listener_name
        self._rules = fetch_rules(settings)
        self._limit = Limit(
            ReplicaThrottle.of(settings), lambda: present_settings().integer("follower.replication.throttled.rate")
        )
        self._fetchers: dict[int, FollowerFetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self._is_stopped = False
        self.on_broken: Callable[[int], None] = lambda _leader_id: None
        """Told when the connection to a leader broke."""
        partitions.on_roles(self._roles_changed)
        view.on_change(self._view_changed)

    def _roles_changed(self, changed: list[Partition]) -> None:
        for partition in changed:
            leader_id = NO_LEADER if partition.is_gone or partition.leader is not None else partition.leader_id
            before = self._leader_of.pop(partition, NO_LEADER)
            if before not in (NO_LEADER, leader_id):
                self._fetchers[before].leave(partition)
            if leader_id != NO_LEADER and not self._is_stopped:
                self._leader_of[partition] = leader_id
                self._fetcher_of(leader_id).follow(partition)

    def _fetcher_of(self, leader_id: int) -> FollowerFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = FollowerFetcher(
                self._world,
                self._membership,
                leader_id,
                partial(self._registration, leader_id),
                self._rules,
                self._limit,
                self._inter_broker,
            )
            fetcher.on_broken = lambda: self.on_broken(leader_id)
        return fetcher

    def _registration(self, broker_id: int) -> Registration | None:
        broker = self._view.brokers.get(broker_id)
        for endpoint in broker.endpoints if broker is not None else ():
            if endpoint.listener == self._listener_name:
                epoch = self._view.broker_epochs.get(broker_id, -1)
                return Registration(Address(endpoint.host, endpoint.port), epoch)
        return None

    async def _view_changed(self, change: ViewChange) -> None:
        if change.members:
            for fetcher in self._fetchers.values():
                fetcher.view_changed()

    async def stop(self) -> None:
        """Fetch nothing any more; returns when nothing is changed in the background."""
        self._is_stopped = True
        self._leader_of.clear()
        fetchers, self._fetchers = self._fetchers, {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()))


def fetch_rules(settings: Settings) -> FetchRules:
    wait_ms_max = settings.integer("replica.fetch.wait.max.ms")
    timeout_s = settings.integer("replica.socket.timeout.ms") / 1000
    return FetchRules(
        wait_ms_max=wait_ms_max,
        bytes_min=settings.integer("replica.fetch.min.bytes"),
        partition_bytes_max=settings.integer("replica.fetch.max.bytes"),
        answer_bytes_max=settings.integer("replica.fetch.response.max.bytes"),
        backoff_s_max=settings.integer("replica.fetch.backoff.ms") / 1000,
        connect_s_max=min(CONNECT_S_MAX, timeout_s),
        silence_s_max=min(wait_ms_max / 1000 + SILENCE_S_MAX, timeout_s),
    )
