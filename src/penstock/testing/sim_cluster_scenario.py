"""A small simulated cluster for tests that tell a story: three brokers, a topic, and a client that writes to it.

async def script(scenario: ClusterScenario) -> None:
    scenario.leader.kill()
    await scenario.write()                 # goes on until somebody else leads

ClusterScenario(seed=1, has_watchers=True).run(script)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.broker.partition import Partition
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_world import Simulation

WHERE = TopicPartition("orders", 0)
SETTINGS = {"min.insync.replicas": "2", "default.replication.factor": "3"}
SESSION_TIMEOUT_S = 4.0


class ClusterScenario:
    """See the head of this file."""

    def __init__(self, seed: int, *, has_watchers: bool) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=600)
        self.cluster = SimCluster(
            self.simulation, 3, SETTINGS, session_timeout_ms=int(SESSION_TIMEOUT_S * 1000), has_watchers=has_watchers
        )
        process = self.simulation.machine("client").process("client")
        self.client = ClusterClient(process, self.cluster.addresses, "client")
        self.errors: list[Error] = []
        self.written = 0

    def run(self, script: Callable[[ClusterScenario], Coroutine[Any, Any, None]]) -> None:
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

    def partition(self, broker: SimClusterBroker) -> Partition | None:
        """The replica that a broker has, while it runs."""
        return None if broker.running is None else broker.running.broker.partitions.get(WHERE)

    @property
    def leader(self) -> SimClusterBroker:
        for broker in self.cluster.brokers:
            partition = self.partition(broker)
            if partition is not None and partition.leader is not None:
                return broker
        raise AssertionError("nobody leads")

    async def ask(self, broker: SimClusterBroker, request: Any, version: int | None = None) -> Any:
        """The answer of a certain broker, whoever leads."""
        client: SimClient = await broker.connect(self.client.process)
        try:
            return await self.client.process.start(client.call(request, version))
        finally:
            client.close()

    async def until_in_sync(self) -> None:
        while len(self._isr()) < 3:
            await asyncio.sleep(0.05)

    def _isr(self) -> frozenset[int]:
        partition = self.partition(self.leader)
        assert partition is not None and partition.leader is not None
        return partition.leader.membership.isr

    async def have_it_lead(self, *, is_controller: bool) -> SimClusterBroker:
        """The leader, which is the controller or is not, whichever was asked for."""
        while not self._is_led_by(is_controller):
            await self.leader.stop()
            await self.write()
            if is_controller and not self._is_led_by(is_controller):
                await self.leader.stop()  # else the first two replicas take turns, and the third is the controller
            for broker in self.cluster.brokers:
                if not broker.is_running:
                    await broker.start()
            await self.write()
            await self.until_in_sync()
        return self.leader

    def _is_led_by(self, is_controller: bool) -> bool:
        return (self.leader is self.cluster.controller) is is_controller
