"""What can happen to a broker in the simulator: it is killed, loses power, runs out of disk, is paused, cut off, slowed
down. Each fault lasts a while and is over when its coroutine ends; the broker runs then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.testing.sim_broker import DATA, SimBroker
from penstock.testing.sim_world import Simulation

RESERVE_BYTES = 100_000
SPACE_BYTES = 1 << 40


class BrokerFaults:
    """The faults of one broker, drawn by the simulation's chance; those that happened are in `happened`."""

    def __init__(self, simulation: Simulation, settings: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.chance = simulation.random
        self.machine = simulation.machine("broker")
        self.broker = SimBroker(self.machine, {"log.dirs.reserve.bytes": str(RESERVE_BYTES), **settings})
        self.problems: list[str] = []
        self.happened: list[str] = []
        self.synced_folder = ""  # a partition with `flush.mode=always`, whose sync may fail
        self._is_stopping = False

    async def one_of(self, faults: Sequence[Callable[[], Any]]) -> None:
        """Let one of these happen."""
        fault = faults[self.chance.randrange(len(faults))]
        self.happened.append(fault.__name__)
        self.machine.trace(f"fault: {fault.__name__}")
        await fault()

    def heal(self) -> None:
        """No more faults."""
        self.simulation.network.clear_faults()
        self.machine.disk.heal()

    async def watch(self) -> None:
        """Nothing that happens here may end the program: only its machine or somebody else does."""
        while True:
            await asyncio.sleep(0.1)
            process = self.broker.process
            if process is None or process.ended or process.main is None or self._is_stopping:
                continue
            if process.main.done():
                self.problems.append("the broker ended by itself")
                return

    async def lose_power(self) -> None:
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
        await self.rest()
        await self.broker.start()

    async def lose_power_in_a_sync(self) -> None:
        """What waits for a slow sync is lost."""
        self.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.3)
        await self.rest(2)
        self.machine.disk.heal()
        await self.lose_power()

    async def kill(self) -> None:
        self.broker.kill()
        await self.rest()
        await self.broker.start()

    async def kill_at_an_operation(self) -> None:
        self.machine.kill_at(self.machine.disk.operations_count + 1 + self.chance.randrange(60))
        await self.until(lambda: not self.broker.is_running, 5)
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
        await self.rest(10)
        if self.chance.randrange(3) == 0:
            self.broker.kill()
            disk.set_capacity(SPACE_BYTES)
            await self.lose_power()
        disk.set_capacity(SPACE_BYTES)

    async def fail_a_sync(self) -> None:
        """The only log directory goes offline, so the broker ends; the machine is started again."""
        self._is_stopping = True
        self.machine.disk.fail_sync(self._newest_segment(self.synced_folder))
        await self.rest(3)
        self.machine.disk.heal()
        await self.lose_power()
        self._is_stopping = False

    def _newest_segment(self, folder: str) -> str:
        names = [name for name in self.machine.disk.list_dir(f"{DATA}/logs/{folder}") if name.endswith(".log")]
        return f"{DATA}/logs/{folder}/{max(names, default='0')}"

    async def pause(self) -> None:
        assert self.broker.process is not None
        self.broker.process.pause()
        await self.rest(10)
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
        await self.rest(10)
        self.simulation.network.clear_faults()

    async def slow_down(self) -> None:
        self.simulation.network.links.default_delay_s = (0.05, 0.4)
        self.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.2)
        await self.rest(3)
        self.simulation.network.links.default_delay_s = (0.0002, 0.002)
        self.machine.disk.heal()

    async def rest(self, seconds_max: float = 1.0) -> None:
        await asyncio.sleep(self.chance.random() * seconds_max)

    async def until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        ends = self.simulation.loop.time() + deadline_s
        while not condition():
            if self.simulation.loop.time() > ends:
                return False
            await asyncio.sleep(0.02)
        return True
