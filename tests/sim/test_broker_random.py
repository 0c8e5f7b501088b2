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
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient
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
RESERVE_BYTES = 100_000
SPACE_BYTES = 1 << 40
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "700",
    "log.dirs.reserve.bytes": str(RESERVE_BYTES),
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "always": {"flush.mode": "always", "segment.index.bytes": "96", "index.interval.bytes": "500"},
    "os": {"segment.index.bytes": "96", "index.interval.bytes": "500"},
}


class Run:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=5000, trace_size_max=3000)
        self.chance = self.simulation.random
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine, SETTINGS)
        self.broker.on_started = self._recovered
        self.history = History()
        self.partitions = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        self._before_loss: dict[str, bytes] | None = None
        self._lost_at_s = 0.0
        self.faults: list[str] = []
        self.producers: list[SimProducer] = []
        self._is_stopping = False
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
        pending = [change.number for change in self.machine.disk.pending()]
        kind = self.chance.randrange(4)
        if kind == 0:
            self.broker.lose_power("all")
        elif kind == 1:
            self.broker.lose_power("none", torn=self.chance.randrange(200))
        else:
            share = self.chance.random()
            self.broker.lose_power(
                [number for number in pending if self.chance.random() < share],
                torn=self.chance.randrange(500) if self.chance.randrange(2) else None,
                lost_pages=(lambda _write, _page: self.chance.randrange(4) == 0) if kind == 3 else None,
            )
        await self._rest()
        await self.broker.start()

    # Other faults

    async def kill(self) -> None:
        self.broker.kill()
        await self._rest()
        await self.broker.start()

    async def kill_at_an_operation(self) -> None:
        self.machine.kill_at(self.machine.disk.operations_count + 1 + self.chance.randrange(60))
        await self._until(lambda: not self.broker.is_running, 5)
        self.machine.disk.heal()
        if not self.broker.is_running:
            await self.broker.start()

    async def stop_cleanly(self) -> None:
        self._is_stopping = True
        await self.broker.stop()
        self._is_stopping = False
        if self.chance.randrange(2):
            await self.lose_power()
        else:
            await self.broker.start()

    async def fill_disk(self) -> None:
        """At most the reserve is left, or nearly nothing: then the keeper and the checkpoints have no room either."""
        disk = self.machine.disk
        if self.chance.randrange(2):
            free_bytes = RESERVE_BYTES * 2 // 3 + self.chance.randrange(RESERVE_BYTES)
        else:
            free_bytes = self.chance.randrange(1 << self.chance.randrange(14))
        disk.set_capacity(disk.device.used_bytes + free_bytes)
        await self._rest(10)
        if self.chance.randrange(3) == 0:
            self.broker.kill()
            disk.set_capacity(SPACE_BYTES)
            await self.lose_power()
        disk.set_capacity(SPACE_BYTES)

    async def fail_a_sync(self) -> None:
        """The log directory goes offline and stays so; the machine is started again."""
        self.machine.disk.fail_sync(f"{DATA}/logs/always-0/{self._newest_segment('always-0')}")
        await self._rest(3)
        self.machine.disk.heal()
        await self.lose_power()

    def _newest_segment(self, folder: str) -> str:
        return max(name for name in self.machine.disk.list_dir(f"{DATA}/logs/{folder}") if name.endswith(".log"))

    async def pause(self) -> None:
        assert self.broker.process is not None
        self.broker.process.pause()
        await self._rest(10)
        self.broker.process.resume()

    async def reset_connections(self) -> None:
        for name in list(self.simulation.machines):
            if name != "broker" and self.chance.randrange(2):
                self.simulation.network.reset("broker", name)

    async def cut(self) -> None:
        one_way = self.chance.randrange(3)
        for name in list(self.simulation.machines):
            if name != "broker" and self.chance.randrange(2):
                if one_way != 1:
                    self.simulation.network.links.cut("broker", name)
                if one_way != 2:
                    self.simulation.network.links.cut(name, "broker")
        await self._rest(10)
        self.simulation.network.clear_faults()

    async def slow_down(self) -> None:
        self.simulation.network.links.default_delay_s = (0.05, 0.4)
        self.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.2)
        await self._rest(3)
        self.simulation.network.links.default_delay_s = (0.0002, 0.002)
        self.machine.disk.heal()

    async def _watch_over_it(self) -> None:
        """Nothing that happens here may end the program: only its machine or somebody else does."""
        while True:
            await asyncio.sleep(0.1)
            process = self.broker.process
            if process is None or process.ended or process.main is None or self._is_stopping:
                continue
            if process.main.done():
                self.history.problems.append("the broker ended by itself")
                return

    async def _rest(self, seconds_max: float = 1.0) -> None:
        await asyncio.sleep(self.chance.random() * seconds_max)

    async def _until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        ends = self.simulation.loop.time() + deadline_s
        while not condition():
            if self.simulation.loop.time() > ends:
                return False
            await asyncio.sleep(0.02)
        return True

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
        others.append(asyncio.ensure_future(self._watch_over_it()))
        for _ in range(FAULTS):
            await self._rest()
            await self._fault()
        self.simulation.network.clear_faults()
        self.machine.disk.heal()
        for producer in self.producers:
            producer.finish()
        done = await self._until(lambda: all(work.done() for work in producing), HEALED_WITHIN_S)
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
        fault = faults[self.chance.randrange(len(faults))]
        self.faults.append(fault.__name__)
        self.machine.trace(f"fault: {fault.__name__}")
        await fault()

    async def _check(self, client: SimClient) -> None:
        for partition in self.partitions:
            log = await client.read_all(partition.topic, partition.partition)
            self.history.problems += self.history.check(partition, log)
        await self.admin.check(client)

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
    assert not run.history.problems, f"after {run.faults}: {run.history.problems[:10]}"
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
        print(again.faults, *again.history.problems, sep="\n")
