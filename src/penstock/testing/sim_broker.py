"""A broker on a simulated machine: the program that `penstock up` is, without the signals.

broker = SimBroker(simulation.machine("broker"), {"flush.mode": "always"})
await broker.start()
client = await broker.connect(simulation.machine("client").process("client"))
broker.kill(); await broker.start()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.broker_settings import load_broker_settings
from penstock.base.world import World
from penstock.broker.start import RunningBroker, start_broker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_files import Lost, LostPages, Torn
from penstock.testing.sim_world import Process, SimWorld
from penstock.zookeeper.local import LocalCoordination

PORT = 9092
DATA = "/data"


class SimBroker:
    """One broker with its data, started and ended as often as a test likes."""

    def __init__(self, machine: SimWorld, settings: Mapping[str, str] | None = None) -> None:
        self.machine = machine
        self.process: Process | None = None
        self.running: RunningBroker | None = None
        self._settings = load_broker_settings(
            {
                "node.id": "0",
                "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
                "advertised.listeners": f"PLAINTEXT://{machine.name}:{PORT}",
                "log.dirs": f"{DATA}/logs",
                "log.dirs.reserve.bytes": "0",
                "audit.log.enable": "false",
                "metrics.listener": "",
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **(settings or {}),
            }
        )
        self._stopping: asyncio.Event | None = None
        self.on_started: Callable[[RunningBroker], None] | None = None
        """Called when it has recovered, before it answers the first request."""

    async def start(self) -> RunningBroker:
        """Start the program and wait until it serves."""
        if self.process is not None:
            self.process.kill()
        ready: asyncio.Future[RunningBroker] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self.process = self.machine.start("broker", lambda world: self._run(world, ready))
        assert self.process.main is not None
        await asyncio.wait((ready, self.process.main), return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            self.process.main.result()
            raise AssertionError("the broker ended before it served")
        self.running = ready.result()
        return self.running

    async def _run(self, world: World, ready: asyncio.Future[RunningBroker]) -> None:
        assert self._stopping is not None
        world.disk.make_dirs(DATA)
        world.disk.sync_dir("/")
        coordination = await LocalCoordination.open(world.disk, world.clock, f"{DATA}/keeper")
        try:
            running = await start_broker(world, self._settings, coordination)
            try:
                if self.on_started is not None:
                    self.on_started(running)
                ready.set_result(running)
                ends = [asyncio.ensure_future(end) for end in (self._stopping.wait(), running.failed())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
            finally:
                await running.stop()
        finally:
            await coordination.close()

    async def stop(self) -> None:
        """Stop it cleanly."""
        assert self._stopping is not None and self.process is not None and self.process.main is not None
        self._stopping.set()
        await self.process.main
        self.process.kill()

    def kill(self) -> None:
        """kill -9: what it wrote stays in the page cache."""
        assert self.process is not None
        self.process.kill()

    def lose_power(self, lost: Lost = "all", torn: Torn = None, lost_pages: LostPages = None) -> None:
        """The machine goes off and on again, without its programs; of what was not synced the chosen part is gone."""
        self.machine.lose_power(lost, torn, lost_pages)
        self.machine.power_on()

    @property
    def is_running(self) -> bool:
        process = self.process
        return process is not None and not process.ended and process.main is not None and not process.main.done()

    async def connect(self, process: Process) -> SimClient:
        """A client of this broker that belongs to a process."""
        client: SimClient = await process.start(self._connect(process.world))
        return client

    async def _connect(self, world: World) -> Any:
        return await SimClient.connect(world, self.machine.name, PORT)
