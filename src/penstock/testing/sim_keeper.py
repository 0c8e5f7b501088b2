"""The keeper on a simulated machine, and clients of it on others.

    with SimKeeper(seed=7) as service:
        async def script() -> None:
            client = await service.client("broker1")
            await service.within("broker1", client.create("/a"))
        service.run(script())

`crash()` is a loss of power of the keeper's machine: what it had not synced is gone, as the arguments choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.base.world import Address, World
from penstock.testing.sim_files import Lost
from penstock.testing.sim_world import Process, Simulation
from penstock.zookeeper.client import Client
from penstock.zookeeper.coordination import SessionState
from penstock.zookeeper.keeper import Keeper, KeeperLimits
from penstock.zookeeper.session import NO_SESSION, Session
from penstock.zookeeper.store import Store

T = TypeVar("T")

HOST, PORT, FOLDER = "keeper", 2181, "/keeper"
ADDRESS = Address(HOST, PORT)
LIMIT_S = 10_000.0


class SimKeeper:
    """A simulation with one keeper; `keeper` is the one that runs now."""

    def __init__(
        self,
        seed: int = 0,
        *,
        limits: KeeperLimits | None = None,
        journal_size_bytes: int = 1 << 20,
        sync_s: tuple[float, float] = (0.0001, 0.002),
    ) -> None:
        self.simulation = Simulation(seed, limit_s=LIMIT_S)
        self.machine = self.simulation.machine(HOST)
        self.keeper: Keeper | None = None
        self._limits = limits
        self._journal_size_bytes = journal_size_bytes
        self._sync_s = sync_s  # from, to: how long the disk takes
        self._process: Process | None = None
        self._processes: dict[str, Process] = {}
        self.start()

    # ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._process = self.machine.start("keeper", self._serve)
        self._process.disk.delays_s["sync"] = self._sync_s

    async def _serve(self, world: World) -> None:
        store = Store.open(world.disk, world.clock, FOLDER)
        store.journal_size_bytes_max = self._journal_size_bytes
        keeper = Keeper(world, store, self._limits)
        await keeper.listen(HOST, PORT)
        self.keeper = keeper
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        assert self._process is not None
        self._process.kill()

    def crash(self, lost: Lost = "all") -> None:
        """Lose power and come back at once."""
        self.machine.lose_power(lost)
        self.machine.power_on()
        self.start()

    # ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, host: str) -> Process:
        """The one process of a client machine, made when first asked for."""
        if host not in self._processes or self._processes[host].ended:
            self._processes[host] = self.simulation.machine(host).process("client")
        return self._processes[host]

    async def client(
        self, host: str, *, timeout_ms: int = 6000, session: Session = NO_SESSION, **options: Any
    ) -> Client:
        """A client on a machine of that name."""
        process = self.process(host)
        connecting = Client.connect(process.world, [ADDRESS], timeout_ms=timeout_ms, session=session, **options)
        return await process.start(connecting)

    async def within(self, host: str, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the process of a client machine."""
        return await self.process(host).start(work)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait, in virtual time, until something is so."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.01)

    def losing(self, client: Client) -> asyncio.Future[None]:
        """Done when the client is out of touch the next time, however shortly."""
        lost: asyncio.Future[None] = self.simulation.loop.create_future()

        def on_state(state: SessionState) -> None:
            if state is SessionState.SUSPENDED and not lost.done():
                lost.set_result(None)

        client.add_listener(on_state)
        return lost

    async def outcome(self, work: Awaitable[T]) -> T | Exception:
        """What came of it, an exception included."""
        try:
            return await work
        except Exception as error:
            return error

    def run(self, script: Coroutine[Any, Any, T]) -> T:
        return self.simulation.run(script)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.simulation.close()
