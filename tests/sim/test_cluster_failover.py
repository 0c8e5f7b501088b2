"""How long a partition of a simulated cluster cannot be written to when its leader goes (promise P6), and what clients
notice of a planned restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.sim_client import batch_of
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_world import Simulation

pytestmark = pytest.mark.sim

WHERE = TopicPartition("orders", 0)
SETTINGS = {"min.insync.replicas": "2", "default.replication.factor": "3"}
SESSION_TIMEOUT_S = 4.0


class Scenario:
    """Three brokers, a topic, and a client that writes to it, one message after the other."""

    def __init__(self, seed: int, *, has_watchers: bool) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=600)
        self.cluster = SimCluster(
            self.simulation, 3, SETTINGS, session_timeout_ms=int(SESSION_TIMEOUT_S * 1000), has_watchers=has_watchers
        )
        process = self.simulation.machine("client").process("client")
        self.client = ClusterClient(process, self.cluster.addresses, "client")
        self.errors: list[Error] = []
        self.written = 0

    def run(self, script: Callable[[Scenario], Coroutine[Any, Any, None]]) -> None:
        async def drive() -> None:
            await self.cluster.start()
            await self._as_client(self._create())
            await self.write()
            await script(self)

        with self.simulation:
            self.simulation.run(drive())

    def _as_client(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        return self.client.process.start(work)

    async def _create(self) -> None:
        await (await self.client.any()).create_topic(WHERE.topic, 1, replicas=3)

    async def write(self) -> float:
        """Write one message, however often that must be tried; when it was acknowledged."""
        await self._as_client(self._write())
        return self.simulation.loop.time()

    async def _write(self) -> None:
        while True:
            try:
                async with asyncio.timeout(1.0):
                    leader = await self.client.leader(WHERE)
                    answer = await leader.produce(*WHERE, batch_of([b"message"]), timeout_ms=900)
                    error = Error(answer.error_code)
            except ApiError as nobody:
                error = nobody.error
            except OSError:
                error = Error.NETWORK_EXCEPTION
            if error is Error.NONE:
                self.written += 1
                return
            self.errors.append(error)
            self.client.look_again(WHERE)
            await asyncio.sleep(0.01)

    @property
    def leader(self) -> SimClusterBroker:
        for broker in self.cluster.brokers:
            partition = None if broker.running is None else broker.running.broker.partitions.get(WHERE)
            if partition is not None and partition.leader is not None:
                return broker
        raise AssertionError("nobody leads")

    async def until_in_sync(self) -> None:
        while len(self._isr()) < 3:
            await asyncio.sleep(0.05)

    def _isr(self) -> frozenset[int]:
        running = self.leader.running
        partition = None if running is None else running.broker.partitions.get(WHERE)
        assert partition is not None and partition.leader is not None
        return partition.leader.membership.isr

    async def have_it_lead(self, *, is_controller: bool) -> SimClusterBroker:
        """The leader, which is the controller or is not, whichever was asked for."""
        while (self.leader is self.cluster.controller) is not is_controller:
            await self.leader.stop()
            await self.write()
            for broker in self.cluster.brokers:
                if not broker.is_running:
                    await broker.start()
            await self.until_in_sync()
        return self.leader


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_dead_leader_with_a_watcher_is_replaced_within_a_second(seed: int, is_controller: bool) -> None:
    async def script(scenario: Scenario) -> None:
        victim = await scenario.have_it_lead(is_controller=is_controller)
        killed_s = scenario.simulation.loop.time()
        victim.kill()
        assert await scenario.write() - killed_s < 1.0

    Scenario(seed, has_watchers=True).run(script)


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_stands_still_is_replaced_when_its_session_ends(seed: int) -> None:
    async def script(scenario: Scenario) -> None:
        victim = scenario.leader
        assert victim.process is not None
        paused_s = scenario.simulation.loop.time()
        victim.process.pause()
        assert await scenario.write() - paused_s < SESSION_TIMEOUT_S + 5.0  # the client loses time, too
        victim.process.resume()
        await scenario.until_in_sync()

    Scenario(seed, has_watchers=True).run(script)


@pytest.mark.parametrize("seed", range(3))
def test_a_rolling_restart_is_hardly_noticed(seed: int) -> None:
    async def script(scenario: Scenario) -> None:
        is_over = False

        async def restart_all() -> None:
            nonlocal is_over
            for broker in scenario.cluster.brokers:
                await broker.stop()
                await broker.start()
                await scenario.until_in_sync()
            is_over = True

        restarting = asyncio.ensure_future(restart_all())
        longest_s, last_s = 0.0, scenario.simulation.loop.time()
        while not is_over:
            now_s = await scenario.write()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
        await restarting
        assert longest_s < 0.5
        assert set(scenario.errors) <= {Error.NOT_LEADER_OR_FOLLOWER, Error.NETWORK_EXCEPTION, Error.REQUEST_TIMED_OUT}

    Scenario(seed, has_watchers=False).run(script)
