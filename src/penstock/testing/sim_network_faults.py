"""Faults of the network in a simulated cluster: cuts in one direction or both, slow links, connections that break or
stand still."""

from __future__ import annotations

import asyncio

from penstock.testing.sim_fault_tools import CALM_DELAY_S, FaultTools


class NetworkFaults(FaultTools):
    """See the head of this file."""

    async def cut_off(self) -> None:
        """A broker is cut off from the other brokers, from the keeper, or from both, in one direction or in both."""
        broker = self._pick()
        peers = [each.machine.name for each in self.cluster.brokers if each is not broker]
        keeper = [self.cluster.keeper.machine.name]
        targets = (peers, keeper, peers + keeper)[self._chance.randrange(3)]
        await self._cut([(broker.machine.name, target) for target in targets], f"{broker} and {', '.join(targets)}")

    async def cut_pair(self) -> None:
        """Two brokers do not reach each other."""
        one, other = self._pick(), self._pick()
        if one is not other:
            await self._cut([(one.machine.name, other.machine.name)], f"{one} and {other}")

    async def isolate(self) -> None:
        """A broker is cut off from everybody, clients included."""
        broker = self._pick()
        others = [name for name in self._simulation.machines if name != broker.machine.name]
        await self._cut([(broker.machine.name, other) for other in others], f"{broker} and everybody")

    async def strand_leader(self) -> None:
        """A leader is cut off from the other brokers and from the keeper for longer than its session lives.

        Clients still reach it, and some know of no other.
        """
        facts = self._some_partition(isr_min=2)
        if facts is None or facts.state is None:
            return
        leader = self.cluster.broker(facts.state.leader).machine.name
        others = sorted(self._servers() - {leader})
        self.invariants.tell(f"{leader}, which leads, and {', '.join(others)}: cut", facts.name)
        for other in others:
            self._links.cut_both(leader, other)
        await asyncio.sleep((1 + 2.5 * self._chance.random()) * self._session_s)
        self.invariants.tell(f"{leader} and {', '.join(others)}: mended", facts.name)
        for other in others:
            self._links.heal(leader, other)

    async def _cut(self, pairs: list[tuple[str, str]], what: str) -> None:
        way = self._chance.randrange(4)
        self.invariants.tell(f"{what}: cut{('', ', towards', ', away from', '')[way]}")
        for one, other in pairs:
            if way != 1:
                self._links.cut(one, other)
            if way != 2:
                self._links.cut(other, one)
        await asyncio.sleep(self._long_s())
        self.invariants.tell(f"{what}: mended")
        for one, other in pairs:
            self._links.heal(one, other)

    async def cut_clients(self) -> None:
        """What clients send does not arrive, or not the answers; it comes when they have given up."""
        broker = self._pick()
        clients = [name for name in self._simulation.machines if name not in self._servers()]
        pairs = [(broker.machine.name, name) for name in clients if self._chance.randrange(2)]
        await self._cut(pairs, f"{broker} and clients")

    def _servers(self) -> set[str]:
        return {self.cluster.keeper.machine.name, *(each.machine.name for each in self.cluster.brokers)}

    async def flap(self) -> None:
        """A link that comes and goes."""
        one, other = self._pick(), self._pick()
        if one is other:
            return
        self.invariants.tell(f"{one} and {other}: the link comes and goes")
        for _ in range(2 + self._chance.randrange(5)):
            self._links.cut_both(one.machine.name, other.machine.name)
            await self._rest(0.6)
            self._links.heal(one.machine.name, other.machine.name)
            await self._rest(0.6)

    async def reset_connections(self) -> None:
        """Connections of a broker break."""
        broker = self._pick()
        self.invariants.tell(f"connections of {broker} break")
        for name in list(self._simulation.machines):
            if name != broker.machine.name and self._chance.randrange(2):
                self._simulation.network.reset(broker.machine.name, name)

    async def uneven_links(self) -> None:
        """Some links between brokers are slower than others: replicas fall behind each other."""
        names = [each.machine.name for each in self.cluster.brokers]
        for one in names:
            for other in names:
                if one != other and self._chance.randrange(2):
                    low_s = 0.2 * self._chance.random()
                    self._links.set_delay(one, other, low_s, 1.5 * low_s)
        await self._rest(6.0)
        for one in names:
            for other in names:
                self._links.set_delay(one, other, *CALM_DELAY_S)

    async def slow_network(self) -> None:
        """Every packet takes long."""
        self._links.default_delay_s = (0.01, 0.05 + 0.3 * self._chance.random())
        await self._rest(3.0)
        self._links.default_delay_s = CALM_DELAY_S

    async def hold_connections(self) -> None:
        """Some connections between brokers stand still, and go on later."""
        one, other = self._pick(), self._pick()
        pipes = [each for each in self._pipes(one, other) if self._chance.randrange(2)]
        if pipes:
            self.invariants.tell(f"from {one} to {other}: {len(pipes)} connections are held up")
        for pipe in pipes:
            pipe.hold()
        await asyncio.sleep(self._long_s())
        for pipe in pipes:
            pipe.let_go()
