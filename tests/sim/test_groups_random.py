"""Random runs of consumer groups and transactions: members of both protocols read, transform and commit while the
broker fails under them and they themselves are killed, paused and cut off; the history checker judges at the end.

A seed that fails is run again with `python tests/sim/test_groups_random.py SEED`, which prints the trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from penstock.base.steps import ProducerEpoch
from penstock.broker.partition import Partition
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.shard import GroupShard
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import TopicsRead
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_faults import BrokerFaults
from penstock.testing.sim_groups import GROUP_SETTINGS, INPUT, OUTPUT, PARTITIONS, SimGroups
from penstock.testing.sim_routes import OneBroker, Routes
from penstock.testing.sim_world import Process, Simulation

pytestmark = pytest.mark.sim

SEEDS = 10
LONG_SEEDS = 300
FAULTS = 5
DRAINED_WITHIN_S = 120.0
SETTINGS = {"log.flush.mode": "always", **GROUP_SETTINGS}


class Run(BrokerFaults):
    """One random run."""

    def __init__(self, seed: int) -> None:
        super().__init__(Simulation(seed, shuffle=True, limit_s=5000, trace_size_max=3000), SETTINGS)
        self.synced_folder = "input-0"
        self.history = ClientHistory(self.simulation.loop.time)
        self.groups = SimGroups(self.simulation, self.history, self._routes)

    @staticmethod
    def _routes(process: Process, name: str) -> Routes:
        return OneBroker(process.world, "broker", PORT, name)

    async def drive(self) -> None:
        await self.broker.start()
        driver = self.simulation.machine("driver").process("driver").world
        client = await SimClient.connect(driver, "broker", PORT)
        input_id = await client.create_topic(INPUT, PARTITIONS)
        await client.create_topic(OUTPUT, PARTITIONS)
        client.close()
        self.groups.start(input_id)
        watching = asyncio.ensure_future(self.watch())
        for _ in range(FAULTS):
            await self.rest(2)
            await self._fault()
        self.heal()
        reader = OneBroker(driver, "broker", PORT, "driver")
        await self.groups.finish(reader, DRAINED_WITHIN_S)
        everything, committed = await self.groups.read_all(reader)
        self.problems += self.groups.problems
        self.problems += map(str, self.history.findings(TopicsRead(everything, committed)))
        watching.cancel()

    async def _fault(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill_at_an_operation,
            self.lose_power,
            self.lose_power_in_a_sync,
            self.stop_cleanly,
            self.fill_disk,
            self.fail_a_sync,
            self.pause,
            self.reset_connections,
            self.cut,
            self.slow_down,
            self.groups.member_comes,
            self.groups.member_comes,
            self.groups.member_comes,
            self.groups.member_leaves,
            self.groups.member_dies,
            self.groups.member_pauses,
        ]
        await self.one_of(faults)

    def run(self) -> str:
        """Run it to its end; the digest of its trace."""
        with self.simulation:
            self.simulation.run(self.drive())
            return self.simulation.loop.trace.digest()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        count = LONG_SEEDS if metafunc.config.getoption("--long") else SEEDS
        metafunc.parametrize("seed", range(count))


def test_groups_and_transactions_keep_their_promises(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert not run.problems, f"after {run.happened}: {run.problems[:10]}"
    assert run.history.acknowledged > 5


def test_a_random_run_of_groups_is_the_same_every_time() -> None:
    assert Run(1000).run() == Run(1000).run()


# Removing a safeguard must be found: otherwise these runs would prove nothing


def _seed_that_finds_a_problem(seeds: int = 60) -> int | None:
    for seed in range(seeds):
        run = Run(seed)
        run.run()
        if run.problems:
            return seed
    return None


@pytest.mark.slow
def test_taking_commits_of_members_that_were_thrown_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_commit", lambda _self, *_arguments, **_options: None)
    monkeypatch.setattr(ConsumerGroup, "check_commit", lambda _self, *_arguments, **_options: None)
    assert _seed_that_finds_a_problem() is not None


def test_showing_open_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "stable_below", lambda _self, high_watermark: high_watermark)
    assert _seed_that_finds_a_problem() is not None


@pytest.mark.slow
def test_taking_offsets_of_aborted_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay_marker = GroupShard.replay_marker

    def commit_anyway(self: GroupShard, producer: ProducerEpoch, *, is_commit: bool) -> None:
        replay_marker(self, producer, is_commit=True)

    monkeypatch.setattr(GroupShard, "replay_marker", commit_anyway)
    assert _seed_that_finds_a_problem() is not None


if __name__ == "__main__":
    again = Run(int(sys.argv[1]))
    try:
        again.run()
    finally:
        print(again.simulation.loop.trace)
        print(again.happened, *again.problems, sep="\n")
