"""Logs that part and come together again, over random histories of elections of which everybody learns when they learn.

All replicas stay in the ISR, so everybody may be elected, and what one of them once knew to be committed must be in all
logs at the end, and the logs must be the same. The model is a dictionary: the record at a committed offset.

A seed that fails is run again with `python tests/sim/test_diverging_logs.py SEED`, which tells what happened.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from penstock.log.config import LogConfig
from penstock.testing.sim_replicas import SimReplica, SimReplicas, Stored
from penstock.testing.sim_world import Simulation

SEEDS = 10
LONG_SEEDS = 300
NODES = 3
STEPS = 120
SETTINGS = {
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "200",
    "replica.fetch.max.bytes": "300",
    "replica.fetch.response.max.bytes": "1000",
}


class Run:
    """One history."""

    def __init__(self, seed: int, *, is_synced: bool) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=10_000, trace_size_max=2000)
        self.random = self.simulation.random
        self.is_synced = is_synced
        config = LogConfig(flush_mode="always" if is_synced else "os", index_interval_bytes=100, segment_bytes=700)
        self.replicas = SimReplicas(self.simulation, NODES, config=config, settings=SETTINGS)
        self.committed: dict[int, Stored] = {}
        self.values = 0

    def tell(self, text: str) -> None:
        logging.getLogger(__name__).info("%.3f %s", self.simulation.loop.time(), text)

    def draw_node(self) -> SimReplica:
        return self.replicas.nodes[self.random.randrange(NODES)]

    async def drive(self) -> None:
        await self.replicas.start()
        await self.replicas.lead(1)
        for _ in range(STEPS):
            await self.step()
            self.look()
        await self.come_together()

    async def step(self) -> None:
        steps = [self.append] * 8 + [self.learn] * 5 + [self.elect] * 4 + [self.wait] * 6 + [self.cut, self.heal]
        steps += [self.end, self.end_and_begin]
        await steps[self.random.randrange(len(steps))]()

    async def append(self) -> None:
        """To everybody who believes to lead."""
        for node in self.replicas.nodes:
            if node.is_running:
                values = [b"%d" % (self.values + number) for number in range(1 + self.random.randrange(3))]
                self.values += len(values)
                if node.append(0, values):
                    self.tell(f"{node} appends {values} up to {node.partition().log.end_offset}")

    async def learn(self) -> None:
        node = self.draw_node()
        if node.is_running:
            self.tell(f"{node} learns {self.replicas.states[0]}")
            await node.learn()

    async def elect(self) -> None:
        self.replicas.decide(0, 1 + self.random.randrange(NODES))
        self.tell(f"elected: {self.replicas.states[0]}")
        if self.random.randrange(2):
            leader = self.replicas.node(self.replicas.states[0].leader)
            if leader.is_running:
                await leader.learn()

    async def wait(self) -> None:
        """Mostly for about as long as a packet takes."""
        await asyncio.sleep(self.random.random() * (0.1 if self.random.randrange(4) == 0 else 0.005))

    async def cut(self) -> None:
        one, other = self.draw_node(), self.draw_node()
        if one is not other:
            self.simulation.network.links.cut(one.machine.name, other.machine.name)

    async def heal(self) -> None:
        self.simulation.network.clear_faults()

    async def end(self) -> None:
        node = self.draw_node()
        if node.is_running and self.random.randrange(3) == 0:
            self.end_program(node)

    async def end_and_begin(self) -> None:
        node = self.draw_node()
        if node.is_running:
            self.end_program(node)
        self.tell(f"{node} starts")
        await node.start()

    def end_program(self, node: SimReplica) -> None:
        if self.is_synced and self.random.randrange(2):
            self.tell(f"{node} loses power")
            node.lose_power()
        else:
            self.tell(f"{node} is killed")
            node.kill()

    # ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """What is known to be committed has one value for ever."""
        for node in self.replicas.nodes:
            if node.is_running and not node.partition().is_reworking:
                self.check(node, node.stored(), node.partition().high_watermark)

    def check(self, node: SimReplica, stored: list[Stored], high_watermark: int) -> None:
        assert [each.offset for each in stored] == list(range(len(stored))), f"{node} has a hole"
        for each in stored[:high_watermark]:
            known = self.committed.setdefault(each.offset, each)
            assert known == each, f"{node} has {each} where {known} was committed"

    async def come_together(self) -> None:
        self.simulation.network.clear_faults()
        for node in self.replicas.nodes:
            if not node.is_running:
                await node.start()
        self.replicas.decide(0, 1 + self.random.randrange(NODES))
        await self.replicas.all_learn()
        self.tell(f"at last {self.replicas.states[0]}")
        while not self.replicas.node(self.replicas.states[0].leader).append(0, [b"last"]):
            await asyncio.sleep(0.01)
        await self.replicas.in_step()
        logs = [node.stored() for node in self.replicas.nodes]
        assert logs[0] == logs[1] == logs[2]
        assert logs[0][-1].value == b"last"
        for node, log in zip(self.replicas.nodes, logs, strict=True):
            self.check(node, log, len(log))


def run(seed: int, *, is_synced: bool) -> Run:
    made = Run(seed, is_synced=is_synced)
    with made.simulation:
        made.simulation.run(made.drive())
    return made


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_committed_stays_and_logs_come_together(seed: int, is_synced: bool) -> None:
    assert run(seed, is_synced=is_synced).committed


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize("seed", range(1000, 1000 + LONG_SEEDS))
def test_many_histories(seed: int, is_synced: bool) -> None:
    run(seed, is_synced=is_synced)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(message)s")
    run(int(sys.argv[1]), is_synced=len(sys.argv) > 2)
