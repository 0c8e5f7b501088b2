"""Replicas that are moved between the log directories of a broker: under load, interrupted anywhere, taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.world import World
from penstock.broker.replica_moves import RETIRE_S
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import BATCH_TIMESTAMP_MS, SimClient, batch_of
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from penstock.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from penstock.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest

pytestmark = pytest.mark.sim

FIRST, SECOND, THIRD = f"{DATA}/first", f"{DATA}/second", f"{DATA}/third"
ALWAYS = {"flush.mode": "always", "segment.ms": "1000"}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
NOT_THERE = -1


class Bench:
    """A broker with three log directories; topic `t` begins in the first."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(3, limit_s=100_000)
        self.machine = self.simulation.machine("broker")
        dirs = {"log.dirs": f"{FIRST},{SECOND},{THIRD}"}
        self.broker = SimBroker(self.machine, {**dirs, **(settings or {})})
        self.world: World = self.simulation.machine("client").process("client").world
        self.client: SimClient = None  # type: ignore[assignment]
        self.sent: list[bytes] = []

    def run(self, script: Callable[[Bench], Awaitable[Any]], configs: dict[str, str] | None = None) -> None:
        async def main() -> None:
            await self.start()
            await self.client.create_topic("t", configs=ALWAYS if configs is None else configs)
            await script(self)

        self.simulation.run(main())

    async def start(self) -> None:
        await self.broker.start()
        self.client = await SimClient.connect(self.world, "broker", PORT)

    async def produce(self, count: int, **options: Any) -> None:
        for _ in range(count):
            batch = self.next_batch(**options)
            assert (await self.client.produce("t", 0, batch)).error_code == Error.NONE
            self.sent.append(body_of(batch))

    def next_batch(self, **options: Any) -> bytes:
        """A few of them fill a segment, by their time."""
        number = len(self.sent)
        return batch_of([b"%d " % number + bytes(100)], timestamp_ms=BATCH_TIMESTAMP_MS + 300 * number, **options)

    async def read(self) -> list[bytes]:
        return [body_of(batch.content) for batch in await self.client.read_all("t", 0)]

    async def move(self, path: str, topic: str = "t", partition: int = 0) -> Error:
        topics = [AlterReplicaLogDirsRequestTopic(name=topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDirsRequestDir(path=path, topics=topics)])
        answer = await self.client.call(request)
        return Error(answer.results[0].partitions[0].error_code)

    async def places(self) -> dict[str, tuple[bool, int]]:
        """Directories that have `t`: whether it is a future one there, and how far it lags."""
        answer = await self.client.call(DescribeLogDirsRequest(topics=None))
        return {
            directory.log_dir: (part.is_future_key, part.offset_lag)
            for directory in answer.results
            for topic in directory.topics
            for part in topic.partitions
            if topic.name == "t"
        }

    async def until_moved(self, path: str) -> None:
        await self.until(lambda: self.folders() == {path: ["t-0"]})
        assert await self.places() == {path: (False, 0)}

    def is_in(self, path: str) -> bool:
        assert self.broker.running is not None
        partitions = self.broker.running.broker.partitions
        return partitions.directory_of(partitions.find("t", 0)).path == path

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(2000):
            if holds():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(self.folders())

    def folders(self) -> dict[str, list[str]]:
        """What there is of `t`; of the copies without their random part. Deleted folders do not count."""
        found: dict[str, list[str]] = {}
        for path in (FIRST, SECOND, THIRD):
            for name in self.machine.disk.list_dir(path):
                if name.startswith("t-0") and not name.endswith("-delete"):
                    found.setdefault(path, []).append("future" if name.endswith("-future") else name)
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


@pytest.fixture
def slow() -> Iterator[Bench]:
    made = Bench({RATE: "500"})
    yield made
    made.simulation.close()


@pytest.mark.parametrize("configs", [{}, ALWAYS, {"segment.ms": "1000"}], ids=["plain", "always", "segments"])
def test_a_replica_is_moved_while_it_is_written_to(bench: Bench, configs: dict[str, str]) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(50)
        moving = asyncio.ensure_future(bench.move(SECOND))
        await bench.produce(100)
        assert await moving is Error.NONE
        await bench.until_moved(SECOND)
        await bench.produce(20)
        assert await bench.read() == bench.sent
        await bench.broker.stop()
        await bench.start()
        assert await bench.read() == bench.sent
        assert await bench.places() == {SECOND: (False, 0)}

    bench.run(script, configs)


def test_there_and_back_at_once(bench: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(10)
        for path in (SECOND, FIRST, THIRD, FIRST):
            assert await bench.move(path) is Error.NONE
            await bench.until(partial(bench.is_in, path))
            await bench.produce(5)
        await bench.until_moved(FIRST)
        assert await bench.read() == bench.sent

    bench.run(script)


def test_a_copy_is_shown_while_it_is_not_whole(slow: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(20)
        begun_s = bench.world.clock.monotonic()
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(1)
        places = await bench.places()
        assert places[FIRST] == (False, 0)
        is_future, lag = places[SECOND]
        assert is_future and 0 < lag < 20
        await bench.until_moved(SECOND)
        took_s = bench.world.clock.monotonic() - begun_s
        assert 5 < took_s < 20, "20 batches of some 170 bytes at 500 bytes a second"

    slow.run(script)


def test_taken_back_and_sent_elsewhere(slow: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(20)
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(1)
        assert bench.folders() == {FIRST: ["t-0"], SECOND: ["future"]}
        assert await bench.move(FIRST) is Error.NONE
        await bench.until(lambda: bench.folders() == {FIRST: ["t-0"]})
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(1)
        assert await bench.move(THIRD) is Error.NONE
        await bench.until(lambda: bench.folders() == {FIRST: ["t-0"], THIRD: ["future"]})
        await bench.until_moved(THIRD)
        assert await bench.read() == bench.sent

    slow.run(script)


def test_what_cannot_be_moved(bench: Bench) -> None:
    async def script(bench: Bench) -> None:
        assert await bench.move("/elsewhere") is Error.LOG_DIR_NOT_FOUND
        assert await bench.move(THIRD, "later") is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await bench.move(FIRST) is Error.NONE
        assert await bench.move(SECOND, "l" * 240) is Error.INVALID_TOPIC_EXCEPTION
        await bench.client.create_topic("other")
        await bench.client.create_topic("later")
        assert bench.machine.disk.is_dir(f"{THIRD}/later-0"), "where it was said before it was there"

    bench.run(script)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_move_goes_on_after_a_restart(slow: Bench, how: str) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(30)
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(2)
        if how == "stop":
            await bench.broker.stop()
        else:
            bench.broker.kill()
        await bench.start()
        assert bench.folders() == {FIRST: ["t-0"], SECOND: ["future"]}
        await bench.produce(5)
        await bench.until_moved(SECOND)
        assert await bench.read() == bench.sent

    slow.run(script)


def test_a_deleted_topic_leaves_no_copy(slow: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(30)
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(2)
        await bench.client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")]), 6)
        await bench.until(lambda: bench.folders() == {})

    slow.run(script)


def test_a_topic_that_is_deleted_just_after_a_move_leaves_nothing(bench: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(5)
        await bench.move(SECOND)
        await bench.until(lambda: "t-0" in bench.folders().get(SECOND, ()))
        assert bench.folders() == {FIRST: ["t-0"], SECOND: ["t-0"]}
        await bench.client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")]), 6)
        assert bench.folders() == {}
        await bench.client.create_topic("t")
        await asyncio.sleep(2 * RETIRE_S)
        assert len(bench.folders()) == 1

    bench.run(script)


def test_producers_are_known_as_before(bench: Bench) -> None:
    """Also one of which no batch is left: what was retried must not be written twice."""

    async def script(bench: Bench) -> None:
        producer_id = await bench.client.init_producer_id()
        batch = batch_of([b"once"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert (await bench.client.produce("t", 0, batch)).base_offset == 0
        await bench.produce(30)
        partition = DeleteRecordsRequestPartition(partition_index=0, offset=25)
        topic = DeleteRecordsRequestTopic(name="t", partitions=[partition])
        await bench.client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000))
        await bench.move(SECOND)
        await bench.until_moved(SECOND)
        for _ in range(2):
            again = await bench.client.produce("t", 0, batch)
            assert (again.error_code, again.base_offset) == (Error.NONE, 0)
            assert await bench.client.list_offset("t", 0, -2) == 25
            await bench.broker.stop()
            await bench.start()
        found = await bench.client.read_all("t", 0, 25)
        assert [body_of(each.content) for each in found] == bench.sent[24:]

    bench.run(script)


def test_a_full_disk_is_waited_for(bench: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(20)
        disk = bench.machine.disk
        disk.fail_when(
            lambda operation: operation.kind == "write" and "-future/" in operation.path, os_error(28, SECOND), times=20
        )
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(12)
        assert bench.folders() == {FIRST: ["t-0"], SECOND: ["future"]}
        await bench.produce(5)
        disk.heal()
        await bench.until_moved(SECOND)
        assert await bench.read() == bench.sent

    bench.run(script)


@pytest.mark.parametrize("what", ["sync", "write", "rename"])
def test_the_other_disk_fails(bench: Bench, what: str) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(20)
        place = "-future" if what == "rename" else ".log"
        bench.machine.disk.fail_when(
            lambda each: each.kind == what and "-future" in each.path and each.path.endswith(place),
            os_error(5, SECOND),
            times=1000,
        )
        assert await bench.move(SECOND) is Error.NONE
        broker = bench.broker.running.broker  # type: ignore[union-attr]
        second = broker.partitions.directories[1]
        await bench.until(lambda: second.offline is not None or not list(broker.replica_moves))
        if what != "rename":
            await bench.produce(5)
        else:  # nobody knows whether it was renamed, until a start looks
            assert (await bench.client.produce("t", 0, batch_of([b"?"]))).error_code != Error.NONE
        bench.machine.disk.heal()
        bench.broker.kill()
        await bench.start()
        assert await bench.read() == bench.sent
        await bench.produce(5)

    bench.run(script)


def test_the_own_disk_fails(slow: Bench) -> None:
    async def script(bench: Bench) -> None:
        await bench.produce(20)
        assert await bench.move(SECOND) is Error.NONE
        await asyncio.sleep(1)
        bench.machine.disk.fail_sync(times=1)
        assert (await bench.client.produce("t", 0, batch_of([b"?"]))).error_code == Error.KAFKA_STORAGE_ERROR
        bench.broker.kill()
        await bench.start()
        await bench.until_moved(SECOND)
        assert (await bench.read())[:20] == bench.sent

    slow.run(script)


# ── interrupted anywhere ─────────────────────────────────────────────────────────────────────────────────────────


async def _move_through(bench: Bench) -> None:
    """Write, move, write, until the old replica is gone; ends early if the broker does."""
    await bench.move(SECOND)
    while bench.broker.is_running and bench.folders() != {SECOND: ["t-0"]}:
        if len(bench.sent) < 25:
            batch = bench.next_batch()
            if (await bench.client.produce("t", 0, batch)).error_code == Error.NONE:
                bench.sent.append(body_of(batch))
        else:
            await asyncio.sleep(0.2)


def _operations_of_a_move() -> range:
    bench = Bench()
    found: list[int] = []

    async def script(bench: Bench) -> None:
        await bench.produce(15)
        found.append(bench.machine.disk.operations_count)
        await _move_through(bench)
        found.append(bench.machine.disk.operations_count)

    bench.run(script)
    bench.simulation.close()
    return range(*found)


@pytest.mark.parametrize("lost", ["all", "none", "killed"])
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_step_loses_nothing(lost: str, part: int) -> None:
    operations = _operations_of_a_move()
    assert len(operations) > 100
    for number in operations[part::20]:
        _crash_at(number, lost)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["all", "none", "killed"])
@pytest.mark.parametrize("part", range(8))
def test_a_crash_at_every_step_loses_nothing(lost: str, part: int) -> None:
    for number in _operations_of_a_move()[part::8]:
        _crash_at(number, lost)


def _crash_at(number: int, lost: str) -> None:
    bench = Bench()

    async def script(bench: Bench) -> None:
        await bench.produce(15)
        if lost == "killed":
            bench.machine.kill_at(number)
        else:
            bench.machine.lose_power_at(number, lost=lost)  # type: ignore[arg-type]
        interrupted = asyncio.ensure_future(_move_through(bench))
        process = bench.broker.process
        assert process is not None and process.main is not None
        await asyncio.wait((interrupted, process.main), return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        await asyncio.wait([interrupted])
        if not bench.machine.is_on:
            bench.machine.power_on()
        await bench.start()
        found = await bench.read()
        assert found[: len(bench.sent)] == bench.sent and len(found) <= len(bench.sent) + 1, number
        bench.sent = found
        await bench.produce(3)
        places = bench.folders()
        if places != {FIRST: ["t-0"]}:  # it had begun, and goes on
            await bench.until_moved(SECOND)
        assert await bench.read() == bench.sent, number

    try:
        bench.run(script)
    finally:
        bench.simulation.close()
