"""A whole cluster in the simulator: a keeper, several brokers on machines of their own, and perhaps their watchers.

    cluster = SimCluster(simulation, brokers=3, settings={"min.insync.replicas": "2"})
    await cluster.start()
    cluster.broker(1).kill()
    await cluster.broker(1).start()

Each broker is the program that `penstock broker` is, without the signals, and reaches the keeper over the simulated
network. Where there are watchers, a broker's session is closed as soon as its process has ended; otherwise it expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.broker_settings import load_broker_settings
from penstock.base.world import Address, Disk, World, read_file
from penstock.base.zookeeper_connect import ZooKeeperConnect
from penstock.broker.start import RunningBroker, start_broker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_files import Lost, LostPages, Torn
from penstock.testing.sim_world import Process, ProcessEnded, Simulation
from penstock.zookeeper.broker_session import open_broker_session
from penstock.zookeeper.client import Client
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.keeper import Keeper
from penstock.zookeeper.renewal import RenewedClient
from penstock.zookeeper.session import LOCK_FILE, SESSION_FILE, Session, decode_session
from penstock.zookeeper.store import Store

PORT = 9092
DATA = "/data"
KEEPER = Address("keeper", 2181)
ZOOKEEPER = ZooKeeperConnect((KEEPER,), "")
KEEPER_FOLDER = "/keeper"
SESSION_TIMEOUT_MS = 4000
WATCHER_S_MAX = 0.05  # how long a watcher takes to notice


class SimKeeperMachine:
    """The machine of the keeper. What its tree holds now can be looked at."""

    def __init__(self, simulation: Simulation) -> None:
        self.machine = simulation.machine(KEEPER.host)
        self.process: Process | None = None
        self.keeper: Keeper | None = None

    def start(self) -> None:
        self.machine.disk.kill()
        self.process = self.machine.start("keeper", self._serve)

    async def _serve(self, world: World) -> None:
        keeper = Keeper(world, Store.open(world.disk, world.clock, KEEPER_FOLDER))
        await keeper.listen("0.0.0.0", KEEPER.port)
        self.keeper = keeper
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        assert self.process is not None
        self.process.kill()
        self.keeper = None

    def lose_power(self, lost: Lost = "all") -> None:
        """Off and on again, without its program; of what was not synced the chosen part is gone."""
        self.machine.lose_power(lost)
        self.machine.power_on()
        self.keeper = None

    def expire(self, session_id: int) -> None:
        """End a session as if nobody had heard of it for too long."""
        keeper, process = self.keeper, self.process
        if keeper is not None and process is not None and not process.ended and not process.state.paused:
            process.call(lambda: keeper.expire(session_id))


class SimClusterBroker:
    """One broker with its machine, its data and its watcher, started and ended as often as a test likes."""

    def __init__(self, cluster: SimCluster, broker_id: int, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.machine = cluster.simulation.machine(f"broker{broker_id}")
        self.process: Process | None = None
        self.running: RunningBroker | None = None
        self.coordination: RenewedClient | None = None
        self.on_power_lost: Callable[[], None] = lambda: None
        self.settings = load_broker_settings(
            {
                "node.id": str(broker_id),
                "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
                "advertised.listeners": f"PLAINTEXT://{self.machine.name}:{PORT}",
                "log.dirs": f"{DATA}/logs",
                "log.dirs.reserve.bytes": "0",
                "audit.log.enable": "false",
                "broker.rack": f"rack{broker_id}",
                "metrics.listener": "",
                **settings,
            }
        )
        self._stopping: asyncio.Event | None = None

    def __repr__(self) -> str:
        return self.machine.name

    # ── the program ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> RunningBroker | None:
        """Start the program and wait until it serves; None if it is ended before that."""
        if self.process is not None and not self.process.ended:
            self.process.kill()
        self.machine.disk.kill()
        self.running = None
        ready: asyncio.Future[RunningBroker] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self.process = process = self.machine.start("broker", lambda world: self._run(world, ready))
        assert process.main is not None
        await asyncio.wait((ready, process.main), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            return ready.result()
        try:
            process.main.result()
        except ProcessEnded:
            return None
        raise AssertionError(f"{self} ended before it served")

    async def _run(self, world: World, ready: asyncio.Future[RunningBroker]) -> None:
        assert self._stopping is not None
        world.disk.make_dirs(DATA)
        world.disk.sync_dir("/")
        _lock = world.disk.lock(f"{DATA}/{LOCK_FILE}")
        self.coordination = coordination = await open_broker_session(
            world, ZOOKEEPER, DATA, timeout_ms=self.cluster.session_timeout_ms
        )
        try:
            running = await start_broker(world, self.settings, coordination)
            try:
                self.running = running
                if not ready.done():
                    ready.set_result(running)
                ends = [asyncio.ensure_future(end) for end in (self._stopping.wait(), running.failed())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
            finally:
                await running.stop()
        finally:
            await coordination.close()

    @property
    def session_id(self) -> int:
        """Of the last session that it had."""
        return 0 if self.coordination is None else self.coordination.session_id

    @property
    def is_running(self) -> bool:
        process = self.process
        return process is not None and not process.ended and process.main is not None and not process.main.done()

    @property
    def has_power(self) -> bool:
        return self.machine.is_on

    async def stop(self) -> None:
        """Stop it cleanly; returns also if it is killed meanwhile."""
        process = self.process
        assert self._stopping is not None and process is not None and process.main is not None
        self._stopping.set()
        await asyncio.wait([process.main])
        if not process.ended:
            process.main.result()
            process.kill()

    def kill(self) -> None:
        """kill -9: what it wrote stays in the page cache; the watcher, if there is one, closes the session."""
        process = self.process
        if process is None or process.ended:
            return
        process.kill()
        self.running = None
        if self.cluster.has_watchers:
            self.machine.start("watcher", self._watch)

    async def _watch(self, world: World) -> None:
        """What the watcher does when the broker has ended: see `cli/watch.py`."""
        await asyncio.sleep(world.random.random() * WATCHER_S_MAX)
        session = _session_left(world.disk)
        if session is None:
            return
        timeout_ms = self.cluster.session_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                client = await Client.connect(world, [KEEPER], timeout_ms=timeout_ms, session=session)
                await client.close()
        except (CoordinationError, OSError):
            pass  # it has ended, or will

    def lose_power(self, lost: Lost = "all", torn: Torn = None, lost_pages: LostPages = None) -> None:
        """The machine goes off; of what was not synced the chosen part is gone."""
        self.machine.lose_power(lost, torn, lost_pages)
        self.running = None
        self.on_power_lost()

    def power_on(self) -> None:
        """The machine is back, without its programs."""
        if not self.machine.is_on:
            self.machine.power_on()

    # ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def connect(self, process: Process) -> SimClient:
        """A client of this broker that belongs to a process."""
        client: SimClient = await process.start(self._connect(process.world))
        return client

    async def _connect(self, world: World) -> Any:
        return await SimClient.connect(world, self.machine.name, PORT)


class SimCluster:
    """See the head of this file. Brokers have the ids 1, 2, …"""

    def __init__(
        self,
        simulation: Simulation,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        has_watchers: bool = False,
    ) -> None:
        self.simulation = simulation
        self.session_timeout_ms = session_timeout_ms
        self.has_watchers = has_watchers
        self.keeper = SimKeeperMachine(simulation)
        self.brokers = [SimClusterBroker(self, number + 1, settings or {}) for number in range(brokers)]

    def broker(self, broker_id: int) -> SimClusterBroker:
        return self.brokers[broker_id - 1]

    @property
    def addresses(self) -> list[Address]:
        """Where clients begin to look."""
        return [Address(broker.machine.name, PORT) for broker in self.brokers]

    async def start(self) -> None:
        """Start the keeper and all brokers; returns when they serve."""
        self.keeper.start()
        await asyncio.gather(*(broker.start() for broker in self.brokers))

    @property
    def controller(self) -> SimClusterBroker | None:
        """Who is the controller, as the keeper has it."""
        keeper = self.keeper.keeper
        node = None if keeper is None else keeper.store.tree.nodes.get("/controller")
        if node is None:
            return None
        for broker in self.brokers:
            if broker.session_id == node.ephemeral_owner:
                return broker
        return None


def _session_left(disk: Disk) -> Session | None:
    """The session that the last broker had; None if there is none, or if a broker has the folder again."""
    try:
        disk.lock(f"{DATA}/{LOCK_FILE}").release()
        return decode_session(read_file(disk, f"{DATA}/{SESSION_FILE}"))
    except OSError:
        return None
