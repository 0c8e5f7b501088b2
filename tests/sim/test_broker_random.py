"""Random runs of the broker: clients go on while it is killed, loses power, runs out of disk, is paused,
cut off and slowed down; at the end a checker compares what they were told with what is there.

A seed that fails is run again with `python tests/sim/test_broker_random.py SEED`, which prints the trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.broker.partition import Partition
from penstock.broker.start import RunningBroker
from penstock.log.partition_log import Appended
from penstock.log.producers import ProducerStates
from penstock.testing.history import History
from penstock.testing.sim_admin import SimAdmin
from penstock.testing.sim_broker import DATA, PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_faults import BrokerFaults
from penstock.testing.sim_workload import SimConsumer, SimProducer
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.batch import BatchHeader

pytestmark = pytest.mark.sim

SEEDS = 24
LONG_SEEDS = 400
PARTITIONS = 2
PRODUCERS = 2
FAULTS = 6
PAUSE_S_MAX = 0.7
ADMIN_PAUSE_S_MAX = 2.0
HEALED_WITHIN_S = 60.0
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "700",
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "always": {"flush.mode": "always", "segment.index.bytes": "96", "index.interval.bytes": "500"},
    "os": {"segment.index.bytes": "96", "index.interval.bytes": "500"},
}


class Run(BrokerFaults):
    """One random run."""

    def __init__(self, seed: int) -> None:
        super().__init__(Simulation(seed, shuffle=True, limit_s=5000, trace_size_max=3000), SETTINGS)
        self.synced_folder = "always-0"
        self.broker.on_started = self._recovered
        self.history = History()
        self.partitions = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        self._before_loss: dict[str, bytes] | None = None
        self._lost_at_s = 0.0
        self.producers: list[SimProducer] = []
        self._admin_process = self._process("admin")
        self.admin = SimAdmin(self._admin_process.world, "broker", PORT, "admin", self.history, ADMIN_PAUSE_S_MAX)

    # Power loss: what is left is a beginning of what was there, and of the topic with syncs all that was told

    def _logs(self) -> dict[str, bytes]:
        """The content of each partition's log as the broker's process sees it, all segments joined."""
        logs: dict[str, bytes] = {str(partition): b"" for partition in self.partitions}
        for path, content in sorted(self.machine.disk.snapshot().items()):
            folder, _, name = path.removeprefix(f"{DATA}/logs/").partition("/")
            if content is not None and folder in logs and name.endswith(".log"):
                logs[folder] += content
        return logs

    def _recovered(self, running: RunningBroker) -> None:
        before, self._before_loss = self._before_loss, None
        if before is None:
            return
        for name, content in self._logs().items():
            if not before[name].startswith(content):
                self.history.problems.append(f"{name}: after a power loss it is not a beginning of what it was")
        for partition in running.broker.partitions:
            if partition.name.topic == "os":
                self.history.loss(partition.name, self._lost_at_s, partition.log.end_offset)

    async def lose_power(self) -> None:
        self._before_loss, self._lost_at_s = self._logs(), self.simulation.loop.time()
        await super().lose_power()

    # The run

    def _process(self, name: str) -> Process:
        return self.simulation.machine(name).process(name)

    async def drive(self) -> None:
        await self.broker.start()
        driver = self._process("driver").world
        client = await SimClient.connect(driver, "broker", PORT)
        for topic, configs in TOPICS.items():
            await client.create_topic(topic, PARTITIONS, configs)
        client.close()
        producing, others = self._start_clients()
        others.append(asyncio.ensure_future(self.watch()))
        for _ in range(FAULTS):
            await self.rest()
            await self._fault()
        self.heal()
        for producer in self.producers:
            producer.finish()
        done = await self.until(lambda: all(work.done() for work in producing), HEALED_WITHIN_S)
        for work in producing:
            if work.done():
                work.result()
        if not done:
            self.history.problems.append(f"not all was produced {HEALED_WITHIN_S} s after the last fault")
        await self._check(await SimClient.connect(driver, "broker", PORT))
        for work in others:
            work.cancel()

    def _start_clients(self) -> tuple[list[asyncio.Future[None]], list[asyncio.Future[None]]]:
        producing, consuming = [], []
        for number in range(PRODUCERS):
            for partition in self.partitions:
                process = self._process(f"p{number}")
                name = f"{process.name} to {partition}"
                producer = SimProducer(process.world, "broker", PORT, name, self.history, partition, PAUSE_S_MAX)
                self.producers.append(producer)
                producing.append(process.start(producer.run()))
        for topic in TOPICS:
            process = self._process(f"c-{topic}")
            consumer = SimConsumer(process.world, "broker", PORT, process.name, self.history, topic, PARTITIONS)
            consuming.append(process.start(consumer.run()))
        consuming.append(self._admin_process.start(self.admin.run()))
        return producing, consuming

    async def _fault(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill_at_an_operation,
            self.lose_power,
            self.lose_power,
            self.stop_cleanly,
            self.fill_disk,
            self.fail_a_sync,
            self.pause,
            self.reset_connections,
            self.cut,
            self.slow_down,
        ]
        await self.one_of(faults)

    async def _check(self, client: SimClient) -> None:
        for partition in self.partitions:
            log = await client.read_all(partition.topic, partition.partition)
            self.history.problems += self.history.check(partition, log)
        await self.admin.check(client)
        self.history.problems += self.problems

    def run(self) -> str:
        """Run it to its end; the digest of its trace."""
        with self.simulation:
            self.simulation.run(self.drive())
            return self.simulation.loop.trace.digest()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        count = LONG_SEEDS if metafunc.config.getoption("--long") else SEEDS
        metafunc.parametrize("seed", range(count))


def test_nothing_told_is_lost_changed_or_doubled(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert not run.history.problems, f"after {run.happened}: {run.history.problems[:10]}"
    assert run.history.acknowledged > 20
    assert run.history.seen > 10


def test_a_random_run_is_the_same_every_time() -> None:
    assert Run(1000).run() == Run(1000).run()


def _seed_that_finds_a_problem(seeds: int = 30) -> int | None:
    for seed in range(seeds):
        run = Run(seed)
        run.run()
        if run.history.problems:
            return seed
    return None


def test_acknowledging_before_the_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Partition.append

    def eager(self: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        appended = append(self, batch, header, now_ms)
        self.leader.local_log_moved(self.log.end_offset)
        return appended

    monkeypatch.setattr(Partition, "append", eager)
    assert _seed_that_finds_a_problem() is not None


def test_not_looking_at_sequence_numbers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda _self, _header: None)
    assert _seed_that_finds_a_problem() is not None


def test_losing_the_producers_at_recovery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.loading.note_producer", lambda *_arguments: None)
    monkeypatch.setattr("penstock.log.loading.load_latest", lambda *_arguments: True)
    assert _seed_that_finds_a_problem() is not None


if __name__ == "__main__":
    again = Run(int(sys.argv[1]))
    try:
        again.run()
    finally:
        print(again.simulation.loop.trace)
        print(again.happened, *again.history.problems, sep="\n")
