"""`python -m bench.growth`: how a fail-over grows with the number of partitions, in the simulator.

Three brokers and a keeper in one process and in virtual time; the controller is killed, and with it the leader of a
third of the partitions. What is counted is what does not depend on the machine's neighbours: CPU time of the new
controller's decision, of everything that brokers and keeper do until all the others know the new leaders, and the reads
and writes of znodes that it takes. Topics have a hundred partitions each.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.controller.elections import members_changed
from penstock.controller.plan import Plan, fenced_writes
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_cluster import PORT, SimCluster, SimClusterBroker
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic

PARTITIONS_PER_TOPIC = 100
TOPICS_AT_ONCE = 10
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # Only what follows from the death of a broker is to be seen.
    "auto.leader.rebalance.enable": "false",
}
LOOK_S = 0.001
READS, WRITES = ("get", "exists", "children"), ("multi",)


def main() -> None:
    logging.disable()
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("partitions", type=int, nargs="*", default=[100, 1_000, 10_000])
    print(
        "| partitions | led anew | the decision, CPU-ms | writes | reads by each broker | CPU-ms of all | virtual ms |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for partitions in parser.parse_args().partitions:
        print(Growth(partitions).row(), flush=True)


class Growth:
    """One cluster with so many partitions."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._simulation = Simulation(1, limit_s=1_000_000)
        self._cluster = SimCluster(self._simulation, 3, SETTINGS, has_watchers=True)
        self._asked: dict[int, Counter[str]] = {}
        self._cells: list[str] = []

    def row(self) -> str:
        with self._simulation as simulation:
            simulation.run(self._play())
        return f"| {' | '.join(self._cells)} |"

    async def _play(self) -> None:
        await self._cluster.start()
        await self._make_topics()
        victim = self._cluster.controller
        assert victim is not None
        survivors = [broker for broker in self._cluster.brokers if broker is not victim]
        led = sum(map(len, _led_by(survivors[0], victim.broker_id).values()))
        decision_ms = self._decision_ms(survivors[0], victim.broker_id)
        for broker in survivors:
            self._count(broker)
        cpu_s, began_s = time.process_time(), asyncio.get_running_loop().time()
        victim.kill()
        while not all(self._knows(broker, victim.broker_id) for broker in survivors):
            await asyncio.sleep(LOOK_S)
        cpu_ms = (time.process_time() - cpu_s) * 1000
        virtual_ms = (asyncio.get_running_loop().time() - began_s) * 1000
        writes = sum(count[name] for count in self._asked.values() for name in WRITES)
        reads = max(sum(count[name] for name in READS) for count in self._asked.values())
        figures = (self._partitions, led, decision_ms, writes, reads, cpu_ms, virtual_ms)
        self._cells = [f"{figure:,.0f}" for figure in figures]

    # ---- before

    async def _make_topics(self) -> None:
        process = self._simulation.machine("client").process("client")
        controller = self._cluster.controller
        assert controller is not None
        client: SimClient = await process.start(SimClient.connect(process.world, controller.machine.name, PORT))
        names = [f"topic-{number}" for number in range(-(-self._partitions // PARTITIONS_PER_TOPIC))]
        for first in range(0, len(names), TOPICS_AT_ONCE):
            wanted = [
                CreateTopicsRequestTopic(
                    name=name,
                    num_partitions=min(PARTITIONS_PER_TOPIC, self._partitions),
                    replication_factor=3,
                )
                for name in names[first : first + TOPICS_AT_ONCE]
            ]
            answer = await client.call(CreateTopicsRequest(topics=wanted, timeout_ms=600_000))
            assert not any(topic.error_code for topic in answer.topics), answer

    # ---- what is counted

    def _decision_ms(self, broker: SimClusterBroker, dead: int) -> float:
        """The decision alone, as the next controller will make it, with the writes that it is packed into."""
        running = broker.running
        assert running is not None
        view, rules_of = running.broker.view, running.broker.role.rules_of
        state = view.state(0)
        del state.brokers[dead]
        del state.broker_epochs[dead]
        began_s = time.process_time()
        decided = members_changed(state, rules_of)
        list(fenced_writes(state, [plan for plan in decided if isinstance(plan, Plan)]))
        return (time.process_time() - began_s) * 1000

    def _count(self, broker: SimClusterBroker) -> None:
        """Count from now on what a broker asks of the keeper."""
        counts = self._asked[broker.broker_id] = Counter()
        coordination: Any = broker.coordination

        def counted(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            def ask(*arguments: Any, **named: Any) -> Awaitable[Any]:
                counts[name] += 1
                return call(*arguments, **named)

            return ask

        for name in (*READS, *WRITES):
            setattr(coordination, name, counted(name, getattr(coordination, name)))

    def _knows(self, broker: SimClusterBroker, dead: int) -> bool:
        return not _led_by(broker, dead) and not _led_by(broker, -1)


def _led_by(broker: SimClusterBroker, leader: int) -> dict[str, list[int]]:
    """The partitions that somebody leads in the eyes of a broker, by their topics."""
    assert broker.running is not None
    found = {}
    for topic in broker.running.broker.view.topics.values():
        led = [index for index, partition in enumerate(topic.partitions) if partition.leader == leader]
        if led:
            found[topic.name] = led
    return found


if __name__ == "__main__":
    main()
