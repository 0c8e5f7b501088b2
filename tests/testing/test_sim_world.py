"""Processes on simulated machines: killed, paused, without power; and that a seed decides everything."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.base.world import Stream, World, read_file, write_file_durably
from penstock.testing.sim_disk import Crashed
from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_world import EPOCH_MS, ProcessEnded, Simulation, SimWorld

PORT = 9092


async def readable(stream: Stream) -> None:
    happened = asyncio.Event()
    stream.watch_read(happened.set)
    await happened.wait()
    stream.watch_read(None)


async def receive(stream: Stream, count: int) -> bytes:
    received = b""
    while len(received) < count:
        await readable(stream)
        buffer = bytearray(count - len(received))
        size = stream.recv_into(buffer)
        if size == 0:
            break
        received += buffer[:size]
    return received


async def serve(world: World) -> None:
    """Appends what it receives to a file, syncs it now and then, and answers with the number of bytes."""
    world.disk.make_dirs("/data")
    lock = world.disk.lock("/data/lock")
    file = world.disk.open("/data/log", create=True)
    world.disk.sync_dir("/")
    world.disk.sync_dir("/data")
    buffer = bytearray(1000)

    def accept(stream: Stream) -> None:
        def on_readable() -> None:
            try:
                count = stream.recv_into(buffer)
                if count:
                    file.write([memoryview(buffer)[:count]], file.size())
                    stream.send(b"%4d" % count)
            except ConnectionError:
                count = 0
            if count == 0:
                stream.close()

        stream.watch_read(on_readable)

    await world.network.listen("", PORT, accept)
    try:
        while True:
            await asyncio.sleep(1 + world.random.random())
            await world.disk.run("sync", file.sync)
    finally:
        world.disk.make_dirs("/data/finally")
        lock.release()


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1, limit_s=10_000, partial_chance=0) as made:
        yield made


async def append(client: World, content: bytes) -> None:
    stream = await client.network.connect("server", PORT)
    stream.send(content)
    assert await receive(stream, 4) == b"%4d" % len(content)
    stream.close()


async def started(machine: SimWorld) -> None:
    """Wait until the server listens."""
    while PORT not in machine.simulation.network.host(machine.name).listeners:
        await asyncio.sleep(0.01)


def test_a_killed_process_stops_at_once_and_keeps_its_page_cache(simulation: Simulation) -> None:
    machine = simulation.machine("server")
    client = simulation.machine("client").process("client").world

    async def drive() -> None:
        process = machine.start("server", serve)
        await started(machine)
        await append(client, b"one")
        process.kill()
        assert process.main is not None
        with pytest.raises(ProcessEnded):
            await process.main
        await asyncio.sleep(10)
        with pytest.raises(ConnectionRefusedError):
            await append(client, b"refused")
        machine.start("server", serve)
        await started(machine)
        await append(client, b"two")

    simulation.run(drive())
    assert read_file(machine.disk, "/data/log") == b"onetwo"
    assert not machine.disk.exists("/data/finally")


def test_power_loss_takes_what_was_not_synced(simulation: Simulation) -> None:
    machine = simulation.machine("server")
    client = simulation.machine("client").process("client").world

    async def drive() -> None:
        machine.start("server", serve)
        await started(machine)
        await append(client, b"synced")
        await asyncio.sleep(10)
        await append(client, b"lost")
        open_stream = await client.network.connect("server", PORT)
        machine.lose_power(lost="all")
        assert read_file(machine.disk, "/data/log") == b"synced"
        with pytest.raises(AssertionError):
            machine.process("no power")
        open_stream.send(b"?")
        await asyncio.sleep(10)
        machine.power_on()
        with pytest.raises(ConnectionResetError):
            await receive(open_stream, 1)
        machine.start("server", serve)
        await started(machine)
        await append(client, b"-again")

    simulation.run(drive())
    assert read_file(machine.disk, "/data/log") == b"synced-again"


def test_power_loss_and_kill_at_a_disk_operation(simulation: Simulation) -> None:
    async def write_files(world: World) -> None:
        try:
            for number in range(10):
                write_file_durably(world.disk, f"/{number}", b"x")
                await asyncio.sleep(1)
        finally:
            write_file_durably(world.disk, "/finally", b"x")

    async def drive(machine: SimWorld) -> None:
        process = machine.process("writer")
        with pytest.raises(ProcessEnded):
            await process.start(write_files(process.world))
        await asyncio.sleep(100)

    off, killed = simulation.machine("off"), simulation.machine("killed")
    off.lose_power_at(18)
    simulation.run(drive(off))
    assert sorted(off.disk.snapshot()) == ["/0", "/1"]
    killed.kill_at(18)
    simulation.run(drive(killed))
    assert sorted(killed.disk.snapshot()) == ["/0", "/1", "/2"]


def test_a_paused_process_catches_up(simulation: Simulation) -> None:
    machine = simulation.machine("server")
    client = simulation.machine("client").process("client").world

    async def drive() -> None:
        process = machine.start("server", serve)
        await started(machine)
        began = simulation.loop.time()
        process.pause_for(60)
        await append(client, b"late")
        assert simulation.loop.time() > began + 60

    simulation.run(drive())


def test_what_was_sent_before_a_kill_still_arrives(simulation: Simulation) -> None:
    sender, receiver = simulation.machine("a").process("p"), simulation.machine("b").process("p")
    accepted: asyncio.Queue[Stream] = asyncio.Queue()

    async def drive() -> None:
        await receiver.network.listen("", PORT, accepted.put_nowait)
        stream = await sender.start(sender.network.connect("b", PORT))
        sender.call(lambda: stream.send(b"last words"))
        sender.kill()
        arrived = await accepted.get()
        assert await receive(arrived, 100) == b"last words"

    simulation.run(drive())


def test_a_slow_disk_holds_up_the_process_or_the_pool(simulation: Simulation) -> None:
    machine = simulation.machine("server")
    process = machine.process("p")
    machine.disk.slow_when(lambda operation: operation.kind == "sync", 5)
    other_ticks: list[float] = []

    async def work() -> list[float]:
        loop = asyncio.get_running_loop()
        file = process.world.disk.open("/a", create=True)
        began = loop.time()
        ticking = asyncio.ensure_future(tick())
        await process.world.disk.run("sync", file.sync)
        in_pool = loop.time() - began
        assert len(other_ticks) >= 4
        file.sync()
        await asyncio.sleep(0)
        ticking.cancel()
        return [in_pool, loop.time() - began - in_pool]

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            other_ticks.append(simulation.loop.time())

    in_pool, outside = simulation.run(process_result(process.start(work())))
    assert 5 <= in_pool < 5.1
    assert outside == pytest.approx(5)


async def process_result(future: asyncio.Future[list[float]]) -> list[float]:
    return await future


def test_a_process_that_fails_fails_the_run(simulation: Simulation) -> None:
    async def broken(world: World) -> None:
        await asyncio.sleep(1)
        raise ValueError("broken process")

    async def drive() -> None:
        simulation.machine("m").start("broken", broken)
        await asyncio.sleep(100)

    with pytest.raises(ValueError, match="broken process"):
        simulation.run(drive())


def test_results_and_cancellation_cross_the_border(simulation: Simulation) -> None:
    process = simulation.machine("m").process("p")
    seen: list[str] = []

    async def work(value: int) -> int:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        if value < 0:
            raise ValueError(value)
        return value

    async def drive() -> None:
        assert await process.start(work(3)) == 3
        with pytest.raises(ValueError):
            await process.start(work(-3))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await process.start(work(5))
        await asyncio.sleep(0.1)
        assert seen == ["cancelled"]

    simulation.run(drive())


def test_an_ended_process_can_do_nothing(simulation: Simulation) -> None:
    process = simulation.machine("m").process("p")
    file = process.world.disk.open("/a", create=True)
    process.kill()
    with pytest.raises(Crashed):
        file.write([b"x"], 0)
    with pytest.raises(Crashed):
        process.world.disk.remove("/a")
    file.close()
    process.kill()


def test_the_wall_clock_can_jump(simulation: Simulation) -> None:
    machine = simulation.machine("m")
    clock = machine.process("p").world.clock

    async def drive() -> None:
        await asyncio.sleep(1.5)
        assert (clock.wall_ms(), clock.monotonic()) == (EPOCH_MS + 1500, 1.5)
        machine.clock.jump(-3_600_000)
        assert (clock.wall_ms(), clock.monotonic()) == (EPOCH_MS + 1500 - 3_600_000, 1.5)
        machine.disk.open("/a", create=True).write([b"x"], 0)
        assert machine.disk.modified_ms("/a") == clock.wall_ms()

    simulation.run(drive())


def story(seed: int) -> str:
    """A run with a bit of everything; its trace."""
    with Simulation(seed, shuffle=True, limit_s=1000) as simulation:
        machine = simulation.machine("server")
        clients = [simulation.machine(f"client{number}").process("client") for number in range(3)]

        async def talk(world: World, name: str) -> None:
            for round_number in range(5):
                try:
                    async with asyncio.timeout(2):
                        stream = await world.network.connect("server", PORT)
                        stream.send(name.encode() * world.random.randrange(100))
                        await receive(stream, 4)
                        stream.close()
                except OSError as error:
                    simulation.loop.trace.add(f"{name} {round_number}: {error.errno}")
                await asyncio.sleep(world.random.random())

        async def drive() -> None:
            process = machine.start("server", serve)
            await started(machine)
            talks = [client.start(talk(client.world, client.name)) for client in clients]
            await asyncio.sleep(0.5)
            process.kill()
            machine.start("server", serve)
            simulation.network.links.cut("server", "client1")
            await asyncio.sleep(1)
            machine.lose_power(lost=lambda change: simulation.random.randrange(2) == 0)
            machine.power_on()
            machine.start("server", serve)
            simulation.network.links.heal_all()
            await asyncio.gather(*talks)

        simulation.run(drive())
        return f"{simulation.loop.trace}\n{simulation.loop.trace.digest()}"


def test_same_seed_same_trace() -> None:
    assert story(5) == story(5)
    assert story(5) != story(6)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_trace_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, __file__]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.splitlines() == story(5).splitlines()


def test_a_bare_loop_has_no_process() -> None:
    with SimLoop() as loop:
        assert loop.run_until_complete(asyncio.sleep(1, "done")) == "done"


if __name__ == "__main__":
    print(story(5))
