"""Simulated machines and processes: a whole cluster in one thread, in virtual time, from one seed.

A `Simulation` is the loop, the network and the seed; a `SimWorld` is one machine of it with its disk and its wall
clock; a `Process` is a program on that machine with a `World` of its own to hand to a broker. Everything a process
starts belongs to it (the loop knows by a context variable), so that it can be ended as real ones are:

- `process.kill()`: kill -9. No callback of it runs again, not even a `finally`. What it wrote stays in the page cache,
  its kernel closes its connections.
- `machine.lose_power(...)`: every process is gone without a word to anyone, and unsynced changes of the disk with them,
  as chosen. `machine.power_on()` brings the machine back; its programs must be started again.
- `process.pause()` and `resume()`: a long stop, as by SIGSTOP or a swapping machine.

    with Simulation(seed=7) as simulation:
        machine = simulation.machine("broker1")
        broker = machine.start("broker", lambda world: run_broker(world, "/data"))
        simulation.run(drive(simulation, broker))
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.base.world import World
from penstock.testing.sim_disk import CAPACITY_BYTES, Operation, SimDisk
from penstock.testing.sim_files import Lost, LostPages, Torn
from penstock.testing.sim_loop import CURRENT_PROCESS, ProcessState, SimLoop
from penstock.testing.sim_network import HostNetwork, SimNetwork

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000  # the wall clock of a machine when a run begins


class ProcessEnded(Exception):
    """What was awaited will never come: the process was killed, or its machine lost power."""


class SimClock:
    """One machine's clocks: the loop's virtual time, and a wall clock that a test can set."""

    def __init__(self, loop: SimLoop, wall_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._offset_ms = wall_ms

    def wall_ms(self) -> int:
        return self._offset_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward, or back."""
        self._offset_ms += milliseconds


class SimRandom:
    """Chance from a seed; not a subclass of Python's, so that nothing else of it is used by accident."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def randbytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class Process:
    """A program of one machine; ends for good by `kill`, or with its machine."""

    def __init__(self, machine: SimWorld, name: str, number: int) -> None:
        self.name = f"{machine.name}/{name}"
        self.machine = machine
        self.state = ProcessState(self.name)
        self.disk = machine.disk.for_process(seed=machine.draw_seed(f"{name} {number} disk"))
        self.network: HostNetwork = machine.simulation.network.attach(machine.name)
        self.random = SimRandom(f"{machine.draw_seed(f'{name} {number}')}")
        self.world = World(machine.clock, self.disk, self.network, self.random, f"{machine.name}, boot {machine.boots}")
        self._loop = machine.simulation.loop
        self.main: asyncio.Future[Any] | None = None
        self._results: dict[asyncio.Future[Any], None] = {}
        self._context = contextvars.copy_context()
        self._context.run(CURRENT_PROCESS.set, self.state)
        self.disk.on_blocked = self.pause_for

    @property
    def ended(self) -> bool:
        return self.state.ended

    def start(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Future[T]:
        """Run a coroutine in this process; awaiting the result raises `ProcessEnded` if the process ends before."""
        assert not self.ended, f"{self.name} has ended"
        task: asyncio.Task[T] = self.call(lambda: self._loop.create_task(work, name=name))
        result: asyncio.Future[T] = asyncio.Future(loop=self._loop)
        self._results[result] = None
        result.add_done_callback(lambda done: self._cancel_with(task, done))
        task.add_done_callback(lambda done: self._pass_on(done, result), context=self._context.copy())
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function as this process: what it schedules belongs to it."""
        return self._context.copy().run(function)

    def _cancel_with(self, task: asyncio.Task[T], result: asyncio.Future[T]) -> None:
        self._results.pop(result, None)
        if result.cancelled():
            task.cancel()

    @staticmethod
    def _pass_on(task: asyncio.Task[T], result: asyncio.Future[T]) -> None:
        if result.done():
            return
        if task.cancelled():
            result.cancel()
            return
        error = task.exception()
        if error is None:
            result.set_result(task.result())
        else:
            result.set_exception(error)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        if not self.ended:
            self.machine.trace(f"kill {self.name}")
            self._end(self.network.kill)

    def vanish(self) -> None:
        """End it as a power loss does: its connections hear nothing. Called by `SimWorld.lose_power`."""
        if not self.ended:
            self._end(self.network.vanish)

    def _end(self, end_network: Callable[[], None]) -> None:
        self.state.ended = True
        self.state.held.clear()
        self._loop.abandon_tasks(self.state.tasks)
        self.disk.end()
        end_network()
        for result in list(self._results):
            if not result.done():
                result.set_exception(ProcessEnded(self.name))
                result.exception()  # not to be awaited is no mistake here

    def pause(self) -> None:
        """Its callbacks wait; packets still arrive, timers run out."""
        self.machine.trace(f"pause {self.name}")
        self.state.paused = True

    def resume(self) -> None:
        if not self.ended and self.state.paused:
            self.machine.trace(f"resume {self.name}")
            self._loop.resume(self.state)

    def pause_for(self, seconds: float) -> None:
        self.pause()
        self._loop.call_later(seconds, self.resume, context=contextvars.Context())


class SimWorld:
    """One machine: a disk and a wall clock that outlive its processes."""

    def __init__(self, simulation: Simulation, name: str, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = SimClock(simulation.loop)
        self.disk = SimDisk(seed=self.draw_seed("disk"), capacity_bytes=capacity_bytes, wall_ms=self.clock.wall_ms)
        self.disk.device.after_operation = self._trace_operation
        self.disk.device.on_stop = self._vanish_all
        self.processes: list[Process] = []
        self.is_on = True
        self.boots = 1
        self._processes_count = 0
        simulation.network.host(name)

    def draw_seed(self, purpose: str) -> int:
        """A seed of its own for each part, so that one part's draws do not shift another's."""
        return random.Random(f"{self.simulation.seed} {self.name} {purpose}").getrandbits(64)

    def process(self, name: str) -> Process:
        """A new process with nothing running in it yet."""
        assert self.is_on, f"{self.name} has no power"
        self._processes_count += 1
        process = Process(self, name, self._processes_count)
        self.processes = [other for other in self.processes if not other.ended]
        self.processes.append(process)
        return process

    def start(self, name: str, main: Callable[[World], Coroutine[Any, Any, Any]]) -> Process:
        """A new process that runs `main` with its world; an exception of `main` fails the run."""
        process = self.process(name)
        self.trace(f"start {process.name}")
        process.main = process.start(main(process.world), name=process.name)
        process.main.add_done_callback(self._main_done)
        return process

    def _main_done(self, main: asyncio.Future[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        if error is not None and not isinstance(error, ProcessEnded):
            self.simulation.loop.call_exception_handler({"message": "a process failed", "exception": error})

    def lose_power(
        self,
        lost: Lost = "all",
        torn: Torn = None,
        lost_pages: LostPages = None,
        *,
        ordered_names: bool = False,
    ) -> None:
        """Everything stops; of what was not synced only the chosen part survives (as in `SimDisk.crash`)."""
        self.trace(f"power loss of {self.name}")
        self.is_on = False
        self.simulation.network.links.switch_off(self.name)
        self._vanish_all()
        self.disk.crash(lost, torn, lost_pages, ordered_names=ordered_names)

    def power_on(self) -> None:
        self.trace(f"power on {self.name}")
        self.is_on = True
        self.boots += 1
        self.simulation.network.links.switch_on(self.name)

    def lose_power_at(self, number: int, lost: Lost = "all", torn: Torn = None, lost_pages: LostPages = None) -> None:
        """Lose power instead of doing the disk's operation `number`."""
        self.disk.stop_at(number)
        self.disk.device.on_stop = lambda: self.lose_power(lost, torn, lost_pages)

    def kill_at(self, number: int) -> None:
        """Kill the machine's processes instead of doing the disk's operation `number`; the page cache survives."""
        self.disk.stop_at(number)
        self.disk.device.on_stop = self._kill_all

    def _kill_all(self) -> None:
        for process in self.processes:
            process.kill()
        self.disk.kill()

    def trace(self, text: str) -> None:
        self.simulation.loop.trace.add(text)

    def _trace_operation(self, operation: Operation) -> None:
        self.trace(f"{self.name} disk {operation}")

    def _vanish_all(self) -> None:
        for process in self.processes:
            process.vanish()


class Simulation:
    """The loop, the network and the machines of one run; close it, or use `with`."""

    def __init__(
        self,
        seed: int = 0,
        *,
        shuffle: bool = False,
        limit_s: float | None = None,
        partial_chance: float = 0.1,
        trace_size_max: int | None = None,
    ) -> None:
        self.seed = seed
        self.loop = SimLoop(  # type: ignore[abstract]  # real sockets, signals and subprocesses are left out
            seed, shuffle=shuffle, limit_s=limit_s, trace_size_max=trace_size_max
        )
        self.network = SimNetwork(self.loop, seed, partial_chance=partial_chance)
        self.random = SimRandom(f"driver {seed}")
        self.machines: dict[str, SimWorld] = {}

    def machine(self, name: str, *, capacity_bytes: int = CAPACITY_BYTES) -> SimWorld:
        """The machine of that name, made when first asked for."""
        if name not in self.machines:
            self.machines[name] = SimWorld(self, name, capacity_bytes)
        return self.machines[name]

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the driver of the test, which belongs to no process, to its end."""
        result: T = self.loop.run_until_complete(main)
        return result

    def close(self) -> None:
        self.loop.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
