"""What can happen to a cluster in the simulator. Each fault lasts a while and mends what it broke; several may overlap.

A fault is a method that takes nothing and draws its victims by the simulation's chance. `FaultPlan` says how many of
which there are. Power is only taken from a machine when the promises still hold without what it has not synced: when
another replica that may lead has everything (`Invariants.can_lose_power`). In topics that sync before they count
anything that is no matter, and `is_any_power_loss_allowed` lets all machines lose power at once.

What an operator does (moving leaders, taking the role of controller away) is among the faults: it is done by requests
of a client, which may fail like any other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from penstock.base.errors import ApiError
from penstock.base.identifiers import TopicPartition
from penstock.testing.sim_cluster import PORT, SimCluster, SimClusterBroker
from penstock.testing.sim_cluster_admin import elect_preferred, reassign
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_fault_plan import FaultPlan as FaultPlan
from penstock.testing.sim_invariants import Invariants, PartitionFacts
from penstock.testing.sim_stream import Pipe
from penstock.zookeeper.operations import Delete, Write
from penstock.zookeeper.znodes import ControllerNode

CALM_DELAY_S = (0.0002, 0.002)

Fault = Callable[[], Coroutine[Any, Any, None]]


class ClusterFaults:
    """See the head of this file; what happened is counted in `happened`."""

    def __init__(
        self,
        cluster: SimCluster,
        invariants: Invariants,
        plan: FaultPlan,
        others: Mapping[str, Fault] | None = None,
    ) -> None:
        """`others` are faults of somebody else, by their names in the plan."""
        self._others = others or {}
        operator = cluster.simulation.machine("operator").process("operator")
        self._operator = ClusterClient(operator, cluster.addresses, "operator")
        self.cluster = cluster
        self.invariants = invariants
        self.plan = plan
        self.happened: Counter[str] = Counter()
        self._simulation = cluster.simulation
        self._links = cluster.simulation.network.links
        self._chance = cluster.simulation.random
        self._starting: dict[int, asyncio.Future[None]] = {}

    # ── running them ─────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Let all of them happen, and wait until they are over."""
        kinds = [name for name, weight in sorted(self.plan.weights.items()) for _ in range(weight)]
        under_way: set[asyncio.Future[None]] = set()
        for _ in range(self.plan.count):
            await self._rest(self.plan.pause_s_max)
            kind = kinds[self._chance.randrange(len(kinds))]
            fault: Fault = self._others.get(kind) or getattr(self, kind)
            self.happened[kind] += 1
            self._simulation.loop.trace.add(f"fault: {kind}")
            running = asyncio.ensure_future(fault())
            under_way.add(running)
            if self._chance.random() >= self.plan.overlap_chance:
                await asyncio.wait(under_way)
            done = {each for each in under_way if each.done()}
            under_way -= done
            for each in done:
                each.result()
        for each in under_way:
            await each

    async def heal(self) -> None:
        """No more faults: everything is mended and runs."""
        self._simulation.network.clear_faults()
        self._links.default_delay_s = CALM_DELAY_S
        keeper = self.cluster.keeper
        keeper.machine.disk.heal()
        if keeper.process is None or keeper.process.ended:
            keeper.start()
        else:
            keeper.process.resume()
        self.invariants.tell("all faults are over")
        for broker in self.cluster.brokers:
            broker.machine.disk.heal()
            if broker.process is not None and not broker.process.ended:
                broker.process.resume()
        await asyncio.gather(*(self._start(broker) for broker in self.cluster.brokers if not broker.is_running))

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

    # ── processes and machines ───────────────────────────────────────────────────────────────────────────────────

    async def kill(self) -> None:
        """kill -9, and back after a while."""
        await self._kill(self._pick())

    async def _kill(self, broker: SimClusterBroker) -> None:
        self.invariants.tell(f"{broker} is killed")
        broker.kill()
        await self._rest(self._long_s())
        if not broker.is_running:
            await self._start(broker)

    async def kill_at_an_operation(self) -> None:
        """Killed in the middle of something that it does to its disk."""
        broker = self._pick()
        if not broker.is_running:
            return
        broker.machine.kill_at(broker.machine.disk.operations_count + 1 + self._chance.randrange(40))
        await asyncio.sleep(self._chance.random() * 3)
        broker.machine.disk.device.stop_number = None
        if not broker.is_running and broker.has_power:
            self.invariants.tell(f"{broker} was killed in the middle of something")
            await self._start(broker)

    async def kill_controller_in_the_act(self) -> None:
        """A broker dies, and the controller just after it has written who leads in its place."""
        controller, victim = self.cluster.controller, self._pick()
        if controller is None or victim is controller:
            return
        killing = asyncio.ensure_future(self._kill(victim))
        written = self.invariants.states_written
        for _ in range(int(2000 * self._session_s)):
            await asyncio.sleep(0.0005)
            if self.invariants.states_written != written:
                await self._kill(controller)
                break
        await killing

    async def kill_leader_after_follower(self) -> None:
        """A follower dies, what it lacks is committed by the others, and then the leader dies; the follower returns.

        Whoever leads now has all of it, but does not know yet how much of it is committed.
        """
        facts = self._some_partition(isr_min=3)
        if facts is None or facts.state is None:
            return
        leader, follower = facts.state.leader, self._two_others(facts)[0]
        broker = self.cluster.broker(follower)
        self.invariants.tell(f"{broker} is killed", facts.name)
        broker.kill()
        for _ in range(int(1000 * self._session_s)):
            await asyncio.sleep(0.001)
            if facts.state is None or follower not in facts.state.isr:
                break
        await self._rest(0.04)
        killing = asyncio.ensure_future(self._kill(self.cluster.broker(leader)))
        await self._rest(0.1)
        if not broker.is_running:
            await self._start(broker)
        await killing

    async def kill_many(self) -> None:
        """Several brokers die at nearly the same time."""
        for broker in self.cluster.brokers:
            if self._chance.randrange(3):
                self.invariants.tell(f"{broker} is killed")
                broker.kill()
                await self._rest(0.3)
        await self._rest(self._long_s())
        await asyncio.gather(*(self._start(each) for each in self.cluster.brokers if not each.is_running))

    async def stop_cleanly(self) -> None:
        """A planned restart."""
        broker = self._pick()
        if not broker.is_running or broker.running is None:
            return
        self.invariants.tell(f"{broker} is stopped")
        await broker.stop()
        await self._rest(2.0)
        if not broker.is_running:
            await self._start(broker)

    async def lose_power(self) -> None:
        """A machine loses power, and with it some of what was not synced."""
        broker = self._pick()
        if not (self.plan.is_any_power_loss_allowed or self.invariants.can_lose_power(broker)):
            await self._kill(broker)
            return
        self._lose_power(broker)
        await self._rest(self._long_s())
        await self._start(broker)

    async def lose_power_behind_a_cut(self) -> None:
        """A machine that has lost power comes back quickly, but the other brokers do not hear of it for a while."""
        broker = self._pick()
        if not (self.plan.is_any_power_loss_allowed or self.invariants.can_lose_power(broker)):
            return
        others = [each.machine.name for each in self.cluster.brokers if each is not broker]
        self.invariants.tell(f"{broker} and {', '.join(others)}: cut")
        for other in others:
            self._links.cut_both(broker.machine.name, other)
        self._lose_power(broker)
        starting = asyncio.ensure_future(self._start(broker))
        await self._rest(self._long_s())
        self.invariants.tell(f"{broker} and {', '.join(others)}: mended")
        for other in others:
            self._links.heal(broker.machine.name, other)
        await starting

    def _lose_power(self, broker: SimClusterBroker) -> None:
        if not broker.has_power:
            return
        self.invariants.tell(f"{broker} loses power")
        pending = [change.number for change in broker.machine.disk.pending()]
        kind = self._chance.randrange(3)
        if kind == 0:
            broker.lose_power("all")
        elif kind == 1:
            share = self._chance.random()
            broker.lose_power([number for number in pending if self._chance.random() < share])
        else:
            broker.lose_power(
                [number for number in pending if self._chance.randrange(4)],
                torn=self._chance.randrange(500),
                lost_pages=lambda _write, _page: self._chance.randrange(4) == 0,
            )

    async def lose_all_power(self) -> None:
        """The whole room goes dark, the keeper with it."""
        if not self.plan.is_any_power_loss_allowed:
            await self.kill_many()
            return
        for broker in self.cluster.brokers:
            self._lose_power(broker)
        self.cluster.keeper.lose_power()
        await self._rest(2.0)
        self.cluster.keeper.start()
        for broker in self.cluster.brokers:
            await self._rest(1.0)
            if not broker.is_running:
                await asyncio.wait([asyncio.ensure_future(self._start(broker))], timeout=self._chance.random() * 3)
        await asyncio.gather(*(self._start(each) for each in self.cluster.brokers if not each.is_running))

    async def pause(self) -> None:
        """A process stands still, perhaps for longer than its session."""
        broker = self._pick()
        process = broker.process
        if process is None or process.ended:
            return
        self.invariants.tell(f"{broker} stands still")
        process.pause()
        await asyncio.sleep(self._long_s())
        if not process.ended:
            self.invariants.tell(f"{broker} goes on")
            process.resume()

    async def slow_disk(self) -> None:
        """Syncs take long."""
        broker = self._pick()
        broker.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.05 + self._chance.random())
        await self._rest(3.0)
        broker.machine.disk.heal()

    async def jump_clock(self) -> None:
        """The wall clock of a machine is set."""
        self._pick().machine.clock.jump(self._chance.randrange(7_200_000) - 3_600_000)

    # ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────

    async def crash_keeper(self) -> None:
        """The keeper is killed, or its machine loses power."""
        keeper = self.cluster.keeper
        if keeper.process is None or keeper.process.ended:
            return
        if self._chance.randrange(2):
            self.invariants.tell("the keeper is killed")
            keeper.kill()
        else:
            self.invariants.tell("the keeper loses power")
            keeper.lose_power()
        await self._rest(self._long_s())
        if keeper.process is None or keeper.process.ended:
            self.invariants.tell("the keeper is started")
            keeper.start()

    async def pause_keeper(self) -> None:
        process = self.cluster.keeper.process
        if process is None or process.ended:
            return
        self.invariants.tell("the keeper stands still")
        process.pause()
        await self._rest(self._long_s())
        if not process.ended:
            self.invariants.tell("the keeper goes on")
            process.resume()

    async def take_role_away(self) -> None:
        """An operator removes `/controller`: another broker takes over while the first one does not know yet."""
        keeper, process = self.cluster.keeper.keeper, self.cluster.keeper.process
        controller = self.cluster.controller
        if keeper is None or process is None or process.ended or controller is None:
            return
        self.invariants.tell(f"{controller} is not the controller any more, by order")
        if self._chance.randrange(2):
            self._links.cut(self.cluster.keeper.machine.name, controller.machine.name)
        removal = Write(controller.session_id, (Delete(ControllerNode.PATH),))
        process.call(lambda: keeper.store.submit(removal).add_done_callback(lambda done: done.exception()))
        await self._rest(self._session_s * 0.6)
        self._links.heal(self.cluster.keeper.machine.name, controller.machine.name)

    async def lose_session(self) -> None:
        """A broker's session is over although the broker lives."""
        broker = self._pick()
        self.invariants.tell(f"the session of {broker} is ended")
        self.cluster.keeper.expire(broker.session_id)

    # ── the network ──────────────────────────────────────────────────────────────────────────────────────────────

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

    # ── leaders that move ────────────────────────────────────────────────────────────────────────────────────────

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

    def _pipes(self, source: SimClusterBroker, target: SimClusterBroker) -> list[Pipe]:
        """What one broker sends to another on connections that it has made."""
        process = source.process
        if process is None or process.ended:
            return []
        address = self._simulation.network.host(target.machine.name).address
        streams = [each for each in process.network.streams() if each.peer == (address, PORT)]
        return [each.pipe for each in streams if each.pipe is not None]

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


ALL_FAULTS: Mapping[str, int] = {
    "kill": 4,
    "kill_at_an_operation": 2,
    "kill_controller_in_the_act": 1,
    "kill_leader_after_follower": 1,
    "kill_many": 1,
    "stop_cleanly": 2,
    "lose_power": 3,
    "lose_power_behind_a_cut": 1,
    "lose_all_power": 1,
    "pause": 3,
    "slow_disk": 1,
    "jump_clock": 1,
    "crash_keeper": 1,
    "pause_keeper": 1,
    "lose_session": 2,
    "cut_off": 4,
    "cut_pair": 2,
    "isolate": 2,
    "flap": 1,
    "uneven_links": 2,
    "move_leaders": 2,
    "cut_and_move": 2,
    "late_fetch": 1,
    "late_marker": 1,
    "hold_connections": 1,
    "cut_clients": 1,
    "take_role_away": 1,
    "reset_connections": 1,
    "slow_network": 1,
}

MEMBER_FAULTS: Mapping[str, int] = {"member_comes": 6, "member_leaves": 2, "member_dies": 2, "member_pauses": 2}
