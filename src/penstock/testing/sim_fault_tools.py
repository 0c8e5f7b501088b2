"""What the faults of a simulated cluster have in common: victims, durations, an operator with a client of his own."""

from __future__ import annotations

import asyncio

from penstock.base.errors import ApiError
from penstock.base.identifiers import TopicPartition
from penstock.testing.sim_cluster import PORT, SimCluster, SimClusterBroker
from penstock.testing.sim_cluster_admin import elect_preferred, reassign
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_fault_plan import FaultPlan
from penstock.testing.sim_invariants import Invariants, PartitionFacts
from penstock.testing.sim_stream import Pipe

CALM_DELAY_S = (0.0002, 0.002)


class FaultTools:
    """See the head of this file."""

    def __init__(self, cluster: SimCluster, invariants: Invariants, plan: FaultPlan) -> None:
        operator = cluster.simulation.machine("operator").process("operator")
        self._operator = ClusterClient(operator, cluster.addresses, "operator")
        self.cluster = cluster
        self.invariants = invariants
        self.plan = plan
        self._simulation = cluster.simulation
        self._links = cluster.simulation.network.links
        self._chance = cluster.simulation.random
        self._starting: dict[int, asyncio.Future[None]] = {}

    async def _start(self, broker: SimClusterBroker) -> None:
        """Start a broker unless it is being started already."""
        starting = self._starting.get(broker.broker_id)
        if starting is None or starting.done():
            broker.power_on()
            self.invariants.tell(f"{broker} is started")
            starting = asyncio.ensure_future(self._start_now(broker))
            self._starting[broker.broker_id] = starting
        await asyncio.wait([starting])
        starting.result()

    async def _start_now(self, broker: SimClusterBroker) -> None:
        if await broker.start() is None:
            self.invariants.tell(f"{broker} was ended before it served")

    async def _rest(self, seconds_max: float) -> None:
        await asyncio.sleep(self._chance.random() * seconds_max)

    def _pick(self) -> SimClusterBroker:
        """Any broker; one in three times the controller."""
        controller = self.cluster.controller
        if controller is not None and self._chance.randrange(3) == 0:
            return controller
        return self.cluster.brokers[self._chance.randrange(len(self.cluster.brokers))]

    def _long_s(self) -> float:
        """A while: mostly shorter, sometimes longer than a session lives."""
        sessions = 2.5 if self._chance.randrange(3) == 0 else 0.7
        return self._chance.random() * sessions * self._session_s * self.plan.length

    @property
    def _session_s(self) -> float:
        return self.cluster.session_timeout_ms / 1000

    async def _kill(self, broker: SimClusterBroker) -> None:
        self.invariants.tell(f"{broker} is killed")
        broker.kill()
        await self._rest(self._long_s())
        if not broker.is_running:
            await self._start(broker)

    def _some_partition(self, isr_min: int, topic: str | None = None) -> PartitionFacts | None:
        """One with a leader and so many replicas in sync."""
        known = [
            facts
            for facts in self.invariants.facts.values()
            if topic in (None, facts.name.topic)
            and facts.state is not None
            and facts.state.leader in facts.state.isr
            and len(facts.state.isr) >= isr_min
        ]
        return known[self._chance.randrange(len(known))] if known else None

    def _two_others(self, facts: PartitionFacts) -> list[int]:
        assert facts.state is not None
        others = [each for each in facts.state.isr if each != facts.state.leader]
        return [others.pop(self._chance.randrange(len(others))) for _ in range(2)]

    async def _lead_by(self, where: TopicPartition, replicas: list[int]) -> None:
        self.invariants.tell(f"{replicas[0]} is to lead, by order", where)
        try:
            async with asyncio.timeout(2.0):
                client = await self._operator.any()
                await reassign(client, where, replicas)
                await elect_preferred(client, where)
        except (OSError, ApiError):
            self._operator.start_over()

    def _pipes(self, source: SimClusterBroker, target: SimClusterBroker) -> list[Pipe]:
        """What one broker sends to another on connections that it has made."""
        process = source.process
        if process is None or process.ended:
            return []
        address = self._simulation.network.host(target.machine.name).address
        streams = [each for each in process.network.streams() if each.peer == (address, PORT)]
        return [each.pipe for each in streams if each.pipe is not None]
