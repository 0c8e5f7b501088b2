"""The broker in the simulator, without a changed line of it: start, produce, crash, lose what was not synced, recover,
read. Scripted; the random form is in test_broker_random.py."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.world import World
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient, StoredBatch, batch_of, produce_request
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic

pytestmark = pytest.mark.sim

ALWAYS = {"flush.mode": "always"}
LOG_FILE = f"{DATA}/logs/t-0/00000000000000000000.log"


class Bench:
    """One simulation with a broker and a client's machine."""

    def __init__(self, seed: int, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(seed, limit_s=100_000)
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine, settings)
        self.world: World = self.simulation.machine("client").process("client").world

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    def run(self, drive: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive()

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(seed=1)
    yield made
    made.simulation.close()


def values(number: int) -> list[bytes]:
    return [b"value %d %d " % (number, index) + bytes(number * 37 % 500) for index in range(1 + number % 3)]


def bodies(batches: list[StoredBatch]) -> list[bytes]:
    return [body_of(batch.content) for batch in batches]


def assert_offsets_ascend(batches: list[StoredBatch]) -> None:
    expected = 0
    for batch in batches:
        assert batch.header.base_offset == expected
        expected = batch.header.next_offset


async def produce_some(client: SimClient, first: int, count: int, topic: str = "t") -> list[bytes]:
    sent = []
    for number in range(first, first + count):
        batch = batch_of(values(number))
        answer = await client.produce(topic, 0, batch)
        assert answer.error_code == 0, answer
        sent.append(body_of(batch))
    return sent


def test_what_was_acknowledged_survives_a_kill(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = await produce_some(client, 0, 20)
        bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        found = await client.read_all("t", 0)
        assert bodies(found) == sent
        assert_offsets_ascend(found)
        sent += await produce_some(client, 20, 5)
        assert bodies(await client.read_all("t", 0)) == sent

    bench.run(drive)


@pytest.mark.parametrize("torn", [None, 0, 1, 60, 61, 200])
def test_with_syncs_what_was_acknowledged_survives_power_loss(bench: Bench, torn: int | None) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        sent = await produce_some(client, 0, 20)
        unacknowledged = client.produce("t", 0, batch_of(values(20)))
        flying = asyncio.ensure_future(unacknowledged)
        await asyncio.sleep(0.0025)
        if torn is None:
            bench.broker.lose_power(lost="all")
        else:
            bench.broker.lose_power(lost="none", torn=torn)
        await bench.broker.start()
        found = bodies(await (await bench.connect()).read_all("t", 0))
        assert found[:20] == sent
        assert found[20:] in ([], [body_of(batch_of(values(20)))])
        flying.cancel()

    bench.run(drive)


@pytest.mark.parametrize("seed", range(8))
def test_without_syncs_a_prefix_survives_power_loss(seed: int) -> None:
    bench = Bench(seed)

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = await produce_some(client, 0, 5)
        await asyncio.sleep(1)
        sent += await produce_some(client, 5, 25)
        chance = bench.simulation.random
        lost = [change.number for change in bench.machine.disk.pending() if chance.random() < 0.3]
        bench.broker.lose_power(lost=lost, torn=chance.randrange(100))
        await bench.broker.start()
        client = await bench.connect()
        found = await client.read_all("t", 0)
        assert bodies(found) == sent[: len(found)]
        assert_offsets_ascend(found)
        sent = bodies(found) + await produce_some(client, 100, 3)
        assert bodies(await client.read_all("t", 0)) == sent

    with bench.simulation:
        bench.run(drive)


def test_a_clean_stop_keeps_everything_even_if_power_fails_after_it(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", 3)
        sent = await produce_some(client, 0, 20)
        await bench.broker.stop()
        assert bench.machine.disk.exists(f"{DATA}/logs/.kafka_cleanshutdown")
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert not bench.machine.disk.exists(f"{DATA}/logs/.kafka_cleanshutdown")
        assert bodies(await (await bench.connect()).read_all("t", 0)) == sent

    bench.run(drive)


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_while_a_sync_is_under_way(bench: Bench, fails: bool) -> None:
    """The sync ends first; if it fails there is no clean mark, because nobody knows what is on the disk."""

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        sent = await produce_some(client, 0, 5)
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync" and operation.path == LOG_FILE, 20)
        if fails:
            bench.machine.disk.fail_sync(LOG_FILE)
        client.send(produce_request("t", 0, batch_of(values(5))), 11).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        await bench.broker.stop()
        assert bench.machine.disk.exists(f"{DATA}/logs/.kafka_cleanshutdown") is not fails
        bench.machine.disk.heal()
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        found = bodies(await (await bench.connect()).read_all("t", 0))
        assert found == (sent if fails else [*sent, body_of(batch_of(values(5)))])

    bench.run(drive)


@pytest.mark.parametrize("power", [False, True])
def test_retries_across_a_crash_are_stored_once(bench: Bench, power: bool) -> None:
    """Every batch is sent again after the crash, as a producer does that did not see the answer."""

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        producer_id = await client.init_producer_id()
        batches = [
            batch_of([b"%d" % number], producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number in range(8)
        ]
        for batch in batches[:5]:
            await client.produce("t", 0, batch)
        flying = [asyncio.ensure_future(client.produce("t", 0, batch)) for batch in batches[5:]]
        await asyncio.sleep(0.002)
        if power:
            bench.broker.lose_power(lost=lambda change: change.number % 2 == 0)
        else:
            bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        for offset, batch in list(enumerate(batches))[3:]:
            answer = await client.produce("t", 0, batch)
            assert (answer.error_code, answer.base_offset) == (0, offset)
        assert bodies(await client.read_all("t", 0)) == [body_of(batch) for batch in batches]
        assert await client.init_producer_id() > producer_id
        for future in flying:
            future.cancel()

    bench.run(drive)


def test_what_recovery_found_is_durable_before_it_counts(bench: Bench) -> None:
    """A kill between write and sync, a retry that finds its batch there already, then a power loss."""

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        producer_id = await client.init_producer_id()
        batches = [
            batch_of([b"%d" % number], producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number in range(2)
        ]
        await client.produce("t", 0, batches[0])
        bench.machine.kill_at(bench.machine.disk.operations_count + 2)
        with pytest.raises(ConnectionError):
            await client.produce("t", 0, batches[1])
        assert [change.kind for change in bench.machine.disk.pending()] == ["write"]
        await bench.broker.start()
        answer = await (await bench.connect()).produce("t", 0, batches[1])
        assert (answer.error_code, answer.base_offset) == (0, 1)
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        found = await (await bench.connect()).read_all("t", 0)
        assert bodies(found) == [body_of(batch) for batch in batches]

    bench.run(drive)


def test_topics_settings_and_ids_survive(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        ids = [await client.create_topic(f"topic-{number}", 1 + number) for number in range(4)]
        producer_ids = {await client.init_producer_id()}
        for crash in (bench.broker.kill, bench.broker.lose_power):
            crash()
            running = await bench.broker.start()
            view = running.broker.view
            assert [view.topics[f"topic-{number}"].topic_id for number in range(4)] == ids
            assert [len(view.topics[f"topic-{number}"].partitions) for number in range(4)] == [1, 2, 3, 4]
            client = await bench.connect()
            new_id = await client.init_producer_id()
            assert new_id not in producer_ids
            producer_ids.add(new_id)
            await produce_some(client, 0, 1, "topic-3")

    bench.run(drive)


def test_the_broker_dies_at_every_disk_operation_of_a_topic_s_creation_and_first_batch() -> None:
    """Kill, and power loss, instead of each disk operation in turn: the topic is there or not, never half."""
    with Simulation(0, limit_s=1000) as simulation:
        first, last = simulation.run(_operations_of_a_topic(simulation))
    for number in range(first + 1, last + 2):
        for power in (False, True):
            with Simulation(number, limit_s=1000) as simulation:
                simulation.run(_crash_at(simulation, number, power))


async def _operations_of_a_topic(simulation: Simulation) -> tuple[int, int]:
    machine = simulation.machine("broker")
    broker = SimBroker(machine)
    await broker.start()
    first = machine.disk.operations_count
    world = simulation.machine("client").process("client").world
    client = await SimClient.connect(world, "broker", PORT)
    await client.create_topic("t", 2, ALWAYS)
    await client.produce("t", 0, batch_of([b"one"]))
    return first, machine.disk.operations_count


async def _crash_at(simulation: Simulation, number: int, power: bool) -> None:
    machine = simulation.machine("broker")
    broker = SimBroker(machine)
    await broker.start()
    world = simulation.machine("client").process("client").world
    created = acknowledged = False
    if power:
        machine.lose_power_at(number, lost="all")
    else:
        machine.kill_at(number)
    try:
        async with asyncio.timeout(5):
            client = await SimClient.connect(world, "broker", PORT)
            await client.create_topic("t", 2, ALWAYS)
            created = True
            acknowledged = (await client.produce("t", 0, batch_of([b"one"]))).error_code == 0
    except OSError:
        pass
    if broker.process is not None and not broker.process.ended:
        broker.kill()
    if power and not machine.is_on:
        machine.power_on()
    machine.disk.heal()
    running = await broker.start()
    client = await SimClient.connect(world, "broker", PORT)
    exists = "t" in running.broker.view.topics
    assert exists or not created
    if not exists:
        await client.create_topic("t", 2, ALWAYS)
    found = bodies(await client.read_all("t", 0))
    one, two = body_of(batch_of([b"one"])), batch_of([b"two"])
    assert found == [one] if acknowledged else found in ([], [one])
    assert (await client.produce("t", 0, two)).error_code == 0
    assert (await client.produce("t", 1, two)).error_code == 0
    assert bodies(await client.read_all("t", 0)) == [*found, body_of(two)]


@pytest.mark.parametrize("power", [False, True])
def test_the_broker_dies_at_every_disk_operation_of_a_topic_s_deletion(power: bool) -> None:
    """After the restart the topic is whole or gone, with its folders, and a new one of its name is empty."""
    with Simulation(0, limit_s=1000) as simulation:
        first, last = simulation.run(_delete_topic(simulation, None, power))
    for number in range(first + 1, last + 2):
        with Simulation(number, limit_s=1000) as simulation:
            simulation.run(_delete_topic(simulation, number, power))


async def _delete_topic(simulation: Simulation, crash_at: int | None, power: bool) -> tuple[int, int]:
    machine = simulation.machine("broker")
    broker = SimBroker(machine)
    await broker.start()
    world = simulation.machine("client").process("client").world
    client = await SimClient.connect(world, "broker", PORT)
    await client.create_topic("t", 2, ALWAYS)
    await client.produce("t", 1, batch_of([b"old"]))
    first = machine.disk.operations_count
    if crash_at is not None:
        if power:
            machine.lose_power_at(crash_at, lost="all")
        else:
            machine.kill_at(crash_at)
    deleted = False
    try:
        async with asyncio.timeout(5):
            request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=5000)
            deleted = (await client.call(request)).responses[0].error_code == 0
    except OSError:
        pass
    await asyncio.sleep(12)
    last = machine.disk.operations_count
    if crash_at is None:
        return first, last
    if not machine.is_on:
        machine.power_on()
    machine.disk.heal()
    running = await broker.start()
    await asyncio.sleep(12)
    client = await SimClient.connect(world, "broker", PORT)
    exists = "t" in running.broker.view.topics
    folders = [name for name in machine.disk.list_dir(f"{DATA}/logs") if name.startswith("t-")]
    if exists:
        assert not deleted
        assert len(folders) == 2
        assert bodies(await client.read_all("t", 1)) == [body_of(batch_of([b"old"]))]
    else:
        assert folders == []
        await client.create_topic("t", 2, ALWAYS)
        assert await client.read_all("t", 1) == []
    assert (await client.produce("t", 1, batch_of([b"new"]))).error_code == 0
    return first, last


# ── a disk that fills up, a sync that fails ──────────────────────────────────────────────────────────────────────


def test_a_full_disk_refuses_and_recovers_alone(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = await produce_some(client, 0, 5)
        disk = bench.machine.disk
        disk.set_capacity(disk.device.used_bytes + 700)
        refused = 0
        for number in range(5, 15):
            batch = batch_of([b"%d" % number + bytes(300)])
            answer = await client.produce("t", 0, batch)
            if answer.error_code == 0:
                sent.append(body_of(batch))
            else:
                assert answer.error_code == Error.KAFKA_STORAGE_ERROR, Error(answer.error_code)
                refused += 1
        assert refused
        assert bodies(await client.read_all("t", 0)) == sent
        disk.set_capacity(1 << 30)
        await asyncio.sleep(3)
        sent += await produce_some(client, 100, 3)
        assert bodies(await client.read_all("t", 0)) == sent
        bench.broker.kill()
        await bench.broker.start()
        assert bodies(await (await bench.connect()).read_all("t", 0)) == sent

    bench.run(drive)


def test_the_reserve_refuses_before_the_disk_is_full() -> None:
    bench = Bench(3, {"log.dirs.reserve.bytes": "100000"})

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = await produce_some(client, 0, 5)
        disk = bench.machine.disk
        disk.set_capacity(disk.device.used_bytes + 90_000)
        await asyncio.sleep(3)
        answer = await client.produce("t", 0, batch_of([b"refused"]))
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR
        assert Error.KAFKA_STORAGE_ERROR.retriable
        assert "full" in (answer.error_message or "")
        await client.create_topic("other")
        await asyncio.sleep(2)
        answer = await client.produce("other", 0, batch_of([b"refused too: a new topic is on the same disk"]))
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR
        assert bodies(await client.read_all("t", 0)) == sent
        disk.set_capacity(1 << 30)
        await asyncio.sleep(3)
        await produce_some(client, 0, 3)

    with bench.simulation:
        bench.run(drive)


def test_after_a_failed_sync_nothing_is_acknowledged(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        await client.create_topic("quiet", configs=ALWAYS)
        sent = await produce_some(client, 0, 5)
        others = await produce_some(client, 0, 5, "quiet")
        bench.machine.disk.fail_sync(LOG_FILE)
        flying = [asyncio.ensure_future(client.produce("t", 0, batch_of(values(number)))) for number in range(5, 9)]
        flying += [asyncio.ensure_future(client.produce("quiet", 0, batch_of(values(9)))) for _ in range(2)]
        answers = await asyncio.gather(*flying)
        assert all(Error(answer.error_code).retriable for answer in answers[:4])
        assert bench.broker.running is not None
        await bench.broker.running.failed()  # it was the only directory
        others += [body_of(batch_of(values(9)))] * sum(answer.error_code == 0 for answer in answers[4:])
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        client = await bench.connect()
        assert bodies(await client.read_all("t", 0))[:5] == sent
        assert bodies(await client.read_all("quiet", 0))[: len(others)] == others
        await produce_some(client, 50, 2)

    bench.run(drive)


def test_a_write_that_fails_half_way_leaves_no_trace(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = await produce_some(client, 0, 3)
        disk = bench.machine.disk
        error = os_error(errno.EIO, LOG_FILE)
        disk.fail_when(lambda operation: operation.kind == "write", error, times=2, written_bytes=30)
        answer = await client.produce("t", 0, batch_of([b"half"]))
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR
        sent += await produce_some(client, 3, 3)
        assert bodies(await client.read_all("t", 0)) == sent
        bench.broker.kill()
        await bench.broker.start()
        assert bodies(await (await bench.connect()).read_all("t", 0)) == sent

    bench.run(drive)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_poll_is_woken_by_a_produce_and_ends_at_its_time(bench: Bench) -> None:
    async def drive() -> None:
        loop = bench.simulation.loop
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t")
        began = loop.time()
        empty = await reader.fetch("t", 0, 0, max_wait_ms=700)
        assert not empty.records and 0.7 <= loop.time() - began < 0.75
        began = loop.time()
        waiting = asyncio.ensure_future(reader.fetch("t", 0, 0, max_wait_ms=60_000))
        await asyncio.sleep(5)
        await writer.produce("t", 0, batch_of([b"news"]))
        assert (await waiting).records
        assert loop.time() - began < 5.1

    bench.run(drive)


def test_many_waiting_produces_share_syncs(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.1)
        before = _syncs(bench)
        clients = [await bench.connect() for _ in range(20)]
        answers = await asyncio.gather(
            *(each.produce("t", 0, batch_of([b"%d" % number])) for number, each in enumerate(clients))
        )
        assert sorted(answer.base_offset for answer in answers) == list(range(20))
        assert _syncs(bench) - before <= 6

    bench.run(drive)


def _syncs(bench: Bench) -> int:
    return sum(text.endswith(LOG_FILE) and " sync " in text for _, text in bench.simulation.loop.trace.entries)


# ── same seed, same run ──────────────────────────────────────────────────────────────────────────────────────────


def story(seed: int) -> str:
    bench = Bench(seed)

    async def drive() -> None:
        client = await bench.connect()
        for number in range(6):
            await client.create_topic(f"t{number}", 3, ALWAYS if number % 2 else {})
        await asyncio.gather(*(produce_some(client, number, 4, f"t{number}") for number in range(6)))
        bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        await produce_some(client, 9, 4, "t1")
        bench.broker.lose_power(lost=lambda change: change.number % 3 == 0)
        await bench.broker.start()
        await (await bench.connect()).read_all("t1", 0)
        await bench.broker.stop()

    with bench.simulation:
        bench.run(drive)
        return bench.simulation.loop.trace.digest()


def test_same_seed_same_trace() -> None:
    assert story(5) == story(5)
    assert story(5) != story(6)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_trace_does_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, __file__]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == story(5)


if __name__ == "__main__":
    print(story(5))
