"""Leaders of a simulated cluster that move by order of an operator, while what is on its way to them comes late.

The orders are requests of a client, which may fail like any other.
"""

from __future__ import annotations

import asyncio

from penstock.testing.sim_fault_tools import CALM_DELAY_S, FaultTools


class LeaderFaults(FaultTools):
    """See the head of this file."""

    async def move_leaders(self) -> None:
        """An operator has another replica lead, a few times in a row."""
        facts = self._some_partition(isr_min=2)
        if facts is None:
            return
        for _ in range(1 + self._chance.randrange(4)):
            state = facts.state
            if state is None:
                return
            first = state.isr[self._chance.randrange(len(state.isr))]
            await self._lead_by(facts.name, [first, *(each for each in state.replicas if each != first)])
            await self._rest(0.6)

    async def cut_and_move(self) -> None:
        """What is on its way between a leader and another broker is held up while others lead, and comes late."""
        facts = self._some_partition(isr_min=2)
        if facts is None or facts.state is None:
            return
        state = facts.state
        others = [each for each in self.cluster.brokers if each.broker_id != state.leader]
        ends = [self.cluster.broker(state.leader), others[self._chance.randrange(len(others))]]
        if self._chance.randrange(2):
            ends.reverse()
        source, target = (each.machine.name for each in ends)
        self.invariants.tell(f"from {source} to {target}: cut", facts.name)
        self._links.cut(source, target)
        await self._rest(0.5)
        leader = state.leader
        for _ in range(1 + self._chance.randrange(3)):
            isr = [] if facts.state is None else [each for each in facts.state.isr if each != facts.state.leader]
            if isr:
                first = leader if leader in isr else isr[self._chance.randrange(len(isr))]
                await self._lead_by(facts.name, [first, *(each for each in state.replicas if each != first)])
            await self._rest(0.8)
        self._links.heal(source, target)
        self.invariants.tell(f"from {source} to {target}: mended", facts.name)

    async def late_fetch(self) -> None:
        """A follower's fetch is still on its way when the leader has lost its role and got it back.

        Meanwhile the follower has cut its log to that of the leader in between, who had received less.
        """
        facts = self._some_partition(isr_min=3)
        if facts is None or facts.state is None:
            return
        leader, state = facts.state.leader, facts.state
        slow, behind = self._two_others(facts)
        names = {broker.broker_id: broker.machine.name for broker in self.cluster.brokers}
        self.invariants.tell(f"{slow} asks slowly, and {behind} hears slowly", facts.name)
        self._links.set_delay(names[slow], names[leader], 0.5, 0.7)
        self._links.set_delay(names[leader], names[behind], 0.2, 0.4)
        await asyncio.sleep(1.0 + self._chance.random())
        for first in (behind, leader):
            await self._lead_by(facts.name, [first, *(each for each in state.replicas if each != first)])
            await self._rest(0.1)
        await asyncio.sleep(1.0)
        self._links.set_delay(names[slow], names[leader], *CALM_DELAY_S)
        self._links.set_delay(names[leader], names[behind], *CALM_DELAY_S)

    async def lead_again(self) -> None:
        """A leader gets its role back from a replica that had received less; another one hears of it late.

        What that other one had fetched before says nothing about what it has now.
        """
        facts = self._some_partition(isr_min=3)
        if facts is None or facts.state is None:
            return
        leader, state = facts.state.leader, facts.state
        other, behind = self._two_others(facts)
        names = {broker.broker_id: broker.machine.name for broker in self.cluster.brokers}
        self.invariants.tell(f"{behind} hears slowly, then {other}", facts.name)
        self._links.set_delay(names[leader], names[behind], 0.3, 0.6)
        await asyncio.sleep(0.6 + 0.4 * self._chance.random())
        await self._lead_by(facts.name, [behind, *(each for each in state.replicas if each != behind)])
        self._links.set_delay(names[leader], names[behind], *CALM_DELAY_S)
        self._links.set_delay(names[leader], names[other], 0.6, 0.9)
        await self._lead_by(facts.name, [leader, *(each for each in state.replicas if each != leader)])
        await asyncio.sleep(0.8)
        self._links.set_delay(names[leader], names[other], *CALM_DELAY_S)

    async def late_marker(self) -> None:
        """Markers of transactions are still on their way when another broker is their coordinator, and writes them."""
        facts = self._some_partition(isr_min=2, topic="__transaction_state")
        if facts is None or facts.state is None:
            return
        state = facts.state
        brokers = [each for each in self.cluster.brokers if each.broker_id != state.leader]
        target = brokers[self._chance.randrange(len(brokers))]
        pipes = self._pipes(self.cluster.broker(state.leader), target)
        if not pipes:
            return
        pipe = pipes[self._chance.randrange(len(pipes))]
        self.invariants.tell(f"from {state.leader} to {target}: a connection is held up", facts.name)
        pipe.hold()
        await asyncio.sleep(0.2 + self._chance.random())
        first = next(each for each in state.isr if each != state.leader)
        await self._lead_by(facts.name, [first, *(each for each in state.replicas if each != first)])
        await asyncio.sleep(0.2 + self._chance.random())
        pipe.let_go()
