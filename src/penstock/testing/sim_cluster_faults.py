"""What can happen to a cluster in the simulator. Each fault lasts a while and mends what it broke; several may overlap.

A fault is a method that takes nothing and draws its victims by the simulation's chance. `FaultPlan` says how many of
which there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from penstock.testing.sim_cluster import SimCluster
from penstock.testing.sim_disk import CAPACITY_BYTES
from penstock.testing.sim_fault_plan import FaultPlan
from penstock.testing.sim_fault_tools import CALM_DELAY_S
from penstock.testing.sim_invariants import Invariants
from penstock.testing.sim_leader_faults import LeaderFaults
from penstock.testing.sim_machine_faults import KeeperFaults, MachineFaults
from penstock.testing.sim_network_faults import NetworkFaults

Fault = Callable[[], Coroutine[Any, Any, None]]


class ClusterFaults(MachineFaults, KeeperFaults, NetworkFaults, LeaderFaults):
    """All of them; what happened is counted in `happened`."""

    def __init__(
        self,
        cluster: SimCluster,
        invariants: Invariants,
        plan: FaultPlan,
        others: Mapping[str, Fault] | None = None,
    ) -> None:
        """`others` are faults of somebody else, by their names in the plan."""
        super().__init__(cluster, invariants, plan)
        self.happened: Counter[str] = Counter()
        self._others = others or {}

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
            broker.machine.disk.set_capacity(CAPACITY_BYTES)
            if broker.process is not None and not broker.process.ended:
                broker.process.resume()
        await asyncio.gather(*(self._start(broker) for broker in self.cluster.brokers if not broker.is_running))


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
    "fail_sync": 1,
    "fill_disk": 1,
    "jump_clock": 1,
    "crash_keeper": 1,
    "pause_keeper": 1,
    "lose_session": 2,
    "cut_off": 4,
    "cut_pair": 2,
    "isolate": 2,
    "strand_leader": 1,
    "flap": 1,
    "uneven_links": 2,
    "move_leaders": 2,
    "cut_and_move": 2,
    "late_fetch": 1,
    "lead_again": 1,
    "late_marker": 1,
    "hold_connections": 1,
    "cut_clients": 1,
    "take_role_away": 1,
    "reset_connections": 1,
    "slow_network": 1,
}

MEMBER_FAULTS: Mapping[str, int] = {"member_comes": 6, "member_leaves": 2, "member_dies": 2, "member_pauses": 2}
